"""What compiled programs leave to torch's own libraries on a GPU: convolutions and attention."""

from __future__ import annotations

from typing import Sequence

import torch

from inkle import attention_backends


def convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    relu: bool,
    dtype: torch.dtype,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """relu(convolution(x, w) + bias + residual), what is None or False left out."""
    with torch.no_grad(), torch._C._DisableAutocast():
        if relu and residual is not None:
            return torch.ops.aten.cudnn_convolution_add_relu.default(
                x, w, residual, 1.0, bias, stride, padding, dilation, groups
            )
        if relu:
            return torch.ops.aten.cudnn_convolution_relu.default(
                x, w, bias, stride, padding, dilation, groups
            )
        y = torch.ops.aten.convolution.default(
            x, w, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        if residual is not None:
            y = y + residual
        return y if y.dtype == dtype else y.to(dtype)


def convolution_weights(
    x: torch.Tensor,
    gradient: torch.Tensor,
    sizes: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The gradient of the weights, which have ``sizes``, where ``gradient`` is that of the result."""
    with torch.no_grad(), torch._C._DisableAutocast():
        # Of the weights only geometry is read.
        weights = gradient.new_empty(sizes)
        return torch.ops.aten.convolution_backward.default(
            gradient, x, weights, None, stride, padding, dilation, False, [0] * len(stride), groups,
            [False, True, False],
        )[1]  # fmt: skip


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    scale: float,
    strides: tuple[int, ...],
) -> torch.Tensor:
    """softmax(scale * q k^T + mask) v over [batch, head, row, feature]; best with ``strides``."""
    if mask is not None:
        # Torch makes an additive mask of a boolean one: not once for each batch and head.
        for d in (0, 1):
            if mask.stride(d) == 0:
                mask = mask.narrow(d, 0, 1)
    with torch.no_grad(), torch._C._DisableAutocast():
        return attention_backends.attend(q, k, v, mask, is_causal, scale, strides)
