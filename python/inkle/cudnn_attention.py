"""The gradient of cuDNN's attention by torch's op, whatever other calls of the process have left behind.

Torch 2.11 keeps a graph of cuDNN for each thread by the sizes and strides of query, key, value and bias,
not by those of the gradient: it reads every later gradient with the strides of the first. So one layout
is given to all calls here, that of heads which were joined: (batch, row, head, feature). Eager's own
gradients lie so, too, but where a program's do not, its graph would be taken by a call of ours. The first
call of a kind therefore asks for a gradient whose parts are known to be 0. Where they are not, the values
are copied to rows of another length, for which torch has graphs of ours alone.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor

_log = logging.getLogger("inkle")
# Rows of copied values are longer by this: cuDNN reads 16 bytes at once.
_PADDING = 8
_thread = threading.local()

Tensor = torch.Tensor


def backward(grad: Tensor, *arguments: Any, **keywords: Any) -> tuple[Tensor, ...]:
    """``aten::_scaled_dot_product_cudnn_attention_backward``; same arguments and results."""
    if isinstance(grad, FakeTensor):
        return _run(grad, 0, *arguments, **keywords)
    query, key, value, bias = *arguments[:3], arguments[7]
    grad = joined(grad)
    known = _thread.__dict__.setdefault("paddings", {})
    kind = (grad.device, grad.dtype, *(_geometry(t) for t in (query, key, value, bias)), arguments[12:])
    if kind not in known:
        if grad.numel() == 0 or (grad.is_cuda and torch.cuda.is_current_stream_capturing()):
            return _run(grad, 0, *arguments, **keywords)
        known[kind] = 0 if _reads_as_it_lies(grad, arguments, keywords) else _PADDING
    return _run(grad, known[kind], *arguments, **keywords)


def joined(grad: Tensor) -> Tensor:
    """The gradient (batch, head, row, feature) in memory by batch, row, head and feature."""
    return grad.transpose(1, 2).contiguous().transpose(1, 2)


def _geometry(tensor: Tensor | None) -> tuple[Any, ...] | None:
    return None if tensor is None else (tuple(tensor.shape), tensor.stride())


def _run(grad: Tensor, padding: int, *arguments: Any, **keywords: Any) -> tuple[Tensor, ...]:
    op = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default
    if padding == 0:
        return op(grad, *arguments, **keywords)
    query, key, value, *others = arguments
    wide = value.new_empty(*value.shape[:-1], value.shape[-1] + padding)
    copy = wide[..., : value.shape[-1]].copy_(value)
    of_query, of_key, of_value = op(grad, query, key, copy, *others, **keywords)
    return of_query, of_key, torch.empty_like(value).copy_(of_value)


def _reads_as_it_lies(grad: Tensor, arguments: Sequence[Any], keywords: dict[str, Any]) -> bool:
    """Of a gradient that is 1 in the last row of the first head and 0 elsewhere, those of query and
    value must be 0 for all other rows and heads, and that of value not for this one, unless dropout
    made it so."""
    query, key, value, out, logarithms, seed, offset, bias, *others = arguments
    try:
        query, key, value = (_ones(t) for t in (query, key, value))
        bias = None if bias is None else _ones(bias).zero_()
        # All weights are 1.
        scale = keywords.get("scale")
        score = query.shape[-1] * (query.shape[-1] ** -0.5 if scale is None else scale)
        out, logarithms = torch.zeros_like(out), torch.full_like(logarithms, score)
        probe = torch.zeros_like(grad)
        probe[0, 0, -1] = 1
        of_query, _, of_value = _run(
            probe, 0, query, key, value, out, logarithms, seed, offset, bias, *others, **keywords
        )
        elsewhere = of_query.count_nonzero() - of_query[0, 0, -1].count_nonzero()
        elsewhere += of_value.count_nonzero() - of_value[0, 0].count_nonzero()
        is_seen = of_value[0, 0].any() if others[4] == 0.0 else True
        is_right = bool((elsewhere == 0) & is_seen)
    except torch.OutOfMemoryError:
        _log.info("no memory to see how cuDNN's attention reads gradients of %s", tuple(grad.shape))
        return True
    if not is_right:
        _log.info("cuDNN's attention has read gradients of %s in another order: values are copied",
                  tuple(grad.shape))  # fmt: skip
    return is_right


def _ones(like: Tensor) -> Tensor:
    span = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride()))
    return like.new_ones(span).as_strided(like.shape, like.stride())
