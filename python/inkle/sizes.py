"""Sizes that TorchDynamo knows as expressions of symbols, as expressions of the compiler."""

from __future__ import annotations

import fractions
import functools
import operator
from typing import Any, Callable, Iterator

import sympy
import torch
from torch.utils._sympy.singleton_int import SingletonInt

from inkle import _inkle

# A size symbol without an upper bound of its own: no tensor has more elements than this.
LARGEST_SIZE = 2**48
# The bounds of an integer of which nothing is known: all of 64 bits.
LEAST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
# Of 1 in a float of such sizes that is exact.
_MOST_PARTS = 16
# Integers up to this are floats without rounding, and so are the floors of their quotients.
_EXACT_IN_FLOAT = 2**53
# Powers up to this are written as products.
_LARGEST_POWER = 16


class UnsupportedGraph(Exception):
    """The graph as a whole cannot be compiled; it runs in eager."""


class SymbolicSizes:
    """The expressions of one graph. ``importer``: the ``_inkle.Importer`` that holds them.

    ``opaque``: called with each integer or condition that the compiler has no expression for
    (floats, shifts, powers with a symbolic exponent); by default it is an ``UnsupportedGraph``,
    unless an argument of the graph has its value, whose symbol stands for it then.
    """

    def __init__(
        self,
        importer: Any,
        gm: torch.fx.GraphModule,
        opaque: Callable[[Any], None] | None = None,
    ):
        self._importer = importer
        self._symbols: dict[Any, Any] = {}
        self._opaque = opaque
        # Expressions that are arguments, so that their values are known; those that are sizes.
        self._given: set[Any] = set()
        self._sizes: set[Any] = set()
        for node in gm.graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and isinstance(value, (torch.SymInt, torch.SymBool)):
                self._given.add(value.node.expr)
            for tensor in tensors_of(value):
                self._sizes.update(s.node.expr for s in tensor.shape if isinstance(s, torch.SymInt))

    def integer(self, value: Any) -> Any:
        """int, SymInt or SymBool -> int or Expr; of a condition 0 or 1."""
        if isinstance(value, torch.SymInt):
            return self._expression(value.node.expr, value.node.shape_env)
        if isinstance(value, torch.SymBool):
            return self._condition(value.node.expr, value.node.shape_env)
        return int(value)

    def is_read(self, value: torch.SymInt | torch.SymBool) -> bool:
        """Whether an argument is a symbol of the compiler, else an expression of others."""
        e = value.node.expr
        return e.is_Symbol or e in self._symbols

    def _expression(self, e: Any, shape_env: Any) -> Any:
        if e.is_Integer:
            return self._constant(e)
        if e.is_Symbol:
            return self._symbol(e, shape_env)
        known = self._symbols.get(e)
        if known is not None:
            return known
        made = self._made(self._operation, e, shape_env)
        return self._argument_or_opaque(e, shape_env) if made is None else made

    @staticmethod
    def _made(make: Callable[[Any, Any], Any], e: Any, shape_env: Any) -> Any:
        """None also where a constant has more than 64 bits."""
        try:
            return make(e, shape_env)
        except _inkle.Unsupported:
            return None

    @staticmethod
    def _constant(e: Any) -> int:
        number = int(e)
        if not LEAST_INTEGER <= number <= LARGEST_INTEGER:
            raise _inkle.Unsupported(f"the integer {number} has more than 64 bits")
        return number

    def _operation(self, e: Any, shape_env: Any) -> Any:
        """None where the compiler has no such expression."""
        kind = type(e).__name__
        if kind in ("CeilToInt", "FloorToInt"):
            return self._rounded(e, kind == "CeilToInt", shape_env)
        if kind == "TruncToInt":
            return self._truncated(e, shape_env)
        if kind == "Where":
            return self._where(e, shape_env)
        if kind not in _OPERATIONS and kind not in ("Pow", "PowByNatural"):
            return None
        if not all(a.is_integer for a in e.args):
            return None
        parts = [self._expression(a, shape_env) for a in e.args]
        if kind in ("Pow", "PowByNatural"):
            if not isinstance(parts[1], int) or not 0 < parts[1] <= _LARGEST_POWER:
                return None
            return functools.reduce(operator.mul, [self._as_expr(parts[0])] * parts[1])
        if kind in _DIVISIONS and isinstance(parts[1], int) and parts[1] == 0:
            return None
        return _OPERATIONS[kind](*map(self._as_expr, parts))

    def _as_expr(self, value: Any) -> Any:
        return self._importer.constant(value) if isinstance(value, int) else value

    def _argument_or_opaque(self, e: Any, shape_env: Any) -> Any:
        if self._opaque is not None:
            self._opaque(e)
        elif e not in self._given:
            raise UnsupportedGraph(f"size expression {e} of kind {type(e).__name__}")
        name = f"value{len(self._symbols)}"
        if isinstance(e, sympy.logic.boolalg.Boolean):
            self._symbols[e] = self._importer.symbol(name, 0, 1, None)
            return self._symbols[e]
        return self._declare(e, name, shape_env.bound_sympy(e), e.xreplace(_hints(shape_env)))

    # --- Conditions -------------------------------------------------------------------------------

    def _condition(self, e: Any, shape_env: Any) -> Any:
        """0 or 1."""
        if e in (sympy.true, sympy.false):
            return int(bool(e))
        if (known := self._symbols.get(e)) is not None:
            return known
        made = self._made(self._comparison, e, shape_env)
        return self._argument_or_opaque(e, shape_env) if made is None else made

    def _comparison(self, e: Any, shape_env: Any) -> Any:
        one, zero = self._importer.constant(1), self._importer.constant(0)
        if isinstance(e, (sympy.And, sympy.Or)):
            parts = [self._as_expr(self._condition(a, shape_env)) for a in e.args]
            both = isinstance(e, sympy.And)
            return functools.reduce(lambda a, b: a.minimum(b) if both else a.maximum(b), parts)
        if isinstance(e, sympy.Not):
            return one + self._as_expr(self._condition(e.args[0], shape_env)) * -1
        if not e.is_Relational or not all(a.is_integer for a in e.args):
            return None
        left, right = (self._as_expr(self._expression(a, shape_env)) for a in e.args)
        difference = self._difference(left, right, e.args, shape_env)
        if isinstance(e, (sympy.Eq, sympy.Ne)):
            differs = difference.maximum(difference * -1).minimum(one)
            return differs if isinstance(e, sympy.Ne) else one + differs * -1
        if isinstance(e, (sympy.Gt, sympy.Le)):
            difference = difference * -1
        less = (difference * -1).maximum(zero).minimum(one)
        return one + less * -1 if isinstance(e, (sympy.Ge, sympy.Le)) else less

    @staticmethod
    def _difference(left: Any, right: Any, args: Any, shape_env: Any) -> Any:
        """Of the sign of left - right; of integers of any value it is taken near ``right``, so that it
        has 64 bits."""
        bounds = [_range(shape_env.bound_sympy(a)) for a in args]
        if all(-LARGEST_SIZE <= low <= high <= LARGEST_SIZE for low, high in bounds):
            return left + right * -1
        near = left.maximum(right + -1).minimum(right + 1)
        return near + right * -1

    def _where(self, e: Any, shape_env: Any) -> Any:
        chosen = self._as_expr(self._condition(e.args[0], shape_env))
        first, second = (self._as_expr(self._expression(a, shape_env)) for a in e.args[1:])
        return chosen * first + (chosen * -1 + 1) * second

    # --- Floats -----------------------------------------------------------------------------------

    def _truncated(self, e: Any, shape_env: Any) -> Any:
        """Towards zero, as ``int`` rounds (``F.interpolate`` with a factor)."""
        down = self._rounded(e, False, shape_env)
        if down is None or isinstance(down, int):
            return down
        if shape_env.bound_sympy(e.args[0]).lower >= 0:
            return down
        zero = self._importer.constant(0)
        return down.maximum(zero) + self._rounded(e, True, shape_env).minimum(zero)

    def _rounded(self, e: Any, up: bool, shape_env: Any) -> Any:
        """A quotient rounded to an integer: of an integer by a positive number, or of floats that are
        computed without rounding. None for others."""
        (quotient,) = e.args
        divisor = quotient.args[1] if type(quotient).__name__ == "IntTrueDiv" else None
        if divisor is not None and divisor.is_Integer and int(divisor) > 0:
            divided, by = self._exact_integer(quotient.args[0], shape_env), int(divisor)
        else:
            divided, by = self._exact_quotient(quotient, shape_env) or (None, 1)
        if divided is None:
            return None
        divided = self._as_expr(divided)
        return (divided + (by - 1) if up else divided) // self._importer.constant(by)

    def _exact_integer(self, e: Any, shape_env: Any) -> Any:
        """An integer that a float holds without rounding: of sizes, or in range. None for others."""
        if not e.free_symbols <= self._sizes:
            bounds = _range(shape_env.bound_sympy(e))
            if not -_EXACT_IN_FLOAT <= bounds[0] <= bounds[1] <= _EXACT_IN_FLOAT:
                return None
        return self._expression(e, shape_env)

    def _exact_quotient(self, e: Any, shape_env: Any) -> tuple[Any, int] | None:
        """A float that is linear in sizes as an integer over a power of two; None where it may be
        rounded: with other fractions, or more than four bits of one."""
        kind = type(e).__name__
        if e.is_number:
            fraction = fractions.Fraction(float(e))
            is_small = abs(fraction.numerator) <= 2**40 and fraction.denominator <= _MOST_PARTS
            return (fraction.numerator, fraction.denominator) if is_small else None
        if kind == "ToFloat" or e.is_integer:
            number = self._exact_integer(e.args[0] if kind == "ToFloat" else e, shape_env)
            return None if number is None else (number, 1)
        if kind not in ("Add", "Mul", "FloatTrueDiv", "IntTrueDiv"):
            return None
        parts = [self._exact_quotient(a, shape_env) for a in e.args]
        if any(p is None for p in parts):
            return None
        if kind == "Add":
            by = max(p[1] for p in parts)
            terms = sorted((p[0] * (by // p[1]) for p in parts), key=lambda t: isinstance(t, int))
            return functools.reduce(operator.add, terms), by
        if kind == "Mul":
            if len(parts) != 2 or not isinstance(parts[0][0], int):
                return None
            return parts[1][0] * parts[0][0], parts[0][1] * parts[1][1]
        if isinstance(parts[1][0], int):
            (number, over), (size, by) = parts[1], parts[0]
            if abs(number) & (abs(number) - 1) == 0 and number != 0 and abs(number) * by <= _MOST_PARTS:
                return size * (over if number > 0 else -over), by * abs(number)
        return None

    # --- Symbols ----------------------------------------------------------------------------------

    def _symbol(self, symbol: Any, shape_env: Any) -> Any:
        known = self._symbols.get(symbol)
        if known is not None:
            return known
        depends_on_data = symbol.name.startswith(("u", "zuf"))
        if depends_on_data and symbol not in self._given and self._opaque is None:
            raise UnsupportedGraph(f"the size {symbol} depends on data")
        return self._declare(
            symbol, symbol.name, shape_env.var_to_range.get(symbol), _hints(shape_env).get(symbol)
        )

    def _declare(self, e: Any, name: str, bounds: Any, hint: Any) -> Any:
        low, high = _range(bounds)
        if e in self._sizes:
            low, high = max(low, 0), min(high, LARGEST_SIZE)
        self._symbols[e] = self._importer.symbol(name, low, high, _as_hint(hint))
        return self._symbols[e]


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a node's ``meta["val"]`` that have sizes."""
    for one in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(one, torch.Tensor) and one.layout == torch.strided:
            yield one


def is_jagged(value: Any) -> bool:
    """Whether a number stands for the lengths of a jagged tensor's rows: torch tells such apart, but
    they have no value."""
    if not isinstance(value, torch.SymInt):
        return False
    return isinstance(_hints(value.node.shape_env).get(value.node.expr), SingletonInt)


def _range(bounds: Any) -> tuple[int, int]:
    """What torch states of an integer, within 64 bits."""
    if bounds is None:
        return LEAST_INTEGER, LARGEST_INTEGER
    return _bound(bounds.lower, LEAST_INTEGER), _bound(bounds.upper, LARGEST_INTEGER)


def _bound(value: Any, otherwise: int) -> int:
    try:
        number = int(value)
    except (TypeError, OverflowError, ValueError, AttributeError):
        return otherwise
    return max(min(number, LARGEST_INTEGER), LEAST_INTEGER)


def _hints(shape_env: Any) -> dict[Any, Any]:
    hints = getattr(shape_env, "backed_var_to_val", None)
    return shape_env.var_to_val if hints is None else hints


def _as_hint(value: Any) -> int | None:
    """None for what is no number: that of a jagged size, or one with symbols."""
    try:
        number = int(value)
    except (TypeError, OverflowError, ValueError, AttributeError):
        return None
    return number if LEAST_INTEGER <= number <= LARGEST_INTEGER else None


def _fold(join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *parts: functools.reduce(join, parts)


_DIVISIONS = {"FloorDiv", "CleanDiv", "Mod", "PythonMod", "ModularIndexing", "CeilDiv"}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Abs": lambda a: a.maximum(a * -1),
    "Add": _fold(operator.add),
    "Mul": _fold(operator.mul),
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda a, b: (a * -1) // b * -1,
    "Identity": lambda a: a,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": lambda a, b, c: (a // b) % c,
    "Min": _fold(lambda a, b: a.minimum(b)),
    "Max": _fold(lambda a, b: a.maximum(b)),
}
