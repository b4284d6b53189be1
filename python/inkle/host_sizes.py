"""Integers and conditions that the compiler has no expression for, as ``int(tokens ** 0.5)``: Python
computes them in each call, and they are arguments of what is compiled.

    view(x, [s0, TruncToInt(s1**0.5), 8])   ->   value0 = int(s1**0.5); view(x, [s0, value0, 8])
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator

import torch
from torch.fx.node import Node
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from inkle import _inkle
from inkle.sizes import SymbolicSizes, UnsupportedGraph, tensors_of

# So many results of one expression are kept.
_KEPT_RESULTS = 256


def expressions(gm: torch.fx.GraphModule) -> list[Any]:
    """The expressions (of sympy) in the sizes and arguments of a graph that Python must compute, each
    once, none inside of another."""
    symbolic = (torch.SymInt, torch.SymBool)
    found: dict[Any, None] = {}
    sizes: SymbolicSizes | None = None
    seen: set[Any] = set()
    for node in gm.graph.nodes:
        for value in numbers_of(node):
            if not isinstance(value, symbolic) or value.node.expr in seen:
                continue
            if sizes is None:
                probe = _inkle.Importer("probe")
                sizes = SymbolicSizes(probe, gm, opaque=lambda e: found.setdefault(e))
            seen.add(value.node.expr)
            try:
                sizes.integer(value)
            except (UnsupportedGraph, _inkle.Unsupported):
                pass  # what holds for the graph is said where it is imported
    return list(found)


def numbers_of(node: Node) -> Iterator[Any]:
    """What the sizes and arguments of a node are made of."""
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        yield value
    if isinstance(value, torch.SymBool):
        # Asserts vanish.
        if any("_assert" not in str(user.target) for user in node.users):
            yield value
    for tensor in tensors_of(value):
        yield from tensor.shape
        yield from tensor.stride()


def add_nodes(gm: torch.fx.GraphModule) -> dict[Any, Node]:
    """The node of each such expression; those that no node computes get one.

    Raises UnsupportedGraph where a symbol in one is no node's value.
    """
    wanted = expressions(gm)
    if not wanted:
        return {}
    # Of numbers alone: what is read from a tensor of the graph is known only behind it.
    nodes: dict[Any, Node] = {}
    numbers: set[Node] = set()
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            continue
        is_bound = node.op == "placeholder" or bool(node.meta.get("unbacked_bindings"))
        if is_bound or numbers.issuperset(node.all_input_nodes):
            numbers.add(node)
            nodes.setdefault(value.node.expr, node)
    return {e: nodes[e] if e in nodes else _computed(gm, e, nodes) for e in wanted}


def _computed(gm: torch.fx.GraphModule, expression: Any, nodes: dict[Any, Node]) -> Node:
    symbols = sorted(expression.free_symbols, key=str)
    known = [nodes.get(s) for s in symbols]
    if not symbols or None in known:
        raise UnsupportedGraph(f"size expression {expression} of kind {type(expression).__name__}")
    order = {n: i for i, n in enumerate(gm.graph.nodes)}
    after = max(known, key=order.__getitem__)
    while after.next.op == "placeholder":
        after = after.next
    shape_env = known[0].meta["val"].node.shape_env
    with gm.graph.inserting_after(after):
        made = gm.graph.call_function(_evaluation(expression, symbols), tuple(known))
    made.meta["val"] = shape_env.create_symintnode(expression, hint=None)
    nodes[expression] = made
    return made


class _Analysis(PythonReferenceAnalysis):
    """Torch's gives torch.sym_ite the conditions of sympy, which it refuses; of numbers they are known."""

    @staticmethod
    def piecewise(*pairs: Any) -> Any:
        return next(value for value, condition in pairs if condition)


def _evaluation(expression: Any, symbols: list[Any]) -> Callable[..., int]:
    @functools.lru_cache(maxsize=_KEPT_RESULTS)
    def evaluate(*values: int) -> int:
        return sympy_interp(_Analysis, dict(zip(symbols, values)), expression)

    evaluate.__name__ = evaluate.__qualname__ = "evaluate_size"
    return evaluate
