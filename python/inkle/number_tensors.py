"""Numbers that a graph gives to an op as its tensor, as transforms of functions do."""

from __future__ import annotations

import torch

_aten = torch.ops.aten


def make(gm: torch.fx.GraphModule) -> None:
    """In an AOTAutograd graph, in place: ``_to_copy`` of a number is a tensor full of it."""
    for node in list(gm.graph.find_nodes(op="call_function", target=_aten._to_copy.default)):
        if not isinstance(node.args[0], (bool, int, float)):
            continue
        made = node.meta["val"]
        node.target = _aten.full.default
        node.args = ([], node.args[0])
        node.kwargs = {"dtype": made.dtype, "device": made.device}
