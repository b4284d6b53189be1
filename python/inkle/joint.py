"""Our own partition: the joint forward-backward graph imported once, partitioned and compiled as a pair.

AOTAutograd gives the joint graph to its ``partition_fn``. The compiler rewrites it, partitions
it and compiles the forward and the backward graph; AOTAutograd gets back two graphs of one call each, with
the signatures that it expects of a forward and a backward.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, Sequence

import torch
from torch._functorch import partitioners
from torch._guards import detect_fake_mode
from torch.fx.node import Node
from torch.utils._pytree import arg_tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

from inkle import layouts, segments
from inkle.eager_graph import NAMED_DTYPES, size_of
from inkle.importer import GraphImporter, node_name
from inkle.sizes import UnsupportedGraph

TrainingGraphs = tuple[torch.fx.GraphModule, torch.fx.GraphModule]

# What the compiler calls a node of a checkpointed region (graph::Keep).
_FREE, _SAVED, _RECOMPUTED = 0, 1, 2
_NO_LIMIT = 1 << 60


@dataclasses.dataclass
class Joint:
    """A joint graph and what AOTAutograd says of it."""

    gm: torch.fx.GraphModule
    num_forward_outputs: int
    placeholders: list[Node]
    tangents: list[bool]
    # By placeholder: the runtime writes to it after the forward; it is the same at every step.
    written: list[bool]
    fixed: list[bool]
    keep: dict[Node, int]
    # What the default partition saves, and by placeholder and by output of the forward whether it
    # saves its memory.
    default_bytes: int
    saved_inputs: list[bool]
    saved_outputs: list[bool]  # empty: checkpointing decides
    # By placeholder: the output of the forward that it is the tangent of, or -1.
    tangent_outputs: list[int]

    @property
    def outputs(self) -> list[Any]:
        return arg_tree_leaves(*self.gm.graph.output_node().args)

    @property
    def mode(self) -> Any:
        """Of the fake tensors."""
        values = (n.meta.get("val") for n in self.placeholders)
        return detect_fake_mode([v for v in values if isinstance(v, torch.Tensor)])

    @property
    def symbols(self) -> dict[str, torch.SymInt]:
        """Sizes that are arguments, by name."""
        values = (n.meta.get("val") for n in self.placeholders)
        return {
            v.node.expr.name: v
            for v in values
            if isinstance(v, torch.SymInt) and v.node.expr.is_Symbol
        }


def examine(
    gm: torch.fx.GraphModule, num_forward_outputs: int, static: Sequence[int] | None
) -> Joint:
    """Raises UnsupportedGraph for what is left to the default partition."""
    _refuse(gm)
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    tangents = [partitioners._is_tangent(n) for n in placeholders]
    for node, is_tangent in zip(placeholders, tangents):
        if not is_tangent and not partitioners._is_primal(node):
            raise UnsupportedGraph(f"argument {node.name} is no input and no gradient")
    fixed = [i in set(static or ()) and not t for i, t in enumerate(tangents)]
    has_tags = partitioners.has_recomputable_ops(gm)
    keep = _tags(gm) if has_tags else {}
    saved = DefaultSaved() if has_tags else default_saved(gm, num_forward_outputs)
    outputs = arg_tree_leaves(*gm.graph.output_node().args)[:num_forward_outputs]
    return Joint(
        gm, num_forward_outputs, placeholders, tangents, _written(gm, placeholders), fixed,
        keep, saved.bytes,
        [n in saved.storages for n in placeholders],
        [] if has_tags else [isinstance(o, Node) and _storage(o) in saved.storages for o in outputs],
        _tangent_outputs(gm, placeholders, outputs),
    )  # fmt: skip


def _refuse(gm: torch.fx.GraphModule) -> None:
    if torch._dynamo.config.compiled_autograd:
        raise UnsupportedGraph("compiled autograd reads the nodes of the backward")
    if segments.must_split(gm):
        raise UnsupportedGraph("it has numbers, effects or tensors of other kinds")
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(getattr(gm, node.target, None), torch.nn.Module):
            raise UnsupportedGraph("there are graphs inside of the graph")
        tag = node.meta.get("partitioner_tag")
        if tag == "must_be_in_backward" or (tag == "must_be_in_forward" and not _writes(node)):
            raise UnsupportedGraph(f"{node.name} must be in the forward or the backward graph")
        if tag == "is_backward" and _writes(node):
            raise UnsupportedGraph(f"{node.name} writes to memory in the backward")
        if node.meta.get("saved_tensor_with_no_vc_check"):
            raise UnsupportedGraph(f"{node.name} is saved without a check of its version")


def _writes(node: Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _tags(gm: torch.fx.GraphModule) -> dict[Node, int]:
    """What checkpointing says about nodes."""
    partitioners.cleanup_recompute_tags(gm, is_default_partition=True)
    keep = {}
    for node in gm.graph.nodes:
        policy = node.meta.get("recompute")
        if policy == CheckpointPolicy.MUST_SAVE:
            keep[node] = _SAVED
        elif policy in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE):
            keep[node] = _RECOMPUTED
    return keep


def _written(gm: torch.fx.GraphModule, placeholders: list[Node]) -> list[bool]:
    """Which inputs AOTAutograd's own wrapper writes to once the forward has run."""
    described = gm.graph.output_node().meta.get("desc")
    if described is None or any(n.meta.get("desc") is None for n in placeholders):
        raise UnsupportedGraph("nothing tells which inputs are written to")
    written = [getattr(d, "mutated_input", None) for d in arg_tree_leaves(described)]
    return [n.meta["desc"] in written for n in placeholders]


