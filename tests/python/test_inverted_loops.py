"""Loops that are reversed or split to share those of another: values are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from checks import check, check_training, randn

pytestmark = pytest.mark.usefixtures("device")

# Each with what a kernel of its own for every loop order would need.
CASES = {
    "backwards": lambda x: (x.sigmoid(), (x / 3).flip(1).tanh()),
    "both ways": lambda x: (x / 3 + (x / 3).flip(2), (x / 3).flip(0, 2).exp()),
    "sum of what is read backwards": lambda x: (x.flip(2).tanh(), x.sum(2)),
    "largest of what is read backwards": lambda x: (x.flip(1).abs(), x.amax(1), x.argmax(1)),
    "row stored backwards": lambda x: (x.exp() / 3, (x.exp() / 3).flip(2).softmax(2)),
    "twice": lambda x: ((x / 3).flip(1).tanh().flip(1), x / 3),
    "running sum": lambda x: (x.flip(2).tanh(), x.cumsum(2), x.flip(2).cumsum(2)),
    "heads": lambda x: (
        x.view(4, 6, 2, 8).transpose(1, 2).neg(),
        x.view(4, 6, 2, 8).transpose(1, 2).reshape(8, 6, 8).abs(),
    ),
    "two of three loops": lambda x: (x.reshape(24, 16).tanh(), x.flip(2).neg(), x.sum(0)),
    "flat": lambda x: (x.reshape(-1).flip(0).abs(), x.neg()),
}


def values(dtype):
    x = randn(4, 6, 16)
    x[0, 0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0], device=x.device)
    # On a GPU eager's running sums of bf16 round at each step: quarters have no roundings.
    return [((x * 4).round() / 4 if dtype == torch.bfloat16 else x).to(dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_values(name, dtype):
    check(CASES[name], lambda: values(dtype))


@pytest.mark.parametrize("name", ["backwards", "row stored backwards", "running sum"])
def test_symbolic_sizes(name):
    check(CASES[name], lambda: [randn(5, 7, 19)], dynamic=True)


def test_one_launch():
    """Of one kernel on the CPU, on a GPU of two side by side."""
    (report,) = check(CASES["backwards"], lambda: [randn(64, 40, 48)])
    assert report.launches == 1


def test_argument_written_in_place():
    def f(x):
        y = x.flip(1).tanh()
        x.add_(y)
        return y

    check(f, lambda: [randn(4, 6, 16)])


class Reversed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(randn(4, 6, 16))

    def forward(self, x):
        y = self.weight / (3 + x * x)
        return F.softplus(y.flip(1)).sum() + y.square().flip(2).cumsum(2).mean(), y


def test_gradient():
    check_training(Reversed(), lambda: [randn(4, 6, 16)])
