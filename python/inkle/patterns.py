"""A pattern given as two Python functions: calls in a Dynamo graph that look as ``search`` would,
traced, are replaced by those of ``replacement``.

Spelling does not matter where torch gives the same op a function, a method and an operator:
``torch.relu(x)``, ``x.relu()`` and ``F.relu(x)`` are one, as are arguments by position and by name,
and those left out and given as their default.
"""

from __future__ import annotations

import functools
import inspect
import operator
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch.fx.node import Node, map_arg

# Of Python's operators, the names of torch.
_OPERATORS = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div",
    operator.matmul: "matmul", operator.neg: "neg", operator.pow: "pow", operator.abs: "abs",
    operator.floordiv: "floor_divide",
}  # fmt: skip
# Arguments that say nothing of the result.
_IGNORED = {"_stacklevel", "inplace"}
_SELF = "input"


class Pattern:
    """A pass over a Dynamo graph (``__call__``)."""

    def __init__(
        self,
        search: Callable[..., Any],
        replacement: Callable[..., Any],
        is_wanted: Callable[[dict[str, Any]], bool] | None = None,
    ):
        """``is_wanted`` is asked with what a match has for each argument of ``search``: the node of
        the graph, whose ``meta["example_value"]`` is a fake tensor, or the number."""
        self.search = torch.fx.symbolic_trace(search).graph
        self.replacement = torch.fx.symbolic_trace(replacement).graph
        self.is_wanted = is_wanted
        self.__qualname__ = f"pattern {getattr(search, '__qualname__', search)}"
        inputs = [[n.target for n in g.nodes if n.op == "placeholder"] for g in self._graphs()]
        if len(inputs[0]) != len(inputs[1]):
            raise ValueError("search and replacement take different numbers of arguments")
        if any(n.op in ("get_attr", "call_module") for g in self._graphs() for n in g.nodes):
            raise ValueError("patterns are functions of tensors and numbers, without modules")
        self._results = _results(self.search)
        if not self._results or any(n.op == "placeholder" for n in self._results):
            raise ValueError("search must return what it computes")
        if len(_results(self.replacement)) != len(self._results):
            raise ValueError("search and replacement return different numbers of results")

    def _graphs(self) -> tuple[torch.fx.Graph, torch.fx.Graph]:
        return self.search, self.replacement

    def __call__(self, graph: torch.fx.Graph) -> int:
        """Replaces all matches that do not overlap, the last first; returns how many."""
        taken: set[Node] = set()
        count = 0
        for node in reversed(list(graph.nodes)):
            if node in taken or node.op not in ("call_function", "call_method"):
                continue
            match = self._match(node, graph)
            if match is None or taken.intersection(self._inner(match)):
                continue
            if self.is_wanted is not None and not self.is_wanted(self._arguments(match)):
                continue
            taken.update(self._inner(match))
            self._replace(graph, match)
            count += 1
        return count

    # A match: for each node of ``search`` that of the graph; for an argument also a number.

    def _match(self, node: Node, graph: torch.fx.Graph) -> dict[Node, Any] | None:
        """One in which ``node`` is the last result."""
        match: dict[Node, Any] = {}
        if not _matches(self._results[-1], node, match):
            return None
        for result in self._results[:-1]:
            if result in match:
                continue
            found = next((m for n in graph.nodes if (m := _extended(match, result, n))), None)
            if found is None:
                return None
            match = found
        if any(n not in match for n in self.search.nodes if n.op == "placeholder" and n.users):
            return None
        inner = set(self._inner(match))
        results = {match[r] for r in self._results}
        if any(user not in inner for n in inner - results for user in n.users):
            return None
        return match if _is_movable(graph, inner, results) else None

    def _inner(self, match: dict[Node, Any]) -> list[Node]:
        return [n for p, n in match.items() if p.op != "placeholder"]

    def _arguments(self, match: dict[Node, Any]) -> dict[str, Any]:
        return {p.target: n for p, n in match.items() if p.op == "placeholder"}

    def _replace(self, graph: torch.fx.Graph, match: dict[Node, Any]) -> None:
        inner = self._inner(match)
        results = [match[r] for r in self._results]
        order = {n: i for i, n in enumerate(graph.nodes)}
        last = max(inner, key=order.__getitem__)
        inputs = (n for n in self.search.nodes if n.op == "placeholder")
        values = [match.get(n) for n in inputs]
        made: dict[Node, Any] = {}
        with graph.inserting_before(last.next):
            for node in self.replacement.nodes:
                if node.op == "placeholder":
                    made[node] = values[len(made)]
                elif node.op != "output":
                    made[node] = graph.node_copy(node, made.__getitem__)
                    made[node].meta = {
                        k: v for k, v in last.meta.items() if k in ("stack_trace", "source_fn_stack")
                    }
        new = [map_arg(r, made.__getitem__) for r in _results(self.replacement)]
        for old, result in zip(results, new):
            if isinstance(result, Node):
                result.meta.setdefault("stack_trace", old.meta.get("stack_trace"))
            old.replace_all_uses_with(result)
        for node in sorted(inner, key=order.__getitem__, reverse=True):
            graph.erase_node(node)


