"""Views that a graph makes and returns: lazy conjugates and negatives, and parts of arguments."""

from __future__ import annotations

import pytest
import torch

import inkle
from checks import IS_OLDER_TORCH, check, compiled, leaves, randn

pytestmark = pytest.mark.usefixtures("device")


def complex_numbers():
    return [randn(4, 6, dtype=torch.complex64)]


# --- Lazy conjugates and negatives ----------------------------------------------------------------

LAZY = {
    "imaginary part": lambda x: x.conj().imag + 1,
    "summed": lambda x: x.conj().imag.sum(),
    "adjoint": lambda x: x.mH.imag.contiguous() * 2,
    "of a transform": lambda x: torch.fft.rfft(x.real.contiguous()).conj().imag * 2,
    "negative": lambda x: torch._neg_view(x.real) + 1,
    "product": lambda x: (x.conj() * x).real + 1,
    "returned": lambda x: (x * 2).conj(),
    "argument returned": lambda x: x.conj(),
    "imaginary part returned": lambda x: (x * 2).conj().imag,
    "negative returned": lambda x: torch._neg_view(x * 2),
    "both returned": lambda x: torch._neg_view((x * 2).conj()),
    "adjoint returned": lambda x: (x * 2).mH,
    "written": lambda x: (x.conj().add_(1j), x + 0),
    "written and returned": lambda x: x.conj().mul_(2j),
    "imaginary part written": lambda x: x.conj().imag.add_(1),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LAZY)
def test_lazy_views(name, dynamic):
    check(LAZY[name], complex_numbers, dynamic=dynamic)
    torch._dynamo.reset()
    wanted = leaves(LAZY[name](*complex_numbers()))
    found = leaves(compiled(LAZY[name], dynamic=dynamic)(*complex_numbers()))
    assert [(t.is_conj(), t.is_neg()) for t in found] == [(t.is_conj(), t.is_neg()) for t in wanted]


def test_lazy_view_that_repeats():
    check(lambda x: torch._neg_view((x.real[0] * 2).expand(3, 6)), complex_numbers)


def test_lazy_view_in_training():
    x, y = (t.requires_grad_() for t in complex_numbers() + complex_numbers())

    def f(x):
        return (x.conj().imag * 2).sin().sum()

    torch._dynamo.reset()
    found, wanted = compiled(f, strict=False)(x), f(y)
    torch.testing.assert_close(found, wanted)
    found.backward()
    wanted.backward()
    torch.testing.assert_close(x.grad, y.grad)


