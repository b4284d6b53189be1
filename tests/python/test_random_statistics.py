"""Numbers of every generator, over their whole range, by statistics: each p-value is above 1e-4."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F

import inkle
from checks import compiled

pytestmark = pytest.mark.usefixtures("device")
COUNT = 2**20
LEAST_P = 1e-4  # fixed, as are the seeds


def draw(function, **options):
    """What two calls give after a fixed seed, behind each other: a tensor of both, or a dict."""
    torch._dynamo.reset()
    inkle.reset()
    run = compiled(function, **{"random": "fast", **options})
    torch.manual_seed(20)
    return torch.utils._pytree.tree_map(lambda a, b: torch.stack([a, b]).cpu(), run(), run())


def check(p, what):
    assert p > LEAST_P, f"{what}: p = {p:.2g}"


def normal_p(z):
    return math.erfc(abs(z) / math.sqrt(2))


def on_the_cpu(function):
    """Numbers are drawn on each device, and judged on the CPU."""

    @functools.wraps(function)
    def judge(*arguments):
        with torch.device("cpu"):
            return function(*(a.cpu() if isinstance(a, torch.Tensor) else a for a in arguments))

    return judge


@on_the_cpu
def check_counts(observed, expected, what):
    """Chi squared; `expected` are probabilities."""
    expected = expected.double() * observed.sum()
    assert expected.min() >= 5
    statistic = ((observed - expected) ** 2 / expected).sum()
    freedom = torch.tensor((len(observed) - 1) / 2, dtype=torch.float64)
    check(torch.special.gammaincc(freedom, statistic / 2).item(), what)


@on_the_cpu
def check_even(bins, count, what):
    uniform = torch.full((count,), 1 / count, dtype=torch.float64)
    check_counts(torch.bincount(bins.long(), minlength=count).double(), uniform, what)


@on_the_cpu
def check_distribution(numbers, cumulative, what):
    """Kolmogorov and Smirnov, of a continuous distribution."""
    n = numbers.numel()
    below = cumulative(numbers.double().flatten().sort().values)
    ranks = torch.arange(n + 1, dtype=torch.float64) / n
    distance = torch.maximum((below - ranks[:-1]).max(), (ranks[1:] - below).max()).item()
    x = distance * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    check(2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 100)), what)


@on_the_cpu
def check_moments(numbers, moments, what):
    """Mean powers of what has mean 0 and variance 1; `moments` are those of powers 1 to 8."""
    for power in range(1, 5):
        deviation = math.sqrt((moments[2 * power - 1] - moments[power - 1] ** 2) / numbers.numel())
        mean = (numbers**power).mean().item()
        check(normal_p((mean - moments[power - 1]) / deviation), f"{what}: power {power}")


@on_the_cpu
def check_uncorrelated(calls, what):
    """Neighbours, and the same place of two calls, and their squares; of mean 0, variance 1."""
    squares = calls.square()
    squares = (squares - squares.mean()) / squares.std().clamp_min(1e-3)
    for name, numbers in ((what, calls), (f"squares of {what}", squares)):
        pairs = {f"distance {d}": (numbers[0, d:], numbers[0, :-d]) for d in (1, 2, 4, 16)}
        pairs["the next call"] = (numbers[0], numbers[1])
        for which, (one, other) in pairs.items():
            z = (one @ other).item() / math.sqrt(len(one))
            check(normal_p(z), f"{name}: {which}")


UNIFORM_MOMENTS = [0, 1, 0, 9 / 5, 0, 27 / 7, 0, 9]
NORMAL_MOMENTS = [0, 1, 0, 3, 0, 15, 0, 105]

RANGES = {
    "one": (0, 1, torch.int64), "coin": (0, 2, torch.int64), "dice": (-3, 4, torch.int64),
    "bytes": (0, 256, torch.uint8), "some bytes": (200, 243, torch.uint8),
    "signed bytes": (-128, 128, torch.int8), "i16": (-20000, 32768, torch.int16),
    "i32": (-(2**31), 2**31, torch.int32), "part of i32": (-(2**31), 2**30 + 7, torch.int32),
    "f32": (-(2**24), 2**24, torch.float32), "bf16": (-100, 101, torch.bfloat16),
    "vocabulary": (0, 50257, torch.int64), "3/4 of 2^32": (0, 3 * 2**30, torch.int64),
    "just below 2^32": (0, 2**32 - 1, torch.int64), "2^32": (0, 2**32, torch.int64),
    "just above 2^32": (0, 2**32 + 1, torch.int64), "3/4 of 2^33": (-5, 3 * 2**31 - 5, torch.int64),
    "40 bits": (-(10**12), 10**12, torch.int64), "3/4 of 2^63": (0, 3 * 2**61, torch.int64),
    "negative": (-(2**63), -1, torch.int64), "2/3 of all": (-(2**63), 2**63 // 3, torch.int64),
    "all": (-(2**63), 2**63 - 1, torch.int64),
}  # fmt: skip


def places(numbers, low, high, bins):
    """The one of `bins` equal parts of [low, high) that each number lies in, exactly."""
    edges = [low - 2**63 + -(-(high - low) * i // bins) for i in range(1, bins)]
    # As unsigned numbers less 2^63 in i64, in the order of the numbers.
    edges = torch.tensor([(e + 2**63) for e in edges], dtype=torch.int64)
    return torch.bucketize(numbers, edges, right=True)


def test_whole_numbers(device):
    calls = draw(
        lambda: {
            name: torch.randint(low, high, (COUNT,), dtype=dtype, device=device)
            for name, (low, high, dtype) in RANGES.items()
        }
    )
    assert {op for report in inkle.reports() for op, _, _ in report.eager} == {"inkle::seed"}
    for name, (low, high, dtype) in RANGES.items():
        assert calls[name].dtype == dtype
        check_whole_numbers(calls[name].long(), low, high, name)


@on_the_cpu
def check_whole_numbers(numbers, low, high, what):
    count = high - low
    assert low <= numbers.min().item() and numbers.max().item() < high
    if count == 1:
        return
    if count < 2**16:
        check_even(numbers[0] - low, count, f"{what}: each number")
    else:
        check_even(places(numbers[0], low, high, 60), 60, f"{what}: parts of the range")
        for divisor in (3, 5, 64, 255):
            check_even(numbers[0].remainder(divisor), divisor, f"{what}: modulo {divisor}")
    if count > 2**40:
        check_even((numbers[0] >> 20).remainder(64), 64, f"{what}: bits in the middle")
    deviation = math.sqrt((count - 1) / 12) * math.sqrt(count + 1)
    check_uncorrelated((numbers.double() - (low + high - 1) / 2) / deviation, what)


BITS = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}


@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_uniform_numbers(dtype, device):
    calls = draw(lambda: torch.rand(COUNT, dtype=dtype, device=device))
    assert calls.dtype == dtype and calls.min() >= 0 and calls.max() < 1
    bits = BITS[dtype]
    whole = (calls[0].double() * 2**bits).long()
    if dtype != torch.float64:  # those are eager's
        assert torch.equal(whole.double() * 2.0**-bits, calls[0].double()) and whole.max() < 2**bits
    check_even(whole >> max(0, bits - 12), 2 ** min(bits, 12), "high bits")
    # Those of f64 are eager's, which rounds them on a GPU.
    if dtype != torch.float64 or device == "cpu":
        check_even(whole % 256, 256, "low bits")
    standard = (calls.double() + 2.0 ** -(bits + 1) - 0.5) * math.sqrt(12)
    if bits > 11:
        check_distribution(calls[0], lambda x: x, "uniform")
        check_moments(standard[0], UNIFORM_MOMENTS, "uniform")
    check_uncorrelated(standard, "uniform")


def test_normal_numbers(device):
    calls = draw(lambda: torch.randn(COUNT, device=device))
    check_distribution(calls[0], torch.special.ndtr, "normal")
    check_moments(calls[0].double(), NORMAL_MOMENTS, "normal")
    check_uncorrelated(calls.double(), "normal")
    # Far from 0: so many of 2 million numbers are beyond each of these.
    for edge in (3.0, 3.5, 4.0, 4.3):
        p = math.erfc(edge / math.sqrt(2))
        z = ((calls.abs() > edge).sum().item() - p * calls.numel()) / math.sqrt(p * calls.numel())
        check(normal_p(z), f"beyond {edge}")


@on_the_cpu
def check_rounded_normal(numbers, dtype, what):
    """Of normal numbers that were rounded to ``dtype``: how many lie in each of 64 cells. An edge is
    halfway between two numbers of the dtype, so that rounding moves nothing over it."""
    quantiles = torch.special.ndtri(torch.arange(1, 64, dtype=torch.float64) / 64)
    below = quantiles.to(dtype)
    edges = (below.double() + next_of(below).double()) / 2
    assert (edges.diff() > 0).all()
    cumulative = torch.cat([torch.zeros(1), torch.special.ndtr(edges), torch.ones(1)]).double()
    cells = torch.bucketize(numbers.double(), edges)
    check_counts(torch.bincount(cells, minlength=64).double(), cumulative.diff(), what)


def next_of(numbers):
    """The next greater ones of 16 bits."""
    bits = numbers.view(torch.int16)
    return torch.where(numbers < 0, bits - 1, bits + 1).view(numbers.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_normal_numbers_of_16_bits(dtype, device):
    calls = draw(lambda: torch.randn(COUNT, dtype=dtype, device=device))
    assert calls.dtype == dtype
    check_rounded_normal(calls[0], dtype, "normal")
    check_rounded_normal(calls[1], dtype, "normal of the next call")
    check_moments(calls[0].double(), NORMAL_MOMENTS, "normal")
    check_uncorrelated(calls.double(), "normal")


# Longer ones than 2048 are made in another way.
@pytest.mark.parametrize("n, count", [(50, 4096), (3000, 512)])
def test_permutations(n, count, device):
    """Of many calls: where each number stands, and what stands beside it, there and in the next call."""
    torch._dynamo.reset()
    inkle.reset()
    run = compiled(lambda: (torch.randperm(n, device=device), torch.randperm(n, device=device)), random="fast")
    torch.manual_seed(20)
    drawn = torch.stack([one for _ in range(count // 2) for one in run()]).cpu()
    assert {op for report in inkle.reports() for op, _, _ in report.eager} <= {"inkle::seed", "inkle::ranks"}
    with torch.device("cpu"):
        assert torch.equal(drawn.sort(1).values, torch.arange(n).expand(count, n))
        check_permutations(drawn, n, count)


def check_permutations(drawn, n, count):
    width = n // 50
    cells = (torch.arange(n) // width) * 50 + drawn // width
    expected = count * width * width / n
    observed = torch.bincount(cells.flatten(), minlength=2500).double()
    # Sums over rows and columns are fixed, and numbers of a permutation are drawn without replacement.
    statistic = ((observed - expected) ** 2 / expected).sum() * (n - 1) / n
    freedom = torch.tensor(49**2 / 2, dtype=torch.float64)
    check(torch.special.gammaincc(freedom, statistic / 2).item(), "places")
    standard = (drawn.double() - (n - 1) / 2) * math.sqrt(12 / (n * n - 1))
    for distance in (1, 2, 16):
        mean = (standard[:, distance:] * standard[:, :-distance]).mean(1) + 1 / (n - 1)
        z = mean.mean() / (mean.std() / math.sqrt(count))
        check(normal_p(z.item()), f"distance {distance}")
    for what, one, other in (
        ("of one call", standard[0::2], standard[1::2]),
        ("of two calls", standard[1:-1:2], standard[2::2]),
    ):
        rank = (one * other).mean(1) * math.sqrt(n - 1)
        check(normal_p(rank.sum().item() / math.sqrt(len(rank))), f"the same place, {what}")


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_of_attention(p, device):
    """With equal scores and rows of the identity as values, a result is the mask, scaled."""
    length = 64
    query = torch.zeros(16, 16, length, length, device=device)
    value = torch.eye(length, device=device).expand(16, 16, length, length).contiguous()
    attend = F.scaled_dot_product_attention
    calls = draw(lambda: attend(query, query, value, dropout_p=p)).double()
    kept = calls != 0
    torch.testing.assert_close(calls[kept], torch.full_like(calls[kept], 1 / (length * (1 - p))), rtol=1e-3, atol=0)
    standard = (kept.double() - (1 - p)) / math.sqrt(p * (1 - p))
    check(normal_p(standard.mean().item() * math.sqrt(standard.numel())), "rate")
    check_uncorrelated(standard.flatten(1), "along keys")
    check_uncorrelated(standard.transpose(-1, -2).flatten(1), "along queries")
    check_uncorrelated(standard.permute(0, 3, 4, 1, 2).flatten(1), "along heads and batches")


def test_truth_values(device):
    ones = torch.ones(COUNT, device=device)
    cases = {
        "number": lambda p: torch.bernoulli(ones, p),
        "tensor": lambda p: torch.bernoulli(ones * p),
        "dropout": lambda p: (F.dropout(ones, 1 - p) != 0).float(),
        "native_dropout": lambda p: (torch.native_dropout(ones, 1 - p, True)[0] != 0).float(),
    }
    chances = (0.001, 0.3, 0.5, 0.99)
    drawn = draw(lambda: {(name, p): cases[name](p) for name in cases for p in chances})
    for (name, p), calls in drawn.items():
        assert set(calls.unique().tolist()) == {0.0, 1.0}
        standard = (calls.double() - p) / math.sqrt(p * (1 - p))
        z = standard.mean().item() * math.sqrt(calls.numel())
        check(normal_p(z), f"mean of {name} of {p}")
        if 0.1 < p < 0.9:  # products of rare ones are not normal
            check_uncorrelated(standard, f"{name} of {p}")


FILLED = {
    "uniform_": (lambda x: x.uniform_(-3, 5), lambda v: (v + 3) / 8),
    "normal_": (lambda x: x.normal_(2, 3), lambda v: torch.special.ndtr((v - 2) / 3)),
    "normal": (lambda x: torch.normal(x + 2, 3.0), lambda v: torch.special.ndtr((v - 2) / 3)),
    "exponential_": (lambda x: x.exponential_(0.5), lambda v: -torch.expm1(-v / 2)),
    "log_normal_": (lambda x: x.log_normal_(0.5, 2), lambda v: torch.special.ndtr((v.log() - 0.5) / 2)),
    "cauchy_": (lambda x: x.cauchy_(1, 2), lambda v: ((v - 1) / 2).atan() / math.pi + 0.5),
}  # fmt: skip


def test_numbers_of_other_distributions(device):
    """Most of them eager's, between kernels."""
    drawn = draw(
        lambda: {name: fill(torch.zeros(COUNT, device=device)) for name, (fill, _) in FILLED.items()},
        strict=False,
    )
    for name, calls in drawn.items():
        below = FILLED[name][1]
        check_distribution(calls[0], below, name)
        check_uncorrelated((below(calls.double()) - 0.5) * math.sqrt(12), name)


