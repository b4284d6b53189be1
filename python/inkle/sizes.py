"""Sizes that TorchDynamo knows as expressions of symbols, as expressions of the compiler."""

from __future__ import annotations

import fractions
import functools
import operator
from typing import Any

import torch

# A size symbol without an upper bound of its own: no tensor has more elements than this.
LARGEST_SIZE = 2**48
# Of 1 in a float of such sizes that is exact.
_MOST_PARTS = 16


class UnsupportedGraph(Exception):
    """The graph as a whole cannot be compiled; it runs in eager."""


class SymbolicSizes:
    """The expressions of one graph. ``importer``: the ``_inkle.Importer`` that holds them."""

    def __init__(self, importer: Any, gm: torch.fx.GraphModule):
        self._importer = importer
        self._symbols: dict[Any, Any] = {}
        # Symbols that are arguments, so that their values are known.
        numbers = (n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder")
        self._given = {v.node.expr for v in numbers if isinstance(v, torch.SymInt)}

    def integer(self, value: Any) -> Any:
        """int or SymInt -> int or Expr."""
        if isinstance(value, torch.SymInt):
            return self._expression(value.node.expr, value.node.shape_env)
        return int(value)

    def _expression(self, e: Any, shape_env: Any) -> Any:
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            return self._symbol(e, shape_env)
        kind = type(e).__name__
        if kind in ("CeilToInt", "FloorToInt"):
            return self._rounded(e, kind == "CeilToInt", shape_env)
        if kind == "TruncToInt":
            return self._truncated(e, shape_env)
        parts = [self._expression(a, shape_env) for a in e.args]
        as_expr = [self._importer.constant(p) if isinstance(p, int) else p for p in parts]
        if kind == "Add" or kind == "Mul":
            total = as_expr[0]
            for part in as_expr[1:]:
                total = total + part if kind == "Add" else total * part
            return total
        if kind == "Pow" and isinstance(parts[1], int) and parts[1] > 0:
            total = as_expr[0]
            for _ in range(parts[1] - 1):
                total = total * as_expr[0]
            return total
        if kind in ("FloorDiv", "CleanDiv"):
            return as_expr[0] // as_expr[1]
        if kind in ("Mod", "PythonMod"):
            return as_expr[0] % as_expr[1]
        if kind == "ModularIndexing":
            return (as_expr[0] // as_expr[1]) % as_expr[2]
        if kind in ("Min", "Max"):
            total = as_expr[0]
            for part in as_expr[1:]:
                total = total.minimum(part) if kind == "Min" else total.maximum(part)
            return total
        raise UnsupportedGraph(f"size expression {e} of kind {kind}")

    def _truncated(self, e: Any, shape_env: Any) -> Any:
        """Towards zero, as ``int`` rounds (``F.interpolate`` with a factor)."""
        down = self._rounded(e, False, shape_env)
        if shape_env.bound_sympy(e.args[0]).lower >= 0 or isinstance(down, int):
            return down
        zero = self._importer.constant(0)
        return down.maximum(zero) + self._rounded(e, True, shape_env).minimum(zero)

    def _rounded(self, e: Any, up: bool, shape_env: Any) -> Any:
        """A quotient rounded to an integer: of an integer by a positive number, or of floats that are
        computed without rounding."""
        (quotient,) = e.args
        divisor = quotient.args[1] if type(quotient).__name__ == "IntTrueDiv" else None
        if divisor is not None and divisor.is_Integer and int(divisor) > 0:
            divided, by = self._expression(quotient.args[0], shape_env), int(divisor)
        else:
            exact = self._exact_quotient(quotient, shape_env)
            if exact is None:
                raise UnsupportedGraph(f"size expression {e} of kind {type(e).__name__}")
            divided, by = exact
        if isinstance(divided, int):
            divided = self._importer.constant(divided)
        return (divided + (by - 1) if up else divided) // self._importer.constant(by)

    def _exact_quotient(self, e: Any, shape_env: Any) -> tuple[Any, int] | None:
        """A float that is linear in sizes as an integer over a power of two; None where it may be
        rounded: with other fractions, or more than four bits of one."""
        kind = type(e).__name__
        if e.is_number:
            fraction = fractions.Fraction(float(e))
            is_small = abs(fraction.numerator) <= 2**40 and fraction.denominator <= _MOST_PARTS
            return (fraction.numerator, fraction.denominator) if is_small else None
        if kind == "ToFloat" or e.is_integer:
            return self._expression(e.args[0] if kind == "ToFloat" else e, shape_env), 1
        parts = [self._exact_quotient(a, shape_env) for a in e.args]
        if any(p is None for p in parts):
            return None
        if kind == "Add":
            by = max(p[1] for p in parts)
            terms = sorted((p[0] * (by // p[1]) for p in parts), key=lambda t: isinstance(t, int))
            return functools.reduce(operator.add, terms), by
        if kind == "Mul" and len(parts) == 2 and isinstance(parts[0][0], int):
            return parts[1][0] * parts[0][0], parts[0][1] * parts[1][1]
        if kind in ("FloatTrueDiv", "IntTrueDiv") and isinstance(parts[1][0], int):
            (number, over), (size, by) = parts[1], parts[0]
            if abs(number) & (abs(number) - 1) == 0 and number != 0 and abs(number) * by <= _MOST_PARTS:
                return size * (over if number > 0 else -over), by * abs(number)
        return None

    def _symbol(self, symbol: Any, shape_env: Any) -> Any:
        known = self._symbols.get(symbol)
        if known is not None:
            return known
        if symbol not in self._given and symbol.name.startswith(("u", "zuf")):
            raise UnsupportedGraph(f"the size {symbol} depends on data")
        bounds = shape_env.var_to_range.get(symbol)
        low = self._bound(bounds.lower if bounds else 0, 0)
        high = self._bound(bounds.upper if bounds else LARGEST_SIZE, LARGEST_SIZE)
        hints = getattr(shape_env, "backed_var_to_val", None)
        hints = shape_env.var_to_val if hints is None else hints
        hint = hints.get(symbol)
        made = self._importer.symbol(symbol.name, low, high, None if hint is None else int(hint))
        self._symbols[symbol] = made
        return made

    @staticmethod
    def _bound(value: Any, otherwise: int) -> int:
        try:
            number = int(value)
        except (TypeError, OverflowError, ValueError, AttributeError):
            return otherwise
        return max(min(number, LARGEST_SIZE), -LARGEST_SIZE)
