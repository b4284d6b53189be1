"""Gradients of norms over enough rows to be walked, each against f64 and eager."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inkle
from checks import narrow, randn

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(0)


class Block(nn.Module):
    """A norm between two layers, with a residual: its input's gradient has several terms."""

    def __init__(self, kind, width):
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, 8)
        self.norm = nn.LayerNorm(width) if kind == "layer" else nn.RMSNorm(width, 1e-6)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        x = self.norm(x + F.gelu(self.first(x)))
        return self.last(x) + x[..., :8]


def gradients(model, run, x, autocast):
    x = x.detach().clone().requires_grad_()
    model.zero_grad(set_to_none=True)
    with narrow(x, autocast):
        y = run(x)
        loss = (y.to(x.dtype) * randn(*y.shape).to(x.dtype)).sum()
    loss.backward()
    return {"x": x.grad} | {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("mode", ["f32", "bf16", "autocast"])
@pytest.mark.parametrize("sizes", [(8, 128, 96), (640, 33), (1000, 64), (2, 3, 64, 256), (40, 32)])
def test_norms(kind, mode, sizes):
    dtype = torch.bfloat16 if mode == "bf16" else torch.float32
    model, x = Block(kind, sizes[-1]).to(dtype), torch.randn(*sizes).to(dtype)
    wanted_model, eager_model = copy.deepcopy(model).double(), copy.deepcopy(model)
    wanted = gradients(wanted_model, wanted_model, x.double(), False)
    eager = gradients(eager_model, eager_model, x, mode == "autocast")
    run = torch.compile(model, backend="inkle", fullgraph=True, options={"strict": True})
    got = gradients(model, run, x, mode == "autocast")
    floor = 1e-7 if mode == "f32" else 1e-3
    for name, reference in wanted.items():
        scale = reference.abs().max().item()
        ours, theirs = ((t[name].double() - reference).square().mean().sqrt().item()
                        for t in (got, eager))  # fmt: skip
        assert ours <= 1.5 * theirs + floor * scale, f"{name}: {ours:.3e}, eager {theirs:.3e}"


@pytest.mark.cpu_only
def test_the_backward_of_a_norm_is_one_kernel_and_its_second_stage():
    norm, x = nn.LayerNorm(96), torch.randn(1024, 96, requires_grad=True)
    run = torch.compile(norm, backend="inkle", fullgraph=True, options={"strict": True})
    run(x).backward(torch.randn(1024, 96))
    assert [r.launches for r in inkle.reports()] == [1, 2]


@pytest.mark.cpu_only
def test_sums_do_not_depend_on_threads():
    norm, x, d = nn.LayerNorm(96), torch.randn(2048, 96), torch.randn(2048, 96)
    run = torch.compile(norm, backend="inkle", fullgraph=True)
    found, threads = [], torch.get_num_threads()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        norm.zero_grad()
        run(x).backward(d)
        found.append((norm.weight.grad, norm.bias.grad))
    torch.set_num_threads(threads)
    for weight, bias in found[1:]:
        assert torch.equal(weight, found[0][0]) and torch.equal(bias, found[0][1])
