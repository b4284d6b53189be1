"""Where a joint graph is cut into forward and backward: what is saved and what is computed again.

torch's minimum cut is taken where it saves fewer bytes than AOTAutograd's default partition of the same
graph; only what its list of cheap ops allows is computed twice.
"""

from __future__ import annotations

import copy
import logging
import math
import operator
from typing import Any

import torch
from torch._functorch import partitioners
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import Node

_log = logging.getLogger("inkle")
_failed: set[str] = set()

# A result of these shares the storage of its input, though their schema does not say so.
_VIEWS = (torch.ops.aten._unsafe_view.default,)

Halves = tuple[torch.fx.GraphModule, torch.fx.GraphModule]


def smallest(
    joint: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **named: Any
) -> Halves:
    """The ``partition_fn`` of AOTAutograd: (forward, backward)."""
    source = _copy(joint)
    kept = partitioners.default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **named)
    if not _may_cut(source) or not _worth_cutting(kept, num_fwd_outputs):
        return kept
    _keep_random(source.graph)
    _remove_detach(source.graph)
    try:
        cut = partitioners.min_cut_rematerialization_partition(
            source, inputs, num_fwd_outputs=num_fwd_outputs, **named
        )
    except Exception as error:  # noqa: BLE001: the other partition is right, only larger
        _report(error)
        return kept
    if _reads_written(cut, kept, num_fwd_outputs):
        return kept
    better = saved_bytes(cut[0], num_fwd_outputs) < saved_bytes(kept[0], num_fwd_outputs)
    return cut if better else kept


def saved_bytes(forward: torch.fx.GraphModule, num_fwd_outputs: int) -> int:
    """Bytes of the storages that a forward graph keeps for its backward alone.

    Inputs and outputs live anyway; of a symbolic size the example counts.
    """
    outputs = forward.graph.output_node().args[0]
    alive = {_storage(o) for o in outputs[:num_fwd_outputs] if isinstance(o, Node)}
    saved = {_storage(o) for o in outputs[num_fwd_outputs:] if isinstance(o, Node)} - alive
    return sum(_bytes(node) for node in saved if node.op != "placeholder")


# Of the saved bytes, so much must be open to another cut before the minimum is looked for: it takes
# 0.1 to 0.7 s and found less than one per cent in graphs without arithmetic (BERT, ViT, ResNet).
_WORTH = 0.01


def _worth_cutting(kept: Halves, num_fwd_outputs: int) -> bool:
    """Whether values that are cheap to compute again are many among those that are saved.

    A value that a call of the backward reads, or a view of it, has to be in memory: it is no such.
    """
    ops = partitioners.get_default_op_list()
    readers = {n.name: n for n in kept[1].graph.nodes if n.op == "placeholder"}
    open_bytes = 0
    for node in kept[0].graph.output_node().args[0][num_fwd_outputs:]:
        if not isinstance(node, Node) or (made := _storage(node)).op != "call_function":
            continue
        is_cheap = ops.is_recomputable(made) and made.target is not operator.getitem
        if is_cheap and node.name in readers:
            if not _is_materialized(readers[node.name], ops):
                open_bytes += _bytes(made)
    return open_bytes > _WORTH * saved_bytes(kept[0], num_fwd_outputs)


def _is_materialized(node: Node, ops: partitioners.OpTypes) -> bool:
    for user in node.users:
        if user.op == "output":
            return True
        is_same = ops.is_view(user) or user.target is torch.ops.aten.detach.default
        if _is_materialized(user, ops) if is_same else not ops.is_fusible(user):
            return True
    return False


def _copy(joint: torch.fx.GraphModule) -> torch.fx.GraphModule:
    return torch.fx.GraphModule(joint, copy.deepcopy(joint.graph))


def _may_cut(joint: torch.fx.GraphModule) -> bool:
    """Not graphs with graphs inside, with random ops that checkpointing repeats, or with sizes that
    depend on data: their partitions have effects of their own."""
    for node in joint.graph.nodes:
        if node.op == "get_attr" and isinstance(getattr(joint, node.target, None), torch.nn.Module):
            return False
        if "recompute" in node.meta and _is_random(node):
            return False
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and free_unbacked_symbols(value):
            return False
    return True


def _is_random(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _keep_random(graph: torch.fx.Graph) -> None:
    """Random numbers are saved, never drawn again."""
    for node in graph.nodes:
        if _is_random(node):
            node.meta["recompute"] = torch.utils.checkpoint.CheckpointPolicy.MUST_SAVE


def _remove_detach(graph: torch.fx.Graph) -> None:
    """Autograd's rules detach the results that they save; torch's cut takes the op for a barrier."""
    output = graph.output_node()
    for node in list(graph.nodes):
        is_free = "recompute" not in node.meta and output not in node.users
        if node.target is torch.ops.aten.detach.default and is_free:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _reads_written(cut: Halves, kept: Halves, num_fwd_outputs: int) -> bool:
    """Whether the backward would compute from an input that the forward has written by then."""
    forward = cut[0].graph
    written = set()
    for node in forward.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            written.update(n.name for n in node.all_input_nodes if n.op == "placeholder")
    if not written:
        return False
    saved = [{o.name for o in half.graph.output_node().args[0][num_fwd_outputs:] if o is not None}
             for half in (cut[0], kept[0])]  # fmt: skip
    return bool(written & (saved[0] - saved[1]))


def _storage(node: Node) -> Node:
    """The node that made the storage of a value."""
    while node.op == "call_function" and node.target is not operator.getitem:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not node.all_input_nodes:
            return node
        aliases = [r.alias_info for r in schema.returns if r.alias_info is not None]
        if node.target not in _VIEWS and all(a.is_write for a in aliases):
            return node
        node = node.all_input_nodes[0]
    return node


def _bytes(node: Node) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return 0
    sizes = [s if isinstance(s, int) else _hint(s) for s in value.shape]
    return math.prod(sizes) * value.element_size()


def _hint(size: torch.SymInt) -> int:
    hint = size.node.hint
    return 0 if hint is None else int(hint)


def _report(error: Exception) -> None:
    lines = str(error).splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0][:160]}"
    if text not in _failed:
        _failed.add(text)
        _log.warning("inkle: a joint graph has the default partition: %s", text)
