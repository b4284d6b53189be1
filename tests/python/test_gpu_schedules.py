"""Kernels of a GPU that were once left to eager: with a null device, and with a GPU where there is one."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import inkle
from checks import left_to_eager

aten = torch.ops.aten


def pooled_columns(dy, x, weight, mean, scale, wide, *others):
    """A gradient of pooling, which reads a batch norm's gradient at other places of its columns."""
    dx, dw, db = aten.native_batch_norm_backward(
        dy, x, weight, None, None, mean, scale, True, 1e-5, [True, True, True]
    )
    total = others[0][:, :128]
    for other in others[1:]:
        total = total + other[:, :128]
    total = total + dx
    return dw, db, aten.avg_pool2d_backward(
        total, wide, [2, 2], [2, 2], [0, 0], False, True, None
    )


def arguments(device):
    def made(channels, side):
        x = torch.randn(2, channels, side, side, device=device, dtype=torch.bfloat16)
        return x.to(memory_format=torch.channels_last)

    row = torch.rand(128, device=device) + 0.5
    others = [made(128 + 32 * n, 8) for n in range(12)]
    return [made(128, 8), made(128, 8), row, row - 1, row * 2, made(128, 16), *others]


def test_pooling_beside_sums_of_columns():
    with FakeTensorMode():
        xs = arguments("cuda:0")
    gm = make_fx(pooled_columns, tracing_mode="fake")(*xs)
    assert left_to_eager(gm, training=True) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_pooling_beside_sums_of_columns_on_a_gpu():
    torch.manual_seed(0)
    xs = arguments("cuda")
    with torch.no_grad():
        found = torch.compile(pooled_columns, backend="inkle", options={"strict": True})(*xs)
        torch.testing.assert_close(found, pooled_columns(*xs), rtol=2e-2, atol=2e-2)
    assert inkle.reports()[-1].eager == []
