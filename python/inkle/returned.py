"""What a graph returns is to eyes outside of it what eager returns: lazily conjugated or negated
tensors, and views of arguments that share their memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.node import Node


def settled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if its memory does not hold its values (a lazy conjugate or negative)."""
    if tensor.is_neg() or (tensor.is_complex() and tensor.is_conj()):
        return torch.empty_like(tensor).copy_(tensor)
    return tensor


def _unsettled(tensor: torch.Tensor, conjugate: bool, negative: bool) -> torch.Tensor:
    """A tensor of the same value, sizes and strides that is lazy about its value."""
    made = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    lazy = torch._neg_view(made) if negative else made
    lazy = torch._conj(lazy) if conjugate else lazy
    target = lazy
    for d, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[d] > 1:
            target, tensor = target.narrow(d, 0, 1), tensor.narrow(d, 0, 1)
    target.copy_(tensor)
    return lazy


class Returned:
    """The results of one graph. ``walker``: its ``GraphImporter``, at the node ``output``."""

    def __init__(self, walker: Any, output: Node):
        self._walker = walker

    def value(self, node: Node, found: Any) -> Any:
        """What to return for a tensor of the graph, whose value is ``found``."""
        meta = node.meta["val"]
        if meta.is_conj() or meta.is_neg():
            return self._lazy(node, found, meta)
        return found

    def _lazy(self, node: Node, found: Any, meta: torch.Tensor) -> Any:
        conjugate, negative = meta.is_conj(), meta.is_neg()

        def run(x: torch.Tensor) -> list[torch.Tensor]:
            with torch.no_grad():
                return [_unsettled(x, conjugate, negative)]

        name = "lazy conjugate" if conjugate else "lazy negative"
        kind = self._walker.type(meta)
        (made,) = self._walker.import_call(node, f"inkle::{name}", [found], [kind], run)
        return made
