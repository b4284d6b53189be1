"""Reductions that the last block of one launch finishes, and scans of rows that blocks share."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import inkle

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]

BF16, F32, F64, I64 = (
    torch.bfloat16, torch.float32, torch.float64, torch.int64,
)  # fmt: skip


@pytest.fixture(autouse=True)
def on_gpu():
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)


def compiled(function, **keywords):
    return torch.compile(function, backend="inkle", options={"strict": True}, **keywords)


def listed(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


def check(found, wanted, exact):
    """No further from f64 than eager by half, and a floor of a rounding."""
    for a, b, e in zip(listed(found), listed(wanted), listed(exact), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if not a.is_floating_point():
            assert torch.equal(a, b)
            continue
        scale = e.abs().amax().item()
        floor = scale * {BF16: 2**-8, F32: 2e-6, F64: 1e-13}[a.dtype]
        assert (a - e).abs().amax().item() <= 1.5 * (b - e).abs().amax().item() + floor


def doubled(x):
    return x.double() if x.is_floating_point() else x


REDUCTIONS = {
    "sum": (lambda x: x.sum(), [(2048, 3000)]),
    "mean and more": (lambda x: (x.mean() * 2 + 1, x.sum()), [(4096, 2048)]),
    "few rows": (lambda x: x.sum(-1), [(3, 1 << 21)]),
    "columns": (lambda x: x.sum(0), [(8192, 1024)]),
    "odd columns": (lambda x: x.sum(0), [(8192, 321)]),
    "columns of three": (lambda x: x.mean((0, 1)), [(64, 256, 384)]),
    "channels": (lambda x: x.sum((0, 2, 3)), [(32, 64, 28, 28)]),
    "extremes": (lambda x: (x.amax(), x.amin(), x.amax(0)), [(4096, 1024)]),
    "moments": (lambda x: torch.var_mean(x, 0), [(16384, 512)]),
    "moments of all": (lambda x: torch.var_mean(x), [(2048, 2048)]),
    "norm": (lambda x: x.norm() + x.abs().sum(), [(2048, 2048)]),
    "two sums": (lambda x, y: ((x * y).sum(0), x.sum(0)), [(8192, 768), (8192, 768)]),
    "loss": (lambda x, y: F.mse_loss(x, y), [(2048, 2048), (2048, 2048)]),
    "then columns": (lambda x, y: (x.sum(0) + y).relu(), [(8192, 1024), (1024,)]),
    "gradients of a norm's weights": (
        lambda d, x, m: ((d * (x - m)).sum(0), d.sum(0)), [(8192, 512), (8192, 512), (8192, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [BF16, F32, F64])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_in_one_launch(name, dtype):
    function, sizes = REDUCTIONS[name]
    inputs = [torch.randn(s).to(dtype) for s in sizes]
    run = compiled(function)
    exact = listed(function(*[x.double() for x in inputs]))
    results = [listed(run(*inputs)) for _ in range(6)]
    check(results[0], function(*inputs), exact)
    for result in results[1:]:  # the counters are back at 0, and the order of addition is the same
        assert all(torch.equal(a, b) for a, b in zip(result, results[0]))


@pytest.mark.parametrize("size", [(2048, 3000), (3, 1 << 21)])
def test_a_sum_takes_one_launch(size):
    x = torch.randn(size)
    compiled(lambda x: x.sum(-1 if size[0] == 3 else None))(x)
    assert [r.launches for r in inkle.reports()] == [1]


@pytest.mark.parametrize("dtype", [BF16, F32, I64])
@pytest.mark.parametrize(("size", "dim"), [((2048, 2048), None), ((3, 1 << 20), 1), ((16384, 96), 0),
                                           ((64, 512, 96), 1)])  # fmt: skip
def test_places_of_extremes(size, dim, dtype):
    x = torch.randint(-50, 50, size).to(dtype)  # many ties
    run = compiled(lambda x: (x.argmax(dim), x.argmin(dim)))
    inputs = [x, torch.full_like(x, 3)]
    if dtype.is_floating_point:
        inputs += [x.clone(), torch.full_like(x, -float("inf")), x.clone()]
        inputs[2].view(-1)[x.numel() * 2 // 3 :: 7] = float("nan")
        inputs[4].view(-1)[-1] = float("nan")
    for value in inputs:
        # Of ties and NaN the CPU's argmax gives the first.
        for found, wanted in zip(run(value), (value.cpu().argmax(dim), value.cpu().argmin(dim))):
            assert torch.equal(found.cpu(), wanted)


def test_values_that_are_no_numbers():
    x = torch.randn(2048, 2048)
    run = compiled(lambda x: (x.sum(), x.amax(), x.amin(0), x.prod(0)))
    for value in (float("nan"), float("inf"), -float("inf")):
        y = x.clone()
        y[1000, 77] = value
        for a, b in zip(run(y), (y.sum(), y.amax(), y.amin(0), y.prod(0))):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("function", [lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.cumsum(0)])
def test_streams_at_once(function):
    run = compiled(function)
    inputs = [torch.randn(4096, 512) if i < 3 else torch.randn(4096, 512) * i for i in range(6)]
    if function(inputs[0]).shape == inputs[0].shape:
        inputs = [x.flatten() for x in inputs]
    wanted = [run(x).clone() for x in inputs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs]
    found = []
    for _ in range(20):
        for x, stream in zip(inputs, streams):
            with torch.cuda.stream(stream):
                found.append(run(x))
    torch.cuda.synchronize()
    for i, result in enumerate(found):
        assert torch.equal(result, wanted[i % len(inputs)])


@pytest.mark.parametrize("by_user", [False, True])
def test_recordings(by_user):
    def function(x):
        return x.sum(), x.sum(0), x.flatten().cumsum(0)

    x = torch.randn(4096, 512)
    wanted = [t.clone() for t in compiled(function)(x)]
    torch._dynamo.reset()
    if not by_user:
        run = torch.compile(function, backend="inkle", mode="reduce-overhead")
        for _ in range(6):
            assert all(torch.equal(a, b) for a, b in zip(run(x), wanted))
        return
    run = compiled(function)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run(x)
    side.synchronize()
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    results = []
    for graph in graphs:
        with torch.cuda.graph(graph):
            results.append(run(x))
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(20):
        for graph, stream in zip(graphs, streams):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for result in results:
        assert all(torch.equal(a, b) for a, b in zip(result, wanted))


SCANS = [
    ((1 << 22,), 0), ((1 << 22) + 5, 0), ((4, 1 << 19), 1), ((3, (1 << 18) + 3), 1),
    ((2, 100, 32768), 2), ((16384,), 0), ((1, 77777), 1), ((300, 40000), 1),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [BF16, F32, F64, I64])
@pytest.mark.parametrize(("size", "dim"), SCANS)
def test_scans_of_long_rows(size, dim, dtype):
    size = size if isinstance(size, tuple) else (size,)
    x = torch.randint(-9, 9, size) if dtype == I64 else torch.randn(size).to(dtype)
    run = compiled(lambda x: x.cumsum(dim))
    results = [run(x) for _ in range(4)]
    exact = doubled(x).cumsum(dim)
    check(results[0], x.cumsum(dim), exact)
    for result in results[1:]:
        assert torch.equal(result, results[0])


def test_products_and_what_is_no_number():
    x = torch.rand(1 << 20) * 0.02 + 0.99
    run = compiled(lambda x: (x.cumprod(0), x.cumsum(0)))
    y = x.clone()
    y[500000] = float("inf")
    y[900000] = float("nan")
    for value in (x, y):
        product, total = run(value)
        exact = value.double().cumprod(0).float()
        torch.testing.assert_close(product, exact, rtol=1e-3, atol=0, equal_nan=True)
        exact = value.double().cumsum(0).float()
        torch.testing.assert_close(total, exact, rtol=1e-5, atol=0, equal_nan=True)


def test_scans_of_any_length():
    run = torch.compile(lambda x: (x > 0).cumsum(-1), backend="inkle", dynamic=True)
    for length in (100003, 1 << 20, 70000, 4097, 2, 1 << 23):
        x = torch.randn(length)
        assert torch.equal(run(x), (x > 0).cumsum(-1))


def test_a_scan_of_a_value_that_is_computed():
    x, y = torch.randn(2, 1 << 20), torch.randn(2, 1 << 20)
    found = compiled(lambda x, y: torch.cumsum(torch.exp(x) * y, -1) + 1)(x, y)
    exact = torch.cumsum(torch.exp(x.double()) * y.double(), -1) + 1
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-2)


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), capturable=True),
    "adam amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, capturable=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01, capturable=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, capturable=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers_count(name):
    def parameters():
        torch.manual_seed(1)
        return [torch.nn.Parameter(torch.randn(s)) for s in ((300, 700), (5,), (64, 64), (7,))]

    plain, ours = parameters(), parameters()
    wanted, found = OPTIMIZERS[name](plain), OPTIMIZERS[name](ours)
    step = torch.compile(found.step, backend="inkle")
    for turn in range(5):
        torch.manual_seed(turn + 10)
        for a, b in zip(plain, ours):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        wanted.step()
        step()
        for a, b in zip(plain, ours):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
            for key, value in wanted.state[a].items():
                if torch.is_tensor(value):
                    torch.testing.assert_close(found.state[b][key].cpu(), value.cpu(), rtol=1e-5, atol=1e-6)
    if name == "adamw":
        assert inkle.reports()[-1].launches == 1
