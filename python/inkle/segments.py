"""Graphs with sizes or numbers that depend on data, with effects in order, or with tensors that the
compiler has no type for, split at those.

Ops whose results have such sizes (``nonzero``, an index by a mask, ``item()``) run in eager, and so
do calls with an effect (``with_effects``: the check behind ``linalg.cholesky``, prints), which a
token orders, and ops on other devices (meta) or layouts (sparse); what lies between them are graphs
of their own, for which these sizes are symbols like others. Arithmetic that the compiler has no
expression for (``host_sizes``) is Python's, too.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, Callable, Collection, Iterator

import torch
from torch.fx.node import Node

from inkle import host_sizes
from inkle.returned import Callers, storage_of, views_of
from inkle.sizes import is_jagged, tensors_of

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def must_split(gm: torch.fx.GraphModule) -> bool:
    """Whether a size or number of the graph is known only while it runs or has no value, calls have
    effects, or there are tensors that the compiler has no type for."""
    has_boundary = any(
        _binds(node) or _is_float(node) or _has_effect(node) or _is_foreign(node)
        if node.op == "call_function"
        else node.op == "placeholder" and is_jagged(node.meta.get("val"))
        for node in gm.graph.nodes
    )
    return has_boundary or bool(host_sizes.expressions(gm))


def compile_segments(
    gm: torch.fx.GraphModule,
    parameters: set[int],
    compile_part: Callable[[torch.fx.GraphModule, set[int], Callers], Callable[..., Any]],
    callers: Callers,
) -> Callable[..., Any]:
    """A boxed callable for the graph. ``parameters``: positions of arguments that are weights;
    ``compile_part`` compiles a graph without boundaries, as ``compile_graph`` does. ``callers``: of the
    graph."""
    computed = host_sizes.add_nodes(gm)
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    weights = {placeholders[i] for i in parameters}
    results = gm.graph.output_node().args[0]
    restrided = {results[i] for i in callers.restrided}
    tracked = {results[i] for i in callers.tracked}
    steps: list[_Eager | _Part] = []
    for level in _levels(gm, _move_to_writes(gm, restrided)):
        steps += [_Eager(node) for node in level.scalars]
        part = _make_part(gm, level.nodes, computed, restrided)
        if part is not None:
            positions = {i for i, n in enumerate(part.inputs) if n in weights}
            among = _callers(part, placeholders, restrided, tracked)
            among = dataclasses.replace(among, share=callers.share)
            part.run = compile_part(part.module, positions, among)
            steps.append(part)
        steps += [_Eager(node) for node in level.boundaries]
    output = next(n for n in gm.graph.nodes if n.op == "output")
    return _driver(placeholders, steps, output)


def _callers(
    part: _Part, placeholders: list[Node], restrided: set[Node], tracked: set[Node]
) -> Callers:
    """Views of what other parts have made share its memory. Those of arguments do not: the last part
    may write to an argument, and knows of no views beside it. ``restrided``: results of which
    AOTAutograd reads the sizes, strides and offset, as long as no other part reads their elements.
    ``tracked``: results that gradients flow to."""
    arguments = {storage_of(n) for n in placeholders}
    copied = {i for i, n in enumerate(part.outputs) if storage_of(n) in arguments}
    given = {i for i, n in enumerate(part.outputs) if n in restrided and part.alone_reads(n)}
    followed = frozenset(i for i, n in enumerate(part.outputs) if n in tracked)
    return Callers(frozenset(copied | given), frozenset(given), followed)


def _binds(node: Node) -> bool:
    return bool(node.meta.get("unbacked_bindings"))


def _is_float(node: Node) -> bool:
    """Computes or takes a number that is no size."""
    values = [node, *node.all_input_nodes]
    return any(isinstance(v.meta.get("val"), torch.SymFloat) for v in values)


def _has_effect(node: Node) -> bool:
    return node.target is torch.ops.higher_order.with_effects


def _is_foreign(node: Node) -> bool:
    """Makes or takes a tensor that the compiler has no type for."""
    return any(_has_foreign(n.meta.get("val")) for n in (node, *node.all_input_nodes))


def _has_foreign(value: Any) -> bool:
    tensors = value if isinstance(value, (list, tuple)) else [value]
    return any(
        isinstance(t, torch.Tensor)
        and (t.layout != torch.strided or t.device.type not in ("cpu", "cuda"))
        for t in tensors
    )


def _is_boundary(node: Node) -> bool:
    """Runs in eager, at a boundary of graphs."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return False
    is_float = _is_float(node) and not _is_scalar(node)
    return _binds(node) or _has_effect(node) or _is_foreign(node) or is_float


def _is_scalar(node: Node) -> bool:
    """Arithmetic on sizes, and what checks them; or one of several results of a node at a boundary."""
    meta = node.meta.get("val")
    if node.target is operator.getitem and _is_boundary(node.args[0]):
        return True
    if isinstance(meta, _SYMBOLIC) or isinstance(meta, (int, float)):
        return True
    return meta is None and ("_assert_scalar" in str(node.target) or "sym_constrain" in str(node.target))