def _tangent_outputs(gm: torch.fx.GraphModule, placeholders: list[Node], outputs: list[Any]) -> list[int]:
    described = arg_tree_leaves(gm.graph.output_node().meta["desc"])[: len(outputs)]
    places = {d: i for i, d in enumerate(described) if isinstance(outputs[i], Node)}
    return [places.get(getattr(n.meta["desc"], "output", None), -1) for n in placeholders]


# --- What the default partition saves -------------------------------------------------------------


@dataclasses.dataclass
class DefaultSaved:
    """What AOTAutograd's default partition keeps for the backward: the nodes that made the storages,
    and bytes of those that neither an argument nor an output of the forward has."""

    storages: set[Node] = dataclasses.field(default_factory=set)
    bytes: int = _NO_LIMIT


def default_saved(gm: torch.fx.GraphModule, num_forward_outputs: int) -> DefaultSaved:
    outputs = arg_tree_leaves(*gm.graph.output_node().args)
    alive = {_storage(o) for o in outputs[:num_forward_outputs] if isinstance(o, Node)}
    storages = _saved_storages(gm, num_forward_outputs)
    kept = [n for n in storages - alive if n.op == "call_function"]
    return DefaultSaved(storages, sum(_bytes(n) for n in kept))


def _saved_storages(gm: torch.fx.GraphModule, num_forward_outputs: int) -> set[Node]:
    nodes = list(gm.graph.nodes)
    outputs = arg_tree_leaves(*gm.graph.output_node().args)
    last = max(i for i, n in enumerate(nodes) if _is_forward(n))
    forward = {n for n in nodes[: last + 1] if not partitioners._is_tangent(n)}
    live = {o for o in outputs[num_forward_outputs:] if isinstance(o, Node)}
    saved = {n for n in live if n in forward}
    for node in reversed(nodes[last + 1 :]):
        if node in live:
            live.update(node.all_input_nodes)
            saved.update(n for n in node.all_input_nodes if n in forward)
    return {_storage(n) for n in saved}


def _is_forward(node: Node) -> bool:
    return node.meta.get("partitioner_tag") == "is_forward" or (
        node.op == "placeholder" and not partitioners._is_tangent(node)
    )