@torch.library.custom_op("inkle_test::lazily_negated", mutates_args=())
def lazily_negated(x: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(x.clone())


@lazily_negated.register_fake
def _(x):
    return torch.empty_like(x)


def test_lazy_result_of_custom_op():
    check(lambda x: lazily_negated(x.sin()) + x, lambda: [randn(5, 7)])


# --- Views of arguments ---------------------------------------------------------------------------

# Of x: [6, 7, 8]; d and e are 2 and 3, symbols where shapes are dynamic.
VIEWS = {
    "permute": lambda x, d, e: x.permute(2, 0, 1),
    "t": lambda x, d, e: x[1].t(),
    "select": lambda x, d, e: x.select(1, d),
    "select from the end": lambda x, d, e: x.transpose(0, 2)[:, -d],
    "slice start": lambda x, d, e: x[:, d:],
    "slice end": lambda x, d, e: x.permute(1, 2, 0)[..., : d + 1],
    "slice both": lambda x, d, e: x.permute(1, 2, 0)[..., 1 : 1 + d],
    "slice of t": lambda x, d, e: x[0].t()[..., 1 : 1 + d],
    "slice symbols": lambda x, d, e: x.transpose(0, 1)[:, d : d + e],
    "slice last": lambda x, d, e: x.transpose(0, 1)[:, -d:],
    "slice up to the last": lambda x, d, e: x.transpose(0, 1)[:, :-d],
    "slice between lasts": lambda x, d, e: x.transpose(0, 1)[:, -e:-1],
    "slice steps": lambda x, d, e: x.transpose(0, 1)[:, d::2],
    "slice steps of d": lambda x, d, e: x.transpose(0, 1)[:, 1::d],
    "slice twice": lambda x, d, e: x.t_()[1 : 1 + d] if x.dim() == 2 else x[d:, 1:][:, :, e:],
    "beyond": lambda x, d, e: x.permute(1, 2, 0)[..., 1 : 100 + d],
    "narrow": lambda x, d, e: x.transpose(1, 2).narrow(1, d, e),
    "unfold": lambda x, d, e: x.transpose(0, 1).unfold(0, e, d),
    "unfold after a slice": lambda x, d, e: x.transpose(0, 1)[1 : 3 + d].unfold(0, 2, 1),
    "expand": lambda x, d, e: x[:, d : d + 1].expand(6, d + e, 8),
    "diagonal": lambda x, d, e: x.diagonal(1, 0, 2),
    "diagonal of a slice": lambda x, d, e: x.transpose(0, 2)[d:].diagonal(0, 1, 2),
    "chunk": lambda x, d, e: x.transpose(0, 2).chunk(2, 0)[1],
    "split": lambda x, d, e: x.transpose(0, 2).split(d + 1, 0)[1],
    "split sizes": lambda x, d, e: x.transpose(0, 2).split([d, e, 8 - d - e], 0)[1],
    "unbind": lambda x, d, e: x.transpose(0, 2).unbind(0)[3],
    "view": lambda x, d, e: x[d:].view(-1, 8)[e:],
    "view of all": lambda x, d, e: x.view(-1)[d : d + e],
    "merged": lambda x, d, e: x.flatten(0, 1)[e:].transpose(0, 1),
    "parted": lambda x, d, e: x[:, :, d:].unflatten(2, (d, -1))[:, 1:, :, e - d :],
    "dimensions of one": lambda x, d, e: x[:, d : d + 1].squeeze(1).unsqueeze(0)[:, e:],
    "as_strided": lambda x, d, e: x.as_strided((d, e), (3, 1), d),
    "bits": lambda x, d, e: x.view(torch.int32)[d:],
    "bytes": lambda x, d, e: x[:, :, d:].view(torch.uint8)[..., e:],
    "movedim": lambda x, d, e: x.movedim(0, 2)[d:, :, e:],
}


def made(kind):
    """[6, 7, 8], dense, inside of a larger tensor, or transposed."""
    if kind == "dense":
        return randn(6, 7, 8)
    if kind == "inside":
        return randn(9, 7, 8)[2:8]
    return randn(7, 6, 8).transpose(0, 1)


# What AOTAutograd itself makes anew otherwise: views of other numbers, of which it has as_strided of
# the argument, where sizes are symbols; and writes through windows that overlap.
TORCHS_OWN = {("bits", True), ("bytes", True)}
OVERLAPPING = ("unfold", "unfold after a slice")
# With a default device an older TorchDynamo cuts the graph at unflatten, and its AOTAutograd returns the
# argument of what it has written to.
CUT = IS_OLDER_TORCH


def geometry(tensor, argument):
    """Strides of dimensions of one say nothing, nor does an offset in memory that others cannot see."""
    strides = [t for s, t in zip(tensor.shape, tensor.stride()) if s != 1]
    is_view = tensor.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr()
    return tuple(tensor.shape), strides, tensor.dtype, is_view and tensor.storage_offset(), is_view


def compare_view(f, kind, dynamic, numbers=(2, 3)):
    torch._dynamo.reset()
    run = compiled(f, dynamic=dynamic, strict=False)
    for _ in range(2):
        x, y = made(kind), made(kind)
        try:
            wanted = leaves(f(y, *numbers))
        except RuntimeError:
            pytest.skip("eager has no such view")
        found = leaves(run(x, *numbers))
        for a, b in zip(found, wanted):
            assert torch.equal(a, b)
        assert [geometry(t, x) for t in found] == [geometry(t, y) for t in wanted]
        # Who writes to a view writes to the argument.
        try:
            wanted[0].fill_(3)
        except RuntimeError:  # places that overlap
            continue
        found[0].fill_(3)
        assert torch.equal(x, y)
        for a, b in zip(found, wanted):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["dense", "inside", "transposed"])
