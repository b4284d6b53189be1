"""Which strides the tensors have that a forward graph saves for its backward.

Only the two graphs see them, so images may stay in the layout that convolutions prefer: channels
last. AOTAutograd is told the strides of the forward's results and traces the backward with them.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Sequence

import torch
from torch.fx.node import Node

_CONVOLUTIONS = (torch.ops.aten.convolution.default,)
# Ops that take strides through memory: at which position the offset lies.
_STRIDED = {
    torch.ops.aten.as_strided.default: 3,
    torch.ops.aten.as_strided_copy.default: 3,
    torch.ops.aten.as_strided_scatter.default: 4,
}
_MOST_COUNTED = 2**16  # elements of which it is counted which another tensor shows
_SAME = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)


def saved_strides(gm: torch.fx.GraphModule) -> dict[int, tuple[int, ...]]:
    """Strides of results of a forward graph, by position, where they are not to be eager's."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None) if context else None
    if metadata is None or getattr(context, "output_strides", None) is None:
        return {}
    output = next(n for n in gm.graph.nodes if n.op == "output")
    results = list(output.args[0])
    seen = {_root(n) for n in results[: metadata.num_forward] if isinstance(n, Node)}
    found = images(gm)
    chosen = {}
    for position, node in enumerate(results):
        if position < metadata.num_forward or node not in found or _root(node) in seen:
            continue
        value = node.meta["val"]
        strides = channels_last(value) if value.device.type == "cpu" else None
        if strides is not None:
            chosen[position] = strides
    return chosen


def report(gm: torch.fx.GraphModule, strides: dict[int, tuple[int, ...]]) -> None:
    """Tells AOTAutograd what strides the results have; None where they are eager's."""
    context = torch._guards.TracingContext.try_get()
    told = getattr(context, "output_strides", None) if context else None
    if strides and told is not None:
        output = next(n for n in gm.graph.nodes if n.op == "output")
        told[:] = [strides.get(i) for i in range(len(output.args[0]))]


def argument_strides(
    gm: torch.fx.GraphModule, inputs: Sequence[Any]
) -> dict[int, tuple[int, ...]]:
    """Strides of arguments of a backward graph, by position, where they are not as traced."""
    placeholders = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    chosen = {}
    for position, (traced, given) in enumerate(zip(placeholders, inputs)):
        if not isinstance(traced, torch.Tensor) or not isinstance(given, torch.Tensor):
            continue
        if not _is_static(traced) or not _is_static(given) or traced.dim() != given.dim():
            continue
        if traced.stride() != given.stride():
            chosen[position] = tuple(given.stride())
    return chosen


def as_traced(
    gm: torch.fx.GraphModule, arguments: list[Any], strides: dict[int, tuple[int, ...]]
) -> list[Any]:
    """The arguments with the strides that the graph was traced with, for eager."""
    if not strides:
        return arguments
    placeholders = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    result = list(arguments)
    for i in strides:
        made = torch.empty_strided(
            placeholders[i].shape, placeholders[i].stride(), dtype=result[i].dtype,
            device=result[i].device,
        )  # fmt: skip
        result[i] = made.copy_(result[i])
    return result


def why_elsewhere(node: Node, arguments: Sequence[Any]) -> tuple[str, bool]:
    """Why strides through the memory of the operand cannot be those through the operand, "" if they
    can; and whether eager can take them where the rest of the graph is compiled. No guard says where
    in its memory an argument lies, so an offset from there is known of none; and of a view the
    compiler gives eager only what the view covers.
    """
    if node.target not in _STRIDED:
        return "", True
    operand = node.args[0]
    value, begin = operand.meta["val"], operand.meta["val"].storage_offset()
    if operand.op != "placeholder" and not _is_within(value, arguments, _STRIDED[node.target]):
        return "its strides lead to memory between or beyond the elements of its operand", False
    is_first = isinstance(begin, int) and begin == 0
    if arguments[_STRIDED[node.target]] is None:
        return "" if is_first else "its operand lies inside another", True
    if operand.op == "placeholder":
        return "its offset is one in the memory of an argument", True
    storage = value.untyped_storage()._cdata
    for placeholder in node.graph.find_nodes(op="placeholder"):
        argument = placeholder.meta.get("val")
        is_plain = isinstance(argument, torch.Tensor) and argument.layout == torch.strided
        is_first &= not is_plain or argument.untyped_storage()._cdata != storage
    return "" if is_first else "its offset is one in the memory of what it views", False