def _storage(node: Node) -> Node:
    """The node that made the storage of a value."""
    while node.op == "call_function" and node.target is not operator.getitem:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not node.all_input_nodes:
            return node
        aliases = [r.alias_info for r in schema.returns if r.alias_info is not None]
        is_view = node.target is torch.ops.aten._unsafe_view.default
        if not is_view and all(a.is_write for a in aliases):
            return node
        node = node.all_input_nodes[0]
    return node


def _bytes(node: Node) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return 0
    total = value.element_size()
    for size in value.shape:
        hint = size if isinstance(size, int) else size.node.hint
        total *= 0 if hint is None else int(hint)
    return total


# --- Kept values ----------------------------------------------------------------------------------


class Kept:
    """What the forward keeps: for each value its placeholder, or a fake tensor and its name."""

    def __init__(self, joint: Joint, walker: GraphImporter, partition: Any):
        self._joint = joint
        self._nodes = {n.name: n for n in joint.gm.graph.nodes}
        self._images = layouts.images(joint.gm)
        self._mode, self._symbols = joint.mode, joint.symbols
        self._choose_strides(walker, partition)
        self.entries = [self._entry(i, *described) for i, described in enumerate(partition.kept)]
        self.symbols = [joint.placeholders[i] for i in partition.symbols]

    def _value(self, source: str, result: int) -> tuple[Node | None, Any]:
        """The FX node that computes a value, as far as its name tells, and its fake tensor."""
        node = self._nodes.get(node_name(source))
        value = node.meta.get("val") if node is not None else None
        if isinstance(value, (list, tuple)):
            getters = [u for u in node.users if u.target is operator.getitem and u.args[1] == result]
            node, value = (getters[0], value[result]) if getters else (None, None)
        return node, value if isinstance(value, torch.Tensor) else None

    def _choose_strides(self, walker: GraphImporter, partition: Any) -> None:
        """Those of eager, images with their channels last (f32 and f64 on a GPU stay as in eager);
        row-major for what eager does not have."""
        for i, (input_, (_, sizes, strides, _), source, result) in enumerate(partition.kept):
            if input_ is not None or strides is not None:
                continue
            node, value = self._value(source, result)
            if value is None or not self._has_sizes(value, sizes):
                continue
            moves = value.device.type == "cpu" or value.dtype in (torch.float16, torch.bfloat16)
            chosen = layouts.channels_last(value) if moves and node in self._images else None
            if chosen is None and layouts.is_dense(value):
                chosen = value.stride()
            if chosen is not None:
                partition.set_strides(i, [walker.integer(s) for s in chosen])
        partition.settle_strides()

    def _has_sizes(self, value: torch.Tensor, sizes: list[Any]) -> bool:
        wanted = [self._size(s) for s in sizes]
        return len(wanted) == value.dim() and all(
            a.node.expr == b.node.expr if isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt)
            else isinstance(a, int) and isinstance(b, int) and a == b
            for a, b in zip(wanted, value.shape)
        )  # fmt: skip

    def _size(self, size: Any) -> Any:
        """An expression of the compiler over the symbols of torch."""
        return size_of(size, self._symbols)

    def _entry(
        self, number: int, input_: int | None, type_: tuple[Any, ...], source: str, result: int
    ) -> tuple[Node | None, str, Any]:
        if input_ is not None:
            node = self._joint.placeholders[input_]
            return node, node.name, node.meta["val"]
        dtype, sizes, strides, (kind, index) = type_
        with self._mode:
            value = torch.empty_strided(
                [self._size(s) for s in sizes], [self._size(s) for s in strides],
                dtype=NAMED_DTYPES[dtype], device=kind if kind == "cpu" else f"{kind}:{index}",
            )  # fmt: skip
        return None, f"kept_{number}", value


# --- Stubs ----------------------------------------------------------------------------------------


def compiled_graph(gm: torch.fx.GraphModule) -> Any:
    """The compiled program that a stub calls; None for other graphs."""
    compiled = getattr(gm, _COMPILED, None)
    return compiled.program if isinstance(compiled, _CompiledGraph) else None


