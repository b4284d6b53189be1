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


def pooled_norms(x, weight, bias):
    """Two batch norms in training with pooling between them: columns in too much shared memory, by
    lanes of eight, so that the kernel runs in a plainer way."""
    first = torch.nn.functional.batch_norm(x, None, None, weight, bias, True)
    pooled = torch.nn.functional.max_pool2d(torch.nn.functional.silu(first), 3, 2, 1)
    return torch.nn.functional.batch_norm(pooled, None, None, weight, bias, True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("channels", [3, 10, 24, 130])
def test_columns_in_a_plainer_way_are_all_there(channels):
    torch.manual_seed(0)
    x = torch.randn(2, channels, 32, 32, device="cuda", dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last)
    weight, bias = torch.rand(2, channels, device="cuda").unbind()
    expected = pooled_norms(x, weight, bias)
    poison = [torch.full((1 << k,), float("nan"), device="cuda") for k in range(8, 22) for _ in "123"]
    del poison  # memory that nothing has written is NaN
    run = torch.compile(pooled_norms, backend="inkle", options={"strict": True})
    torch.testing.assert_close(run(x, weight, bias), expected, rtol=2e-2, atol=2e-2)


def repeated_rows(total, x, weight, sequence, batches):
    """What cuBLASLt does not read: rows that repeat (the gradients of a sum of a linear layer's
    results) or overlap (windows of a sequence), and batches that repeat, which it does."""
    grad = total.expand(x.shape[0], weight.shape[0])
    windows = sequence.unfold(0, weight.shape[1], 1)
    repeated = weight.t().expand(batches.shape[0], -1, -1)
    return grad.t() @ x, grad @ weight, windows @ weight.t(), torch.bmm(batches, repeated)


def repeated_rows_of(device, dtype):
    sizes = [(), (96, 40), (24, 40), (103,), (3, 10, 40)]
    return [torch.randn(s, device=device, dtype=dtype) for s in sizes]


def test_rows_that_repeat_are_copied_for_products():
    with FakeTensorMode():
        xs = repeated_rows_of("cuda:0", torch.bfloat16)
    assert left_to_eager(make_fx(repeated_rows, tracing_mode="fake")(*xs)) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rows_that_repeat_are_copied_for_products_on_a_gpu(dtype, dynamic):
    torch.manual_seed(0)
    xs = repeated_rows_of("cuda", dtype)
    strict = {"strict": True}
    run = torch.compile(repeated_rows, backend="inkle", options=strict, dynamic=dynamic)
    with torch.no_grad():
        torch.testing.assert_close(run(*xs), repeated_rows(*xs))
    assert inkle.reports()[-1].eager == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_sum_of_a_linear_layer_is_trained_natively():
    layer = torch.nn.Linear(40, 24, device="cuda")
    x = torch.randn(96, 40, device="cuda", requires_grad=True)
    torch.compile(layer, backend="inkle", options={"strict": True})(x).sum().backward()
    found = [p.grad for p in (x, *layer.parameters())]
    wanted = torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])
    torch.testing.assert_close(found, list(wanted))
    assert all(r.eager == [] for r in inkle.reports()[-2:])
