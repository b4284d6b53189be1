"""Attention where something is empty, infinite or symbolic: as eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F


pytestmark = pytest.mark.usefixtures("device")


def tensors(*shapes, grad):
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=grad) for shape in shapes]


def check(function, given, **how):
    """The result and all gradients, compiled and in eager."""
    torch._dynamo.reset()
    run = torch.compile(function, backend="inkle", **how)
    found, wanted = [run(*given)], [function(*given)]
    leaves = [t for t in given if t.requires_grad]
    if leaves:
        for results in (found, wanted):
            results += torch.autograd.grad(results[0].sum(), leaves)
    for f, w in zip(found, wanted):
        torch.testing.assert_close(f, w, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("grad", [False, True])
def test_scores_filled_with_other_numbers_share_no_code(grad):
    torch.manual_seed(0)
    mask = torch.rand(7, 9) > 0.5
    mask[0] = True
    q, k, v = tensors((2, 2, 7, 8), (2, 2, 9, 8), (2, 2, 9, 8), grad=grad)
    for fill in (-math.inf, math.inf, -math.inf, math.nan, -1e4):

        def function(q, k, v):
            scores = torch.where(mask, q @ k.transpose(-2, -1), fill)  # noqa: B023
            return F.softmax(scores, -1) @ v

        check(function, (q, k, v))
