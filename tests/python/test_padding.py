"""Gradients of paddings that repeat the input, as kernels of our own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import inkle

# Sizes of the input, and pads from the last dimension backwards.
CASES = {
    "1d": ((2, 3, 7), [2, 1]),
    "2d": ((2, 3, 6, 5), [4, 0, 1, 3]),
    "3d": ((2, 2, 4, 3, 5), [1, 2, 2, 1, 0, 3]),
    "without_batch": ((3, 6, 5), [1, 1, 2, 2]),
    "cut": ((2, 3, 6, 5), [-1, 2, 3, -2]),
    "many": ((1, 2, 9, 12), [8, 7, 6, 5]),
}


def gradient(f, x):
    x = x.detach().clone().requires_grad_()
    y = f(x)
    (y.double() * torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape)).sum().backward()
    return x.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("case", CASES)
def test_gradients(case, mode, dtype):
    sizes, pads = CASES[case]
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(0)

    def f(x):
        return F.pad(x * 2, pads, mode=mode).sin()

    compiled = torch.compile(f, backend="inkle")
    for more in (0, 2, 3):  # from the second on the size is a symbol
        x = torch.randn(*sizes[:-1], sizes[-1] + more, dtype=dtype)
        wanted, got = gradient(f, x), gradient(compiled, x)
        assert got.dtype == dtype
        # Eager rounds to bf16 after each copy that it adds.
        exact = gradient(f, x.double())
        scale = exact.abs().max()
        ours, theirs = (((g.double() - exact).square().mean().sqrt() / scale) for g in (got, wanted))
        assert ours <= 1.5 * theirs + 1e-7, (ours, theirs)
    assert not [r.eager for r in inkle.reports() if r.eager]


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_pads_that_are_symbols(mode):
    torch._dynamo.reset()
    inkle.reset()

    def f(x, low, high):
        return F.pad(x.tanh(), (low, high, high, low), mode=mode).square()

    run = torch.compile(f, backend="inkle", dynamic=True)
    for low, high, size in ((2, 3, 7), (4, 1, 6), (3, 5, 9)):
        x = torch.randn(2, 3, size, size + 1)
        torch.testing.assert_close(run(x, low, high), f(x, low, high))
        exact = gradient(lambda t: f(t, low, high), x.double())
        got = gradient(lambda t: run(t, low, high), x)
        assert (got - exact).abs().max() <= 2e-6 * exact.abs().max()
    assert not [r.eager for r in inkle.reports() if r.eager]
