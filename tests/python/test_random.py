"""Dropout: our own masks, drawn again in the backward, and eager's on request."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inkle
from checks import compiled, randn

pytestmark = pytest.mark.usefixtures("device")


def fresh(function, **options):
    torch._dynamo.reset()
    inkle.reset()
    return compiled(function, **{"random": "fast", **options})


def with_seed(function, *arguments):
    torch.manual_seed(7)
    return function(*arguments)


def drop(x):
    return F.dropout(x, 0.3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_masks_follow_the_seed(dtype):
    run, x = fresh(drop), torch.ones(200, 300, dtype=dtype)
    first, second = with_seed(run, x), run(x)
    assert torch.equal(with_seed(run, x), first)
    assert torch.equal(run(x), second)
    assert not torch.equal(first, second)
    for result in (first, second):
        kept = result != 0
        # Of 60,000 independent elements; 6 standard deviations.
        assert abs(kept.double().mean().item() - 0.7) < 6 * (0.21 / kept.numel()) ** 0.5
        scale = torch.tensor(1 / 0.7, dtype=torch.float32).to(dtype)
        torch.testing.assert_close(result[kept], scale.expand(int(kept.sum())))
    assert [r.launches for r in inkle.reports()] == [1]


def test_masks_of_one_graph_differ():
    a, b = fresh(lambda x: (F.dropout(x), F.dropout(x)))(torch.ones(64, 64))
    assert not torch.equal(a, b)
    both = ((a != 0) & (b != 0)).double().mean().item()
    assert abs(both - 0.25) < 6 * (0.1875 / a.numel()) ** 0.5


def test_neighbours_do_not_depend_on_each_other():
    kept = (fresh(lambda x: F.dropout(x, 0.5))(torch.ones(512, 512)) != 0).double() - 0.5
    for other in (kept.roll(1, 0), kept.roll(1, 1)):
        assert abs((kept * other).mean().item()) < 6 * 0.25 / 512


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stage", ["codegen", "run"])
def test_what_runs_in_eager_draws_the_same_masks(stage, dtype):
    x = randn(30, 50).to(dtype)
    ours = with_seed(fresh(drop), x)
    assert torch.equal(with_seed(fresh(drop, strict=False, fail_stage=stage), x), ours)


def test_the_backward_draws_the_mask_of_the_forward():
    x = torch.ones(40, 50, requires_grad=True)
    y = fresh(drop)(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert 0 < (y == 0).sum() < y.numel()


def saved_bytes(function, x):
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function(x)
    return sum(sizes)


def test_no_mask_is_saved():
    x = randn(128, 256).requires_grad_()
    with_dropout = saved_bytes(fresh(lambda x: F.dropout(x.sin(), 0.1) * 2), x)
    without = saved_bytes(fresh(lambda x: x.sin() * 2), x)
    assert with_dropout <= without + 8


SOURCES = {
    "rand": (lambda x: torch.rand(200, 300, device=x.device), 1 / 2, 1 / 12),
    "rand_like": (lambda x: torch.rand_like(x), 1 / 2, 1 / 12),
    "bernoulli": (lambda x: torch.bernoulli(x * 0 + 0.2), 0.2, 0.16),
    "bernoulli of a number": (lambda x: torch.bernoulli(x, 0.3), 0.3, 0.21),
    "randn": (lambda x: torch.randn(200, 300, dtype=x.dtype, device=x.device), 0.0, 1.0),
    "randn_like": (lambda x: torch.randn_like(x), 0.0, 1.0),
    "randint": (lambda x: torch.randint(-3, 5, (200, 300), dtype=x.dtype, device=x.device), 0.5, 63 / 12),
    "randint_like": (lambda x: torch.randint_like(x, 8), 3.5, 63 / 12),
    "native_dropout": (lambda x: torch.native_dropout(x, 0.5, True)[0], 1.0, 1.0),
}


RANGES = {"rand": (0, 1), "rand_like": (0, 1), "randn": (None, None), "randn_like": (None, None),
          "randint": (-3, 5), "randint_like": (0, 8)}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SOURCES)
def test_numbers_are_distributed_as_they_should(name, dtype):
    function, mean, variance = SOURCES[name]
    run, x = fresh(function), torch.ones(200, 300, dtype=dtype)
    first, second = with_seed(run, x), run(x)
    assert first.dtype == function(x).dtype
    assert torch.equal(with_seed(run, x), first) and not torch.equal(first, second)
    numbers = first.double()
    assert abs(numbers.mean().item() - mean) < 6 * (variance / 60000) ** 0.5 + 2**-8
    assert abs(numbers.var().item() / variance - 1) < 0.05
    lowest, highest = RANGES.get(name, (0, None))
    assert lowest is None or numbers.min() >= lowest
    assert highest is None or numbers.max() < highest
    names = {op for report in inkle.reports() for op, _, _ in report.eager}
    assert names == {"inkle::seed"}


def test_normal_numbers_have_the_normal_distribution(device):
    """By Kolmogorov and Smirnov's distance; neighbours and the two of a pair do not depend."""
    numbers = with_seed(fresh(lambda: torch.randn(200, 300, device=device))).double().flatten()
    below = torch.special.ndtr(numbers.sort().values)
    ranks = torch.arange(1, numbers.numel() + 1, dtype=torch.float64) / numbers.numel()
    assert (below - ranks).abs().max().item() < 1.95 / numbers.numel() ** 0.5  # one in 1000
    for shift in (1, 2, 300):
        product = (numbers * numbers.roll(shift)).mean().item()
        assert abs(product) < 6 / numbers.numel() ** 0.5


