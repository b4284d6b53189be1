"""With torch.use_deterministic_algorithms memory that nothing writes holds what eager puts there."""

from __future__ import annotations

import torch

_aten = torch.ops.aten
_UNFILLED = {
    _aten.empty.memory_format, _aten.empty_like.default, _aten.empty_permuted.default,
    _aten.empty_strided.default, _aten.new_empty.default, _aten.new_empty_strided.default,
}  # fmt: skip


def fill(gm: torch.fx.GraphModule) -> None:
    """In an AOTAutograd graph, in place: NaN, or the largest number of a dtype without it."""
    is_asked = torch.are_deterministic_algorithms_enabled()
    if not (is_asked and torch.utils.deterministic.fill_uninitialized_memory):
        return
    for node in list(gm.graph.nodes):
        if node.target not in _UNFILLED:
            continue
        with gm.graph.inserting_after(node):
            filled = gm.graph.call_function(_aten.fill.Scalar)
        node.replace_all_uses_with(filled)
        filled.args = (node, _largest(node.meta["val"].dtype))
        filled.meta = dict(node.meta)


def _largest(dtype: torch.dtype) -> bool | int | float:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype is torch.bool else torch.iinfo(dtype).max
