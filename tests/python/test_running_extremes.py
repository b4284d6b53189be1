"""torch.cummax and torch.cummin with their indices: values bit for bit, gradients, sizes that change."""

from __future__ import annotations

import pytest
import torch

import inkle

pytestmark = pytest.mark.usefixtures("device")

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool]  # fmt: skip
SHAPES = [((3, 37), 0), ((3, 37), -1), ((4, 5, 6), 1), ((7, 300), 1), ((300, 7), 0), ((1, 1), 1),
          ((0, 3), 0), ((0, 3), 1), ((), 0), ((), -1), ((64,), 0)]  # fmt: skip
INF, NAN = float("inf"), float("nan")


def compiled(function, dynamic=None):
    torch._dynamo.reset()
    inkle.reset()
    return torch.compile(function, backend="inkle", fullgraph=True, dynamic=dynamic)


def check_reports() -> None:
    assert inkle.reports() and all(r.compiled and not r.fault for r in inkle.reports())
    assert not any(r.eager for r in inkle.reports())


def same(found, wanted) -> None:
    """Bit for bit, but for what is in a NaN."""
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        if a.is_floating_point():
            assert torch.equal(a.isnan(), b.isnan()), (a, b)
            assert torch.equal(a.signbit() | a.isnan(), b.signbit() | b.isnan()), (a, b)
            a, b = a.nan_to_num(0.0, INF, -INF), b.nan_to_num(0.0, INF, -INF)
        assert torch.equal(a, b), (a, b)


def both(dim: int):
    return lambda x: (*torch.cummax(x, dim), *torch.cummin(x, dim))


def values(shape, dtype, seed: int = 0) -> torch.Tensor:
    """Small integers, so that there are ties."""
    torch.manual_seed(seed)
    x = torch.randint(-9, 10, shape)
    return x.abs().to(dtype) if dtype in (torch.uint8, torch.bool) else x.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_shapes(dtype):
    arguments = [values(shape, dtype) for shape, _ in SHAPES]

    def function(*arguments):
        return [y for x, (_, dim) in zip(arguments, SHAPES) for y in both(dim)(x)]

    same(compiled(function)(*arguments), function(*arguments))
    check_reports()


SPECIAL = [
    [1.0, NAN, 2.0, NAN, 3.0], [NAN, 1.0, INF], [-INF, -INF, 0.0, INF, INF, NAN, INF], [INF, -INF],
    [0.0, -0.0, 0.0, -0.0], [-0.0, 0.0, -1.0, 0.0], [-INF], [NAN], [-NAN, 1.0],
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES[:4], ids=str)
def test_special_values(dtype):
    """Rows and columns of 41 elements, which are whole vectors and a rest."""
    x = torch.tensor([(special * 41)[:41] for special in SPECIAL]).to(dtype)
    x = torch.cat([x, x.flip(1), torch.tensor(SPECIAL[2] * 6)[:41].to(dtype).roll(7)[None]])
    for dim, y in ((1, x), (0, x.t().contiguous())):
        same(compiled(both(dim))(y), both(dim)(y))
        check_reports()


@pytest.mark.parametrize("dtype", DTYPES[4:9], ids=str)
def test_extreme_integers(dtype):
    info = torch.iinfo(dtype)
    x = torch.tensor([0, info.max, info.min, info.max, 1, info.min] * 7, dtype=dtype)
    same(compiled(both(0))(x), both(0)(x))


def test_one_result_alone():
    for dtype in (torch.float32, torch.int64):
        x = values((5, 70), dtype)
        for pick in (0, 1):

            def function(x, pick=pick):
                return torch.cummax(x, 1)[pick], torch.cummin(x, 0)[pick]

            same(compiled(function)(x), function(x))
            check_reports()


def test_views_and_what_is_around():
    x = values((6, 40), torch.float32)

    def function(x):
        largest, index = torch.cummax(x.t() * 2, 0)
        smallest, _ = torch.cummin((x[:, 3:] + 1)[:, ::2], 1)
        return largest + index, smallest.exp().sum(1), index[::3]

    for a, b in zip(compiled(function)(x), function(x), strict=True):
        torch.testing.assert_close(a, b)
    check_reports()


def test_sizes_that_change():
    for dim in (0, 1):
        run = compiled(both(dim), dynamic=True)
        for shape in ((3, 50), (17, 33), (2, 1000), (40, 3)):
            x = values(shape, torch.float32, seed=shape[0])
            same(run(x), both(dim)(x))
        assert len(inkle.reports()) == 1
        check_reports()


def test_result_over_the_argument():
    def function(x):
        x.copy_(torch.cummax(x, 1)[0])
        return x.sum()

    x = values((4, 90), torch.float32)
    y = x.clone()
    assert torch.equal(compiled(function)(x), function(y))
    assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "shape, dim", [((3, 37), 1), ((37, 3), 0), ((4, 5, 6), 1), ((), 0), ((0, 3), 0)], ids=str
)
def test_gradients(dtype, shape, dim):
    """Each a sum of so few small integers that it is exact in any order."""

    def function(x, weight):
        return (torch.cummax(x, dim)[0] * weight + torch.cummin(x * 2, dim)[0]).sum()

    x, weight = values(shape, dtype), values(shape, dtype, seed=1).sign()
    grads = []
    for run in (compiled(function), function):
        leaf = x.clone().requires_grad_()
        run(leaf, weight).backward()
        grads.append(leaf.grad)
    assert torch.equal(*grads)
    assert len(inkle.reports()) == 2
    check_reports()