@pytest.mark.parametrize("low, high", [(0, 1), (-(2**31), 2**31), (0, 2**32), (250, 256)])
def test_whole_numbers_of_any_range(low, high, device):
    numbers = with_seed(fresh(lambda: torch.randint(low, high, (5000,), device=device)))
    assert low <= numbers.min() and numbers.max() < high
    assert numbers.unique().numel() >= min(high - low, 4990)
    assert {op for report in inkle.reports() for op, _, _ in report.eager} == {"inkle::seed"}


@pytest.mark.parametrize("n", [0, 1, 2, 1000, 2048, 5000])
def test_permutations(n):
    run = fresh(lambda x: x[torch.randperm(n, device=x.device)])
    x = torch.arange(n)
    first, second = with_seed(run, x), run(x)
    assert torch.equal(with_seed(run, x), first)
    assert torch.equal(first.sort().values, x) and torch.equal(second.sort().values, x)
    assert n < 1000 or not torch.equal(first, second)
    in_eager = {op for report in inkle.reports() for op, _, _ in report.eager}
    assert in_eager <= {"inkle::seed"} | ({"inkle::ranks"} if n == 5000 else set())


def test_every_permutation_is_as_likely(device):
    run = fresh(lambda: torch.stack([torch.randperm(4, dtype=torch.int32, device=device) for _ in range(20)]))
    torch.manual_seed(3)
    seen = torch.cat([run() for _ in range(60)]).double() @ torch.tensor([64.0, 16, 4, 1]).double()
    counts = seen.unique(return_counts=True)[1].double()
    assert len(counts) == 24
    # Chi squared with 23 degrees of freedom: 49.7 in one of 1000 cases.
    assert ((counts - 50) ** 2 / 50).sum().item() < 49.7


def test_eagers_own_permutation(device):
    run = fresh(lambda: torch.randperm(100, device=device), random="eager")
    assert torch.equal(with_seed(run), with_seed(lambda: torch.randperm(100, device=device)))


def test_a_permutation_in_eager_is_the_same():
    x = randn(64, 3).requires_grad_()
    shuffled = lambda x: x[torch.randperm(64, device=x.device)] * 2  # noqa: E731
    ours = with_seed(fresh(shuffled), x)
    assert torch.equal(with_seed(fresh(shuffled, strict=False, fail_stage="run"), x), ours)


def test_noise_is_kept_for_the_backward():
    x = torch.ones(40, 50, requires_grad=True)
    y = fresh(lambda x: x * torch.randn_like(x))(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_all_or_nothing(p):
    x = randn(10, 20)
    assert torch.equal(fresh(lambda x: F.dropout(x, p))(x), F.dropout(x, p))


def test_sizes_that_change():
    run = torch.compile(drop, backend="inkle", dynamic=True, options={"strict": True})
    torch._dynamo.reset()
    for rows in (5, 9, 31):
        x = torch.ones(rows, 70)
        assert torch.equal(with_seed(run, x), with_seed(run, x))


@pytest.mark.parametrize("training", [False, True])
def test_eagers_own_masks(training):
    module = nn.Sequential(nn.Linear(20, 30), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.1))
    run, x = fresh(module, random="eager"), randn(40, 20)
    with torch.set_grad_enabled(training):
        wanted, found = with_seed(module, x), with_seed(run, x)
    assert torch.equal(found == 0, wanted == 0)
    torch.testing.assert_close(found, wanted)


def test_a_model_that_trains_with_dropout_runs_without_eager(device):
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    layer.dropout1.p = layer.dropout2.p = layer.dropout.p = 0.1
    run = fresh(layer.train())
    run(randn(3, 7, 32)).sum().backward()
    names = {name for report in inkle.reports() for name, _, _ in report.eager}
    attention = {name for name in names if "_scaled_dot_product_" in name and device == "cuda"}
    assert names <= {"inkle::seed"} | attention, names