@pytest.mark.parametrize("name", VIEWS)
def test_returned_view(name, kind, dynamic):
    if (name, dynamic) in TORCHS_OWN:
        pytest.skip("AOTAutograd's own")
    view = VIEWS[name]
    compare_view(view, kind, dynamic)
    compare_view(lambda x, d, e: (view(x, d, e), view(x, d, e) * 2, x + 1), kind, dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_returned_view_of_written_argument(name, dynamic):
    if (name, dynamic) in TORCHS_OWN or name in OVERLAPPING:
        pytest.skip("AOTAutograd's own")
    if name == "parted" and not dynamic and CUT:
        pytest.skip("AOTAutograd's own")
    view = VIEWS[name]
    compare_view(lambda x, d, e: view(x.mul_(2), d, e), "dense", dynamic)
    compare_view(lambda x, d, e: (view(x, d, e).sub_(1), x * 2), "dense", dynamic)


def strided_write(x):
    x.as_strided((2, 3), (3, 1)).add_(1)
    return x.sum()


# No guard of TorchDynamo says where in its memory an argument begins. (Of a write at an absolute offset
# AOTAutograd makes one within the argument.)
STRIDED = {
    "own offset": lambda x: x.as_strided((2, 3), (3, 1)) + 1,
    "absolute offset": lambda x: x.as_strided((2, 3), (3, 1), 1) + 1,
    "of a slice": lambda x: x[1:].as_strided((2, 3), (3, 1), 4) + 1,
    "of a slice, own offset": lambda x: x[1:].as_strided((2, 2), (3, 1)) + 1,
    "of a slice that the graph made": lambda x: (x * 2)[1:].as_strided((2, 2), (3, 1), 1) + 1,
    "of a view that the graph made": lambda x: (x * 2).t().as_strided((2, 2), (3, 1), 1) + 1,
    "of what the graph made": lambda x: (x * 2).as_strided((2, 2), (3, 1), 1) + 1,
    "of a view": lambda x: x.t().as_strided((2, 3), (3, 1), storage_offset=1) + 1,
    "returned": lambda x: x.as_strided((2, 3), (3, 1), 1),
    "copy": lambda x: torch.as_strided_copy(x, (2, 3), (3, 1), 1) + 1,
    "scatter": lambda x: torch.as_strided_scatter(x, x.new_ones(2, 3), (2, 3), (3, 1), 3) + 1,
    "write": strided_write,
}


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("name", STRIDED)
def test_strides_through_the_memory_of_an_argument(name, first):
    torch._dynamo.reset()
    run = compiled(STRIDED[name], strict=False)
    for begin in (first, 0, 4, 7):
        ours, eagers = (torch.arange(24.0) for _ in range(2))
        try:
            wanted = STRIDED[name](eagers[begin : begin + 9].view(3, 3))
        except RuntimeError:  # beyond the memory
            continue
        found = run(ours[begin : begin + 9].view(3, 3))
        assert torch.equal(found, wanted)
        assert torch.equal(ours, eagers)


def test_a_view_of_an_argument_that_two_parts_of_a_graph_make():
    """AOTAutograd makes it by sizes, strides and offset: the last part returns a view of the argument, not
    of what the first part hands it."""
    def program(x, n):
        pairs = x.unfold(-1, 2, 2)
        return pairs[:1].expand(pairs.shape), int(n / 4)

    base = randn(18, dtype=torch.complex64)
    x = base[3:].view(5, 3)
    torch._dynamo.reset()
    inkle.report.forget()
    found, number = compiled(program, strict=False, dynamic=True)(x, 9)
    assert number == 2 and found.data_ptr() == x.data_ptr()
    torch.testing.assert_close(found, program(x, 9)[0])
    plans = [str(r.callable.plan) for r in inkle.reports()]
    assert len(plans) == 2 and "return arg" in plans[1], plans


def test_a_view_of_a_written_argument_that_an_earlier_part_of_a_graph_makes():
    """The last part writes to the argument, and returns the view of it: AOTAutograd reads its offset."""
    def program(x, n):
        part = x[:n]
        scaled = torch.nn.functional.leaky_relu(part, x.shape[1] ** -0.25)
        x[..., 1:].copy_(x[..., :-1].clone())
        return part, scaled, part + 1

    whole = randn(18)
    again = whole.clone()
    torch._dynamo.reset()
    inkle.report.forget()
    found = compiled(program, strict=False, dynamic=True)(whole[3:].view(5, 3), 9)
    wanted = program(again[3:].view(5, 3), 9)
    assert found[0].storage_offset() == 3 and found[0].data_ptr() == whole[3:].data_ptr()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(whole, again)
    assert len(inkle.reports()) == 2


def bases(results):
    """Of each result: None, the position of its base among the results, or the sizes of its base."""
    at = {id(t): i for i, t in enumerate(results)}
    return [b if b is None else at.get(id(b), tuple(b.shape)) for b in (t._base for t in results)]


def halves(x):
    """Takes a number that is no size: a graph is cut there."""
    return torch.nn.functional.leaky_relu(x, x.shape[1] ** -0.25)


def detached_and_views(y):
    detached = y.detach()
    return y, detached, detached[1:], y.t(), detached.t()


def integers_and_views(y):
    integers = y.view(torch.int32)
    return y, integers, integers[1:], y[0]


@pytest.mark.parametrize(
    "make, results",
    [
        (torch.sin, lambda y: (y.view(-1), y)),
        (torch.sin, lambda y: (y.view(3, 2), y[1:], y.t(), y, y.view(-1))),
        (torch.sin, lambda y: (y.view(-1), y.t())),
        (lambda x: x.sum(0, keepdim=True), lambda y: (y.view(-1), y)),
        (lambda x: torch.cat([x[0], x[0]]), lambda y: (y.reshape(-1), y)),
        (torch.sort, lambda y: (y[0][:1], y[0], y[1].view(-1), y[1])),
        (halves, lambda y: (y[1:], y, y.sin())),
        (lambda x: x.sin().detach(), lambda d: (d[1:], d, d.t())),
        (lambda x: torch.zeros_like(x).detach(), lambda d: (d, d.t(), d[1:].detach())),
        (lambda x: x * 2, lambda y: (y, y.detach(), y.view(-1))),
        (lambda x: (x * 2, (x * 2).detach()), lambda y: (*y, y[1][1:])),
        (lambda x: x * 2, detached_and_views),
        (lambda x: x * 2, integers_and_views),
        (lambda x: x[:0].mean(1, keepdim=True), lambda y: (y, y, y.view(-1))),
        (lambda x: x.to(torch.complex64).t().reshape(-1), lambda c: (c[1:], c, c[:1])),
        (lambda x: (x.t().sub_(0), x.clone())[1], lambda c: (c[1:], c, c.t())),
    ],
    ids=["a view first", "views around", "two views", "a sum", "joined parts", "two bases", "in parts",
         "behind detach", "behind two", "beside detach", "of equal values", "of what is detached", "of integers",
         "of no elements", "copied by eager with other sizes", "copy of a transposed value"],
)
def test_of_results_that_share_memory_the_same_one_is_the_base(make, results):
    """In whatever order they are returned; what is no view in eager can be detached in place."""
    def program(x):
        return results(make(x))

    x = randn(2, 3)
    torch._dynamo.reset()
    expected, found = program(x), compiled(program, strict=False, dynamic=make is halves)(x)
    for ours, eagers in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, eagers)
    assert bases(found) == bases(expected)
    for ours, eagers in zip(found, expected, strict=True):
        if not eagers._is_view():
            ours.detach_()


