"""Sizes and numbers that depend on data: symbols of compiled graphs, checked while they run."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F
import torch._dynamo
import torch._higher_order_ops.effects

import inkle
from checks import check, check_training, randn
from torch import nn

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(autouse=True)
def capture():
    with torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    ):
        yield


def masked(x):
    y = x[x > 0]
    return (y * 2 + 1).sum(), y.sin()


def places(x):
    i = x.nonzero()
    return i * 2, x[i[:, 0], i[:, 1]].exp()


def number(x):
    n = x.abs().sum().int().item()
    torch._check(n >= 1)
    torch._check(n <= 1000)
    return x.new_zeros(n) + x.sum(), torch.arange(n, device=x.device) * 2, x + n


def real(x):
    return x * x.sum().item() + 1


def several(x):
    values, counts = torch.unique((x * 2).long(), return_counts=True)
    return values * counts, (values > 0).sum()


def chained(x):
    y = x[x > 0].cos()
    z = y[y > 0.5].sin()
    return y.sum() + z.sum(), torch.cat([y, z]), y.mean()


def written(x, b):
    n = (x > 0).sum().item()
    b.add_(n)
    b[0] = x[x > 0].sum()
    return b * 2


@pytest.mark.parametrize(
    "function", [masked, places, number, real, several, chained], ids=lambda f: f.__name__
)
def test_values(function):
    reports = check(function, lambda: [randn(5, 7)], calls=2)
    assert reports and all(r.compiled for r in reports)


def test_writes_come_last():
    check(written, lambda: [randn(5, 7), torch.ones(3)], calls=2)


@pytest.mark.parametrize("value", [0.0, -1.0, 1.0])
def test_sizes_of_zero_and_all(value):
    check(masked, lambda: [torch.full((3, 4), value)])
    check(places, lambda: [torch.full((3, 4), value)])


def test_one_graph_serves_all_sizes():
    torch._dynamo.reset()
    inkle.reset()
    run = torch.compile(masked, backend="inkle", fullgraph=True, options={"strict": True})
    for shift in range(20):
        x = randn(6, 9) + shift / 10 - 1
        for a, b in zip(run(x), masked(x)):
            torch.testing.assert_close(a, b)
    run(-torch.ones(6, 9))
    graphs = len(inkle.reports())
    run(torch.ones(6, 9))
    assert len(inkle.reports()) == graphs


def test_with_dynamic_sizes():
    torch._dynamo.reset()
    run = torch.compile(chained, backend="inkle", dynamic=True, options={"strict": True})
    for size in [(4, 5), (3, 2), (7, 11)]:
        x = randn(*size)
        for a, b in zip(run(x), chained(x)):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("numbers", [
    lambda n: torch.arange(n, -n, -1.0), lambda n: torch.arange(0.5, n, 1.0),
    lambda n: torch.arange(0.0, n, 0.5), lambda n: torch.arange(-n, 2 * n, 2.0),
    lambda n: torch.arange(n, 0.75, -0.25), lambda n: torch.arange(-0.5, n // 2, 4.0),
])  # fmt: skip
def test_counts_of_steps_that_are_floats(numbers):
    """Their number is a float rounded up, which is exact."""

    def function(x):
        y = numbers(x.shape[0]).to(x.device)
        return x.sum() + y, x.new_ones(y.shape)

    torch._dynamo.reset()
    inkle.reset()
    run = torch.compile(function, backend="inkle", dynamic=True)
    for size in (4, 7, 10, 33):
        x = randn(size, 3)
        for a, b in zip(run(x), function(x)):
            torch.testing.assert_close(a, b)
    assert all(r.compiled for r in inkle.reports()), [r.reason for r in inkle.reports()]


@pytest.mark.parametrize("resized", [
    lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    lambda x: F.interpolate(x, scale_factor=(1.5, 2.0), mode="bicubic"),
    lambda x: x.new_ones(int((x.shape[2] - 20) * 1.5) + 40), lambda x: x.new_ones(int(x.shape[3] / -2) + 40),
])  # fmt: skip
def test_sizes_that_are_floats_are_truncated(resized):
    torch._dynamo.reset()
    inkle.reset()
    run = torch.compile(resized, backend="inkle", dynamic=True)
    for height, width in [(4, 7), (19, 6), (20, 21), (21, 9), (33, 4)]:
        x = randn(2, 3, height, width)
        torch.testing.assert_close(run(x), resized(x))
    assert all(r.compiled for r in inkle.reports()), [r.reason for r in inkle.reports()]


def test_steps_that_are_rounded_run_in_eager():
    def steps(x):
        return torch.arange(0.0, x.shape[0], 0.3, device=x.device)

    torch._dynamo.reset()
    run = torch.compile(steps, backend="inkle", dynamic=True)
    for x in (torch.ones(size) for size in (4, 7, 10, 33)):
        torch.testing.assert_close(run(x), steps(x))


def test_asserts_are_checked():
    def limited(x):
        n = x.sum().int().item()
        torch._check(n <= 5)
        torch._check(n >= 1)
        return x.new_ones(n) * 2

    run = torch.compile(limited, backend="inkle", fullgraph=True, options={"strict": True})
    assert run(torch.ones(3)).shape == (3,)
    with pytest.raises(RuntimeError, match="<= 5"):
        run(torch.ones(9))


class Selected(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        y = self.first(x)
        return self.second(y[y.sum(1) > 0].relu()).sum(0)


def test_training(device):
    reports = check_training(Selected(), lambda: [randn(8, 4)], strict=True)
    assert all(r.compiled for r in reports)


def test_asserts_are_checked_in_training():
    def limited(x, w):
        y = (x * w)[x > 0]
        torch._check(y.shape[0] <= 5)
        return y.square().sum()

    torch._dynamo.reset()
    run = torch.compile(limited, backend="inkle", fullgraph=True, options={"strict": True})
    x, w = torch.ones(7), torch.full((7,), 2.0).requires_grad_()
    with pytest.raises(RuntimeError, match="<= 5"):
        run(x, w)
    x[:3] = -1
    run(x, w).backward()
    assert w.grad.tolist() == [0, 0, 0, 4, 4, 4, 4]


def factors(a):
    s = a @ a.mT + 5 * torch.eye(6, device=a.device)
    factor = torch.linalg.cholesky(s.cos() + 8 * torch.eye(6, device=a.device))
    return (factor * 2).sum() + torch.linalg.inv(s).tanh()


def test_sizes_that_torch_foresees_wrong(monkeypatch):
    """Older versions of torch say that what is unique of an index, in index_fill's backward, is one."""

    def one(mode, func, index, *options):
        return index.new_empty(1), index.new_empty(0)

    monkeypatch.setitem(
        torch._subclasses.fake_impls.op_implementations_dict, torch.ops.aten._unique.default, one
    )

    class Filled(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(torch.tensor(0.5))

        def forward(self, x, index):
            return x.index_fill(0, index, self.value).sin()

    check_training(
        Filled(), lambda: [randn(5, 3, requires_grad=True), torch.tensor([0, 2, 2])], strict=False
    )


def test_effects_in_order():
    reports = check(factors, lambda: [randn(6, 6)])
    assert all(r.compiled for r in reports)
    in_eager = {name for r in reports for name, _, _ in r.eager}
    assert in_eager == {"aten::linalg_cholesky_ex", "aten::linalg_inv_ex"}


@pytest.mark.skipif(
    "_linalg_check_errors" not in inspect.getsource(torch._higher_order_ops.effects),
    reason="this torch drops checks from its graphs",
)
def test_effects_raise():
    run = torch.compile(torch.linalg.cholesky, backend="inkle", options={"strict": True})
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        run(-torch.eye(3))
