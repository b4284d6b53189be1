"""What a CUDA program computes on the CPU from nothing but constants: folded once, when the program
is compiled, as eager does it. Positions, tables and masks that models make without saying
where, and then move, would take ops in eager and a copy to the GPU in every call."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.node import Node, map_arg

# Larger tensors are computed in each call, as in eager: constants stay in memory.
_MOST_BYTES = 16 << 20
_COPY, _PUT = torch.ops.aten._to_copy.default, torch.ops.prims.device_put.default


def host_constants(gm: torch.fx.GraphModule) -> tuple[dict[Node, torch.Tensor], set[Node]]:
    """For nodes of an AOTAutograd graph, contiguous CPU tensors that stand for them; and the
    nodes that are dead then. A node may be on a GPU: its tensor has to be copied there."""
    nodes = list(gm.graph.nodes)
    known: set[Node] = set()
    for node in nodes:
        if _is_constant(gm, node, known):
            known.add(node)
    known |= {n for n in nodes if _is_copy_on_gpu(n, known)}
    roots, needed = [], set()
    for node in reversed(nodes):
        if node not in known:
            continue
        if any(user not in known for user in node.users):
            if node.op == "get_attr" or not _may_be_constant(node.meta["val"], node):
                known.remove(node)
            else:
                roots.append(node)
                needed.add(node)
        if node in needed:
            needed.update(node.all_input_nodes)
    try:
        values = _evaluate(gm, [n for n in nodes if n in needed])
    except Exception:  # noqa: BLE001: in each call eager will say so
        return {}, set()
    return {n: values[n] for n in reversed(roots)}, known.difference(roots)


def _evaluate(gm: torch.fx.GraphModule, nodes: list[Node]) -> dict[Node, torch.Tensor]:
    values: dict[Node, torch.Tensor] = {}
    modes = torch.utils._python_dispatch._disable_current_modes()
    with modes, torch.no_grad(), torch._C._DisableAutocast():
        for node in nodes:
            if node.op == "get_attr":
                values[node] = getattr(gm, node.target)
                continue
            args, kwargs = map_arg((node.args, dict(node.kwargs)), values.__getitem__)
            if node.target is _PUT:
                values[node] = args[0]
                continue
            if node.target is _COPY:
                kwargs = {**kwargs, "device": torch.device("cpu"), "pin_memory": False}
            values[node] = node.target(*args, **kwargs)
    return values


def _is_constant(gm: torch.fx.GraphModule, node: Node, known: set[Node]) -> bool:
    """Whether a node is a CPU tensor that depends on constants alone."""
    if any(_writes(user) for user in node.users):
        return False
    if node.op == "get_attr":
        return _is_small(getattr(gm, node.target, None), "cpu")
    target = node.target
    return (
        node.op == "call_function"
        and isinstance(target, torch._ops.OpOverload)
        and target.namespace in ("aten", "prims")
        and not _writes(node)
        and torch.Tag.nondeterministic_seeded not in target.tags
        and _is_small(node.meta.get("val"), "cpu")
        and all(n in known for n in node.all_input_nodes)
    )


def _is_copy_on_gpu(node: Node, known: set[Node]) -> bool:
    return (
        node.target in (_COPY, _PUT)
        and all(n in known for n in node.all_input_nodes)
        and _is_small(node.meta.get("val"), "cuda")
        and not any(_writes(user) for user in node.users)
    )


def _may_be_constant(value: torch.Tensor, node: Node) -> bool:
    return value.is_contiguous() and (value.is_cuda or not may_be_returned(node))


def may_be_returned(node: Node) -> bool:
    """Whether the program may return the memory of a node, which the caller may write to."""
    return any(
        user.op == "output" or (_is_view(user.target) and may_be_returned(user))
        for user in node.users
    )


def _is_view(target: Any) -> bool:
    is_op = isinstance(target, torch._ops.OpOverload)
    return is_op and any(r.alias_info is not None for r in target._schema.returns)


def _writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _is_small(value: Any, device: str) -> bool:
    """Whether it is a plain tensor of known, not too large sizes on that kind of device."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type == device
        and all(type(n) is int for n in (*value.shape, *value.stride()))
        and value.numel() * value.element_size() <= _MOST_BYTES
        and not value.is_conj()
        and not value.is_neg()
    )
