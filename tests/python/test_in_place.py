"""Results that take the memory of operands that die where they are made: values are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from checks import check, check_training, randn

pytestmark = pytest.mark.usefixtures("device")

# Pointwise work between products, whose operand dies.
CASES = {
    "activation": lambda x, w: torch.sin(x @ w) @ w,
    "chain": lambda x, w: torch.cos(torch.sin(x @ w) @ w) @ w,
    "two results": lambda x, w: (torch.sin(x @ w - x.cos() @ w) @ w, torch.cos(x @ w + x.cos() @ w) @ w),
    "read again": lambda x, w: torch.sin(x @ w) @ w @ (x @ w),
    "transposed": lambda x, w: torch.sin((x @ w).T + (x @ w)) @ w,
    "flipped": lambda x, w: torch.sin((x @ w).flip(0)) @ w,
    "returned": lambda x, w: ((y := x @ w), torch.sin(y) @ w),
    "view returned": lambda x, w: ((y := x @ w)[3:], torch.sin(y) @ w),
    "reshaped": lambda x, w: torch.sin((x @ w).reshape(-1, 8, x.shape[1])).bmm(torch.ones_like(w).expand(x.shape[0] // 8, -1, -1)),
    "gated": lambda x, w: (torch.sin(x @ w) * (x.cos() @ w)) @ w,
    "random": lambda x, w: F.dropout(torch.sin(x @ w), 0.3) @ w,
    "softmax": lambda x, w: (x @ w).softmax(1) @ w,
    "norm and residual": lambda x, w: (F.layer_norm(x @ w, x.shape[1:]) + x.cos() @ w) @ w,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_values(name, dtype):
    check(CASES[name], lambda: [randn(40, 40).to(dtype), (randn(40, 40) / 6).to(dtype)])


@pytest.mark.parametrize("name", ["activation", "two results", "gated", "flipped"])
def test_symbolic_sizes(name):
    check(CASES[name], lambda: [randn(33, 40), randn(40, 40) / 6], dynamic=True, calls=2)


class Feed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(24, 96), torch.nn.Linear(96, 24)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)) * 2)


def test_training():
    check_training(Feed(), lambda: [randn(6, 8, 24)])


def test_calls_do_not_see_each_other():
    check(CASES["chain"], lambda: [randn(64, 64), randn(64, 64) / 8], calls=3)