def is_strides_by_guard(node: Node) -> bool:
    """Whether only a guard over symbolic sizes tells that strides lead to elements of the operand.
    The compiler has that guard; eager is given no more than the operand's elements."""
    is_view = node.target in _STRIDED and node.target is not torch.ops.aten.as_strided_scatter.default
    if not is_view or node.args[0].op == "placeholder":
        return False
    return len(node.all_input_nodes) > 1 or not _is_static(node.args[0].meta["val"])


def _is_within(value: torch.Tensor, arguments: Sequence[Any], last: int) -> bool:
    """Whether strides through the memory of ``value`` lead to its own elements only. ``last``: where
    the offset is in ``arguments``, behind sizes and strides."""
    sizes, strides, offset = arguments[last - 2 : last + 1]
    first = 0 if offset is None else offset
    if isinstance(offset, int):
        first = offset - value.storage_offset()
    if not _is_static(value) or not all(isinstance(n, int) for n in (*sizes, *strides, first)):
        return is_dense(value)
    if math.prod(sizes) == 0:
        return True
    span = first + sum((n - 1) * s for n, s in zip(sizes, strides))
    if is_dense(value):
        return first >= 0 and span < value.numel()
    if max(math.prod(sizes), value.numel()) > _MOST_COUNTED:
        return False
    return _reached(sizes, strides, first) <= _reached(value.shape, value.stride(), 0)


def _reached(sizes: Sequence[int], strides: Sequence[int], first: int) -> set[int]:
    reached = {first}
    for n, s in zip(sizes, strides):
        reached = {at + i * s for at in reached for i in range(n)}
    return reached


def is_dense(value: torch.Tensor) -> bool:
    """Whether elements fill memory without gaps or repetition, as far as sizes without symbols tell."""
    if not _is_static(value):
        return value.is_contiguous()
    step = 1
    for stride, size in sorted((t, s) for s, t in zip(value.shape, value.stride()) if s != 1):
        if stride != step:
            return False
        step *= size
    return True


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(s, int) for s in (*value.shape, *value.stride()))


def images(gm: torch.fx.GraphModule) -> set[Node]:
    """Results of convolutions and what is computed from them pointwise or by windows."""
    images: set[Node] = set()
    several: set[Node] = set()
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        value = node.meta.get("val")
        sources = [n for n in node.all_input_nodes if n in images or n in several]
        if isinstance(value, (tuple, list)):
            if sources:
                several.add(node)
            continue
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            continue
        is_image = node.target in _CONVOLUTIONS
        for source in () if _is_view(node) and node.target not in _SAME else sources:
            shape = source.meta["val"].shape if source in images else None
            is_image |= shape is None or (len(shape) == value.dim() and shape[0] == value.shape[0])
        if is_image and 3 <= value.dim() <= 5 and _is_static(value):
            images.add(node)
    return images


def _root(node: Node) -> Node:
    while node.target in _SAME:
        node = node.args[0]
    return node


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return False
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def channels_last(value: torch.Tensor) -> tuple[int, ...] | None:
    """Strides of a dense tensor with its channels last; None if it makes no difference."""
    n, channels, *spatial = value.shape
    places = math.prod(spatial)
    if value.numel() == 0 or not value.is_contiguous():
        return None
    if channels == 1 or places == 1:
        return None
    inner, step = [], channels
    for size in reversed(spatial):
        inner.insert(0, step)
        step *= size
    return (step, 1, *inner)