def _results(graph: torch.fx.Graph) -> list[Any]:
    returned = graph.output_node().args[0]
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _extended(match: dict[Node, Any], pattern: Node, node: Node) -> dict[Node, Any] | None:
    tried = dict(match)
    return tried if _matches(pattern, node, tried) else None


def _matches(pattern: Any, found: Any, match: dict[Node, Any]) -> bool:
    """Whether ``found`` is as ``pattern``; ``match`` is what was found so far, and is added to."""
    if isinstance(pattern, Node):
        if pattern in match:
            return match[pattern] is found or (
                not isinstance(found, Node) and _is_equal(match[pattern], found)
            )
        if pattern.op == "placeholder":
            match[pattern] = found
            return True
        if not isinstance(found, Node) or found in match.values():
            return False
        wanted, given = _canonical(pattern), _canonical(found)
        if wanted is None or given is None or wanted[0] != given[0]:
            return False
        if wanted[1].keys() != given[1].keys():
            return False
        match[pattern] = found
        return all(_matches(a, given[1][name], match) for name, a in wanted[1].items())
    if isinstance(pattern, (list, tuple)):
        return (
            isinstance(found, (list, tuple))
            and len(pattern) == len(found)
            and all(_matches(a, b, match) for a, b in zip(pattern, found))
        )
    return not isinstance(found, Node) and _is_equal(pattern, found)


def _is_equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


# --- Spelling -------------------------------------------------------------------------------------


def _canonical(node: Node) -> tuple[Any, dict[str, Any]] | None:
    """What is called, and its arguments by name without those that are at their defaults."""
    if node.op == "call_method":
        name = node.target
    elif node.op == "call_function":
        name = _OPERATORS.get(node.target) or _name_in_torch(node.target)
    else:
        return None
    if name is None:  # no op of torch's that has several spellings
        arguments = dict(enumerate(node.args)) | dict(node.kwargs)
        return node.target, {str(k): v for k, v in arguments.items()}
    if _writes(node):
        return None
    for names, defaults in _signatures(name, node.target if node.op == "call_function" else None):
        if len(node.args) > len(names) or not set(node.kwargs) <= {*names, "self"}:
            continue
        arguments = dict(zip(names, node.args))
        arguments |= {(_SELF if k == "self" else k): v for k, v in node.kwargs.items()}
        return name, {
            k: v
            for k, v in arguments.items()
            if k not in _IGNORED and not (k in defaults and _is_equal(defaults[k], v))
        }
    return name, {**dict(zip(map(str, range(len(node.args))), node.args)), **node.kwargs}


@functools.cache
def _name_in_torch(target: Any) -> str | None:
    name = getattr(target, "__name__", None)
    if not isinstance(name, str):
        return None
    homes = (torch, F, torch._C._nn)
    return name if any(getattr(home, name, None) is target for home in homes) else None


@functools.cache
def _signatures(name: str, target: Any) -> list[tuple[list[str], dict[str, Any]]]:
    """Names and defaults of arguments: those of a Python function, or of the op's overloads."""
    found = []
    if inspect.isfunction(target):
        parameters = inspect.signature(target).parameters
        defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
        found.append((list(parameters), defaults))
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        arguments = getattr(packet, overload)._schema.arguments
        names = [_SELF if a.name == "self" else a.name for a in arguments]
        if "out" in names:
            continue
        defaults = {
            n: a.default_value for n, a in zip(names, arguments) if a.has_default_value()
        }
        found.append((names, defaults))
    return found


# --- Effects --------------------------------------------------------------------------------------


def _writes(node: Node) -> bool:
    """Whether a call of a Dynamo graph may write to memory, as far as names tell."""
    if node.kwargs.get("inplace") is True or node.kwargs.get("out") is not None:
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name in ("setitem", *_IN_PLACE)


_IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "ipow", "imatmul", "iand", "ior", "ixor")


def _is_movable(graph: torch.fx.Graph, inner: set[Node], results: set[Node]) -> bool:
    """Whether all may be computed where its last node is: nothing writes between, and no node reads
    a result before."""
    is_between, left = False, len(inner)
    for node in graph.nodes:
        if node in inner:
            is_between, left = True, left - 1
            if left == 0:
                return True
        elif is_between and (_writes(node) or results.intersection(node.all_input_nodes)):
            return False
    return True