# --- Levels ---------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Level:
    """Nodes that need the same boundaries to have run: scalars first, then the graph, then the nodes at its
    boundary."""

    scalars: list[Node] = dataclasses.field(default_factory=list)
    nodes: list[Node] = dataclasses.field(default_factory=list)
    boundaries: list[Node] = dataclasses.field(default_factory=list)


def _levels(gm: torch.fx.GraphModule, late: Collection[Node]) -> list[_Level]:
    """Each node in the first level where its operands are known.

    Draws of random numbers keep their order, and what writes memory comes last: until then inputs
    are what they were. ``late``: others that come last.
    """
    calls = [n for n in gm.graph.nodes if n.op in ("call_function", "get_attr")]
    at: dict[Node, int] = {}
    in_graph: set[Node] = set()
    random = 0
    writers = []
    for node in calls:
        level = max((at[n] for n in node.all_input_nodes if n in at), default=0)
        is_boundary = _is_boundary(node)
        is_scalar = not is_boundary and _is_scalar(node)
        if is_scalar and any(n in in_graph and at[n] == level for n in node.all_input_nodes):
            level += 1
        if _is_random(node):
            random = level = max(level, random)
        if _writes(node) or node in late or any(n in writers for n in node.all_input_nodes):
            writers.append(node)
        elif not is_boundary and not is_scalar:
            in_graph.add(node)
        # What a node at a boundary makes is known from the next level on.
        at[node] = level + 1 if is_boundary else level
    last = max(at.values(), default=0)
    levels = [_Level() for _ in range(last + 1)]
    for node in calls:
        if node in writers:
            levels[last].nodes.append(node)
        elif _is_boundary(node):
            levels[at[node] - 1].boundaries.append(node)
        elif _is_scalar(node):
            levels[at[node]].scalars.append(node)
        else:
            levels[at[node]].nodes.append(node)
    return levels


def _is_random(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _written(node: Node) -> Iterator[Node]:
    """The operands that a call of an op with a schema writes to."""
    parameters = node.target._schema.arguments
    given = {p.name: a for p, a in zip(parameters, node.args)} | node.kwargs
    for p in parameters:
        value = given.get(p.name)
        if p.alias_info is not None and p.alias_info.is_write:
            yield from (v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, Node))


# --- Parts ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Part:
    """A graph between boundaries: reads ``inputs`` (nodes of the whole graph), makes ``outputs``;
    ``nodes``: its own, of the whole graph."""

    module: torch.fx.GraphModule
    inputs: list[Node]
    outputs: list[Node]
    nodes: set[Node]
    run: Callable[..., Any] | None = None

    def alone_reads(self, node: Node) -> bool:
        """Of the parts."""
        return all(user in self.nodes or user.op == "output" for user in node.users)

    def step(self, values: dict[Node, Any]) -> None:
        made = self.run([values[n] for n in self.inputs])
        values.update(zip(self.outputs, made))


def takes_apart(node: Node) -> bool:
    """Takes one of several results of another node."""
    return node.target is operator.getitem and isinstance(node.args[0], Node)


def make_part(gm: torch.fx.GraphModule, nodes: list[Node]) -> _Part:
    """Nodes of a graph as a graph of their own: what it reads, and what the rest reads of it."""
    part = _make_part(gm, nodes, host_sizes.add_nodes(gm))
    assert part is not None, "a part without nodes"
    return part


@dataclasses.dataclass
class _Eager:
    node: Node

    @property
    def inputs(self) -> list[Node]:
        return self.node.all_input_nodes

    def step(self, values: dict[Node, Any]) -> None:
        if self.node.op == "get_attr":
            values[self.node] = operator.attrgetter(self.node.target)(self.node.graph.owning_module)
            return

        def value(argument: Any) -> Any:
            return torch.fx.node.map_arg(argument, lambda n: values[n])

        with torch.no_grad(), torch._C._DisableAutocast():
            made = self.node.target(*value(self.node.args), **value(self.node.kwargs))
        values[self.node] = made