def test_numbers_of_one_graph(device):
    """Three generators that share a seed."""
    def three():
        u, v = torch.rand(COUNT, device=device), torch.rand(COUNT, device=device)
        i = torch.randint(3 * 2**30, (COUNT,), device=device)
        return torch.stack([u.double(), v.double(), i.double() / (3 * 2**30)])

    numbers = (draw(three)[0] - 0.5) * math.sqrt(12)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        z = (numbers[a] * numbers[b]).mean().item() * math.sqrt(COUNT)
        check(normal_p(z), f"numbers {a} and {b}")


@pytest.mark.parametrize("low, high", [(0, 50257), (0, 3 * 2**30), (-9, 3 * 2**61), (-(2**63), 2**63 - 1)])
def test_whole_numbers_in_eager_are_the_same(low, high, device):
    x = torch.ones(33, 7, device=device, requires_grad=True)

    def function():
        return {"y": x.sin(), "i": torch.randint(low, high, (33, 7), device=device)}

    ours = draw(function)["i"]
    assert ours.unique().numel() > 400
    assert torch.equal(draw(function, strict=False, fail_stage="run")["i"], ours)


@pytest.mark.parametrize("low, high, dtype", [(0, 300, torch.uint8), (0, 2**33, torch.int32), (5, 5, torch.int64)])
def test_ranges_that_eager_refuses(low, high, dtype, device):
    function = lambda: torch.randint(low, high, (9,), dtype=dtype, device=device)  # noqa: E731
    with pytest.raises(RuntimeError):
        function()
    with pytest.raises(Exception):
        draw(function, strict=False)
