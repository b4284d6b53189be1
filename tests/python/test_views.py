"""Views that a graph makes and returns: lazy conjugates and negatives, and parts of arguments."""

from __future__ import annotations

import pytest
import torch

from checks import check, compiled, leaves, randn

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
    "expanded returned": lambda x: torch._neg_view((x.real[0] * 2).expand(3, 6)),
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
