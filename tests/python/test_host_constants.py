"""Constants that programs of a GPU compute on the CPU: with a null device here, with a GPU where there is one."""

from __future__ import annotations

import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import inkle
from checks import left_to_eager
from inkle import _inkle, host_constants
from inkle.importer import GraphImporter
from inkle.machine import as_strided, native_options
from inkle.options import parse


def table(x):
    positions = torch.arange(5).float()
    return x * (positions / 10).cos().to(x.device)


def literals(x):
    return x[:, torch.tensor([2, 1, 0]).to(x.device)] * torch.tensor(2.5)


def returned(x):
    order = torch.arange(3).to(x.device)
    return order, order[1:], x + 1


def returned_of_host(x):
    positions = torch.arange(3).float()
    return positions, x[:, :3] * positions.to(x.device)


def conjugated(x):
    """As the gradient of a quotient by a complex number: fake tensors do not say that it is lazy."""
    return torch.view_as_real(x / torch.ops.aten._conj.default(2 + 1j))


def transposed(x):
    return x @ torch.ones(3, 5).t().to(x.device)


def drawn(x):
    return x + torch.rand(5).to(x.device)


def large(x):
    return x.sum() + torch.arange(1 << 22).to(x.device)


def viewed(x):
    return x + torch.arange(10).to(x.device).view(2, 5)[1].unsqueeze(0)


def of_input(x):
    return x + torch.arange(x.shape[1]).to(x.device)


def traced(function):
    """Its graph, as if its argument lay on a GPU."""
    with FakeTensorMode():
        x = torch.empty(4, 5, device="cuda:0")
    return make_fx(function, tracing_mode="fake")(x)


@pytest.mark.parametrize("function, in_eager", [
    (table, []), (literals, []), (returned, []), (viewed, []), (of_input, []),
    (returned_of_host, ["aten::_to_copy"]), (drawn, ["aten::rand", "aten::_to_copy"]),
    (large, ["aten::arange", "aten::_to_copy"]),
])  # fmt: skip
def test_what_is_left_to_eager(function, in_eager):
    assert left_to_eager(traced(function)) == in_eager


def test_values_are_eagers():
    gm = traced(table)
    values, unneeded = host_constants.host_constants(gm)
    assert [n.meta["val"].device.type for n in values] == ["cuda"] and len(unneeded) == 4
    (value,) = values.values()
    assert value.device.type == "cpu" and torch.equal(value, (torch.arange(5).float() / 10).cos())


def test_a_lazy_conjugate_keeps_its_values():
    texts = {}
    options = native_options(parse(None, {"dump": texts.__setitem__}), training=False)
    walker = GraphImporter(traced(conjugated), "program", set(), {})
    walker.run()
    _inkle.Compiler.null("sm_90a").compile(walker.importer, options, walker.targets, as_strided)
    (literal,) = re.findall('= literal "(.*)"', texts["graph"])
    assert literal == torch.tensor(2 - 1j, dtype=torch.complex128).numpy().tobytes().hex()


def test_symbolic_sizes_are_no_constants():
    gm = make_fx(of_input, tracing_mode="symbolic")(torch.empty(4, 5))
    assert host_constants.host_constants(gm) == ({}, set())


def test_what_eager_cannot_compute_stays():
    def function(x):
        return x + torch.arange(3)[torch.tensor([7])].to(x.device)

    assert host_constants.host_constants(traced(function)) == ({}, set())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("function", [table, literals, returned, returned_of_host, transposed, viewed, of_input])
def test_on_a_gpu(function, mode):
    torch._dynamo.reset()
    inkle.reset()
    run = torch.compile(function, backend="inkle", mode=mode, dynamic=False)
    x = torch.randn(4, 5, device="cuda")
    with torch.no_grad():
        for _ in range(4):
            found, wanted = run(x), function(x)
            torch.testing.assert_close(found, wanted)
            if isinstance(found, tuple):
                for results in (found, wanted):  # the caller's, to write to; one is a view of another
                    results[0].add_(7)
                torch.testing.assert_close(found, wanted)
    (report,) = inkle.reports()
    assert report.compiled and not report.fault
    if function in (table, literals, viewed, of_input):
        assert not report.eager
        assert mode is None or report.callable.graphs[1] >= 2, report.callable.graphs


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_gradient_of_a_complex_quotient_on_a_gpu():
    torch._dynamo.reset()

    def function(x):
        return x.to(torch.complex64) / (2 + 1j)

    gradients = []
    for run in (function, torch.compile(function, backend="inkle")):
        x = torch.arange(4.0, device="cuda", requires_grad=True)
        weights = torch.tensor([1 + 2j, 3 - 1j, 2j, -1 + 0.5j], device="cuda")
        gradients.append(torch.autograd.grad(run(x), x, weights)[0])
    torch.testing.assert_close(*reversed(gradients))


class Positions(torch.nn.Module):
    """Scales by what a convolution makes of positions: in inference the same in every call."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Conv2d(2, 4, 1)

    def forward(self, x):
        at = torch.arange(6.0, device="cpu")
        positions = torch.stack(torch.meshgrid(at, at, indexing="ij"))
        return torch.tanh(x * self.project((positions / 7).sin().to(x.device)))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_convolutions_of_positions(device, mode):
    inkle.reset()
    torch.manual_seed(0)
    model = Positions()
    run = torch.compile(model, backend="inkle", mode=mode, dynamic=False)
    for is_training in (False, True):
        torch._dynamo.reset()
        for call in range(6):
            x = torch.randn(2, 4, 6, 6, requires_grad=is_training)
            with torch.set_grad_enabled(is_training):
                found, wanted = run(x), model(x)
            torch.testing.assert_close(found, wanted)
            # Memory that a call has given back is written to by others.
            torch.full((2, 4, 6, 6), 9.0)
            if is_training:
                inputs = (x, *model.parameters())
                torch.testing.assert_close(torch.autograd.grad(found.square().sum(), inputs),
                                           torch.autograd.grad(wanted.square().sum(), inputs))  # fmt: skip
            if call == 3:
                with torch.no_grad():
                    model.project.weight.mul_(0.5)
    assert all(report.compiled and not report.fault for report in inkle.reports())