def test_results_of_ops_in_eager_are_no_views():
    """In the first call as in the next."""
    def program(x):
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        return y, y[1:]

    x = torch.rand(2, 2, 4, 8, dtype=torch.float64)
    torch._dynamo.reset()
    run = compiled(program, strict=False)
    assert [bases(run(x)) for _ in range(3)] == [bases(program(x))] * 3 == [[None, 0]] * 3


KEPT = []


@torch.library.custom_op("inkle_views::keeps", mutates_args=())
def keeps(x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x.t().contiguous())
    return KEPT[-1]


@keeps.register_fake
def _(x):
    return x.new_empty(x.shape[::-1])


def test_what_an_op_in_eager_keeps_keeps_its_sizes():
    def program(x):
        y = torch.ops.aten._unsafe_view(keeps(x), [6])
        return y[:2], y

    KEPT.clear()
    torch._dynamo.reset()
    found = compiled(program, strict=False)(randn(2, 3))
    assert [tuple(t.shape) for t in (*found, *KEPT)] == [(2,), (6,), (3, 2)]
    assert found[1].data_ptr() == KEPT[0].data_ptr()


def without_a_gradient(x):
    draws, mask, d = torch.randn_like(x), x >= 0, (x * 2).detach()
    return draws[:1], draws, mask, mask.t(), d.view(-1), d, x.argsort(-1)[:1], x.sin()