# The module of a stub, by name.
_COMPILED = "inkle_graph"


class _CompiledGraph(torch.nn.Module):
    """Calls a compiled program, which caches keep by itself: what is pickled has none."""

    def __init__(self, program: Any = None):
        super().__init__()
        self.program = program

    def forward(self, *arguments: Any) -> Any:
        if self.program is None:
            raise NotImplementedError(
                "a backward that comes from AOTAutograd's cache cannot be traced again: set "
                'options={"cache": False}'
            )
        return self.program(list(arguments))

    def __deepcopy__(self, memo: Any) -> _CompiledGraph:
        return self  # copies of a graph call the same program

    def __reduce__(self) -> tuple[Any, ...]:
        return _CompiledGraph, ()


def stubs(joint: Joint, kept: Kept, forward: Any, backward: Any) -> TrainingGraphs:
    outputs = joint.outputs
    count = joint.num_forward_outputs
    descriptions = arg_tree_leaves(
        joint.gm.graph.output_node().meta.get("desc", [None] * len(outputs))
    )
    primals = [n for n, t in zip(joint.placeholders, joint.tangents) if not t]
    tangents = [n for n, t in zip(joint.placeholders, joint.tangents) if t]
    saved = [(None, e) for e in kept.entries] + [(n, None) for n in kept.symbols]

    first = _Stub(_CompiledGraph(forward))
    first.inputs([(n.name, n.meta, n) for n in primals])
    results = [first.result(i, o) for i, o in enumerate(outputs[:count])]
    for i, (symbol, entry) in enumerate(saved):
        node = symbol if entry is None else entry[0]
        meta = {} if entry is None else {"val": entry[2]}
        results.append(first.result(count + i, node, meta))
    described = descriptions[:count] + [_saved_description(i) for i in range(len(saved))]
    forward_gm = first.finish(results, described)

    second = _Stub(_CompiledGraph(backward))
    second.inputs(
        [(n.name, n.meta, n) for n in kept.symbols]
        + [(name, node.meta if node is not None else {"val": value}, node)
           for node, name, value in kept.entries]
        + [(n.name, n.meta, n) for n in tangents]
    )  # fmt: skip
    results = [second.result(i, o) for i, o in enumerate(outputs[count:])]
    return forward_gm, second.finish(results, descriptions[count:])


def _saved_description(position: int) -> Any:
    from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput

    return SavedForBackwardsAOTOutput(position)


class _Stub:
    """A graph of one call."""

    def __init__(self, compiled: _CompiledGraph):
        self._compiled = compiled
        self._graph = torch.fx.Graph()
        self._known: dict[Node, Node] = {}
        self._node: Node | None = None

    def inputs(self, placeholders: list[tuple[str, dict[str, Any], Node | None]]) -> None:
        """(name, meta, node of the joint graph)."""
        made = []
        for name, meta, node in placeholders:
            one = self._graph.placeholder(name)
            one.meta = meta
            made.append(one)
            if node is not None:
                self._known[node] = one
        self._node = self._graph.call_module(_COMPILED, tuple(made))
        self._node.meta = {"val": None}

    def result(self, position: int, node: Any, meta: dict[str, Any] | None = None) -> Any:
        """Result ``position`` of the call: what the joint graph calls ``node``."""
        if not isinstance(node, Node) and meta is None:
            return node
        if node in self._known:
            return self._known[node]
        made = self._graph.call_function(operator.getitem, (self._node, position))
        made.meta = dict(node.meta) if isinstance(node, Node) else dict(meta or {})
        return made

    def finish(self, results: list[Any], descriptions: list[Any]) -> torch.fx.GraphModule:
        output = self._graph.output(tuple(results))
        output.meta["desc"] = descriptions
        output.meta["output_stack_traces"] = [None] * len(results)
        self._graph.lint()
        return torch.fx.GraphModule({_COMPILED: self._compiled}, self._graph)