def _make_part(
    gm: torch.fx.GraphModule,
    nodes: list[Node],
    computed: dict[Any, Node],
    restrided: Collection[Node] = (),
) -> _Part | None:
    """``computed``: nodes of expressions that Python computes. ``restrided``: as in ``_callers``."""
    if not nodes:
        return None
    elsewhere = (_views_of_written(gm, nodes) | _views_of_arguments(nodes, restrided)).difference(nodes)
    views = [n for n in gm.graph.nodes if n in elsewhere]
    own = {*nodes, *views}
    inputs = [i for n in [*views, *nodes] for i in n.all_input_nodes if i not in own]
    inputs = list(dict.fromkeys(inputs))
    # Arguments for all symbols of the sizes, which the compiler reads from integer arguments.
    known = _symbols_of(inputs, True)
    for symbol in _symbols_of(inputs + nodes, False).keys() - known.keys():
        source = next((n for n in gm.graph.nodes if symbol in _symbols_of([n], True)), None)
        if source is not None:
            inputs.insert(0, source)
    mentioned = [e for e in computed if _mentions(inputs + nodes, e)]
    inputs = list(dict.fromkeys([*(computed[e] for e in mentioned), *inputs]))
    graph = torch.fx.Graph()
    made: dict[Node, Node] = {}
    for node in inputs:
        made[node] = graph.placeholder(node.name)
        made[node].meta = dict(node.meta)
    for node in [*views, *nodes]:
        made[node] = graph.node_copy(node, lambda n: made[n])
    outputs = [n for n in nodes if any(user not in nodes for user in n.users)]
    output = graph.output(tuple(made[n] for n in outputs))
    output.meta = {}
    return _Part(torch.fx.GraphModule(gm, graph), inputs, outputs, set(nodes))


def _views_of_arguments(nodes: list[Node], restrided: Collection[Node]) -> set[Node]:
    """Views of arguments that results of which AOTAutograd reads the offset are views of. Those that
    other parts make are made in this part, too: what parts hand on begins anew."""
    chains = [views_of(n) for n in nodes if n in restrided]
    return {view for chain in chains if chain[-1].op == "placeholder" for view in chain[:-1]}


def _move_to_writes(gm: torch.fx.GraphModule, restrided: set[Node]) -> set[Node]:
    """Such results that are views of what an argument gets as its new value are made anew, in the set, too:
    AOTAutograd reads where they lie in the argument, which the part that writes to it knows. Returns the
    nodes that make them."""
    writes = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    values = {views_of(w.args[1])[-1] for w in writes if isinstance(w.args[1], Node)}
    output = gm.graph.output_node()
    late: set[Node] = set()
    for result in [n for n in gm.graph.nodes if n in restrided and views_of(n)[-1] in values]:
        *views, root = views_of(result)
        copies = {root: root}
        with gm.graph.inserting_before(output):
            for view in reversed(views):
                copies[view] = gm.graph.node_copy(view, lambda n: copies.get(n, n))
        output.replace_input_with(result, copies[result])
        restrided.remove(result)
        restrided.add(copies[result])
        late.update(copies[v] for v in views)
    return late


def _views_of_written(gm: torch.fx.GraphModule, nodes: list[Node]) -> set[Node]:
    """Views that other parts make of what these nodes write, and these nodes read: made in this part, too,
    so that the compiler sees what they share memory with."""
    written = {storage_of(a) for n in nodes if _writes(n) for a in _written(n)} - {None}
    if not written:
        return set()
    views, left = set(nodes), list(nodes)
    while left:
        for node in left.pop().all_input_nodes:
            shares = any(t.untyped_storage()._cdata in written for t in tensors_of(node.meta.get("val")))
            if node.op == "call_function" and node not in views and shares:
                views.add(node)
                left.append(node)
    return views


def _symbols_of(nodes: list[Node], whole: bool) -> dict[Any, Node]:
    """Symbols that appear in the nodes' sizes; with ``whole`` only numbers that are one."""
    found: dict[Any, Node] = {}

    def add(value: Any, node: Node) -> None:
        if not isinstance(value, (torch.SymInt, torch.SymBool)):
            return
        expression = value.node.expr
        if whole:
            if expression.is_Symbol:
                found.setdefault(expression, node)
            return
        for symbol in sorted(expression.free_symbols, key=str):
            found.setdefault(symbol, node)

    for node in nodes:
        value = node.meta.get("val")
        add(value, node)
        for tensor in tensors_of(value) if not whole else ():
            for size in (*tensor.shape, *tensor.stride()):
                add(size, node)
    return found


def _mentions(nodes: list[Node], expression: Any) -> bool:
    """Whether it appears in the nodes' sizes."""
    return any(
        isinstance(size, (torch.SymInt, torch.SymBool)) and size.node.expr.has(expression)
        for node in nodes
        for size in host_sizes.numbers_of(node)
    )


# --- The call -------------------------------------------------------------------------------------


def _driver(
    placeholders: list[Node], steps: list[_Eager | _Part], output: Node
) -> Callable[..., Any]:
    returned = list(output.args[0])
    kept = {n for n in returned if isinstance(n, Node)}
    last: dict[Node, int] = {}
    for number, step in enumerate(steps):
        last.update((node, number) for node in step.inputs)
    done: list[list[Node]] = [[] for _ in steps]
    for node, number in last.items():
        if node not in kept:
            done[number].append(node)

    def run(arguments: list[Any]) -> list[Any]:
        values = dict(zip(placeholders, arguments))
        arguments.clear()
        for step, free in zip(steps, done):
            step.step(values)
            for node in free:
                values.pop(node, None)
        return [values[n] if isinstance(n, Node) else n for n in returned]

    run._boxed_call = True
    return run