HOW_CALLS_RUN = pytest.mark.parametrize(
    "how", [{"strict": True}, {"strict": False, "fail_stage": "run"}], ids=["compiled", "in eager"]
)


@HOW_CALLS_RUN
def test_results_without_a_gradient_are_views_of_each_other_in_training(how):
    x = randn(2, 3).requires_grad_()
    torch._dynamo.reset()
    run = torch.compile(without_a_gradient, backend="inkle", options={"random": "eager", **how})
    torch.manual_seed(0)
    expected = without_a_gradient(x)
    torch.manual_seed(0)
    found = run(x)
    torch.testing.assert_close(found, expected)
    assert [f.requires_grad for f in found] == [e.requires_grad for e in expected]
    assert bases(found)[:6] == bases(expected)[:6] == [1, None, None, 2, 5, None]
    found[-1].sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


@HOW_CALLS_RUN
def test_what_no_grad_makes_is_views_of_each_other_in_training(how):
    def program(x):
        with torch.no_grad():
            y = x * 2
            halves = y.view(-1), y[:1]
        return y, *halves, x.sin()

    x = randn(2, 3).requires_grad_()
    torch._dynamo.reset()
    expected, found = program(x), torch.compile(program, backend="inkle", options=how)(x)
    torch.testing.assert_close(found, expected)
    assert [f.requires_grad for f in found] == [e.requires_grad for e in expected]
    assert bases(found) == bases(expected) == [None, 0, 0, None]
    found[-1].sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


# --- Writes into repeated tensors ------------------------------------------------------------------

# Torch 2.11 states strides of 0 for what these return.
SCATTERS = {
    "slice": lambda x, y: torch.slice_scatter(x.expand(3, 9), y, 1, 2, 8, 2),
    "slice, transposed": lambda x, y: torch.slice_scatter(x.expand(3, 9), y, 1, 2, 8, 2).t().cumsum(0).sum(1),
    "row": lambda x, y: torch.select_scatter(x.expand(3, 9), y.reshape(9), 0, 1),
    "row, summed": lambda x, y: torch.select_scatter(x.expand(3, 9), y.reshape(9), 0, 1).sum(0),
    "diagonal": lambda x, y: torch.diagonal_scatter(x.expand(3, 9), y[0]),
    "memory": lambda x, y: torch.as_strided_scatter(x.expand(3, 9), y, (3, 3), (3, 1)),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_writes_into_repeated_tensors(name):
    check(SCATTERS[name], lambda: [randn(3)[0], randn(3, 3)], strict=False, calls=2)
