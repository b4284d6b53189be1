"""Attention of bf16 on the processor, in tiles, in pairs or in f32, as it has them: against f64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import inkle

# Batch, heads, heads of k and v, rows, columns, features, features of v.
SHAPES = [
    (2, 3, 3, 128, 128, 32, 32), (1, 4, 4, 256, 256, 64, 64), (1, 2, 2, 130, 300, 128, 128), (2, 2, 2, 197, 197, 64, 64),
    (1, 4, 2, 77, 77, 40, 40), (1, 2, 1, 4, 513, 32, 48), (1, 2, 2, 16, 16, 16, 16), (1, 1, 1, 5, 17, 20, 24),
    (2, 2, 2, 1, 64, 64, 64), (1, 2, 2, 33, 31, 96, 80),
]


def inputs(batch, heads, kv_heads, rows, columns, features, values):
    torch.manual_seed(rows)
    shapes = (batch, heads, rows, features), (batch, kv_heads, columns, features), (batch, kv_heads, columns, values)
    return [torch.randn(shape).bfloat16() for shape in shapes]


def check(function, given):
    """The error against f64 beside eager's.

    Eager rounds results, and in some of its algorithms weights. As the rounded weights of a row add about as
    much to the mean square as the rounded result, it is twice as large at most, but for chance.
    """
    torch._dynamo.reset()
    inkle.reset()
    found = torch.compile(function, backend="inkle")(*given)
    assert not inkle.reports()[-1].given_up
    exact = function(*(t.double() if t.is_floating_point() else t for t in given))
    eager = function(*given)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found.isfinite(), exact.isfinite())
    keep = exact.isfinite()
    error, others = ((t.double() - exact)[keep] for t in (found, eager))
    assert error.square().mean() <= 2.5 * others.square().mean() + 1e-12
    assert error.abs().max() <= 2 * others.abs().max() + 1e-3
    return found


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, is_causal, symbolic):
    gqa = shape[1] != shape[2]

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=gqa)

    given = inputs(*shape)
    if symbolic:
        for t in given:
            torch._dynamo.maybe_mark_dynamic(t, 2)
    with torch.no_grad():
        check(attend, given)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES[:5])
def test_masks(shape, dtype):
    q, k, v = inputs(*shape)
    mask = torch.rand(shape[3], shape[4]) > 0.3
    mask[0] = True
    if dtype != torch.bool:
        mask = torch.where(mask, torch.randn(mask.shape), -math.inf).to(dtype)

    gqa = shape[1] != shape[2]

    def attend(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=gqa)

    with torch.no_grad():
        check(attend, (q, k, v, mask))


def test_padding_mask_of_a_batch():
    q, k, v = inputs(3, 2, 2, 64, 64, 32, 32)
    keep = torch.arange(64)[None, :] < torch.tensor([64, 17, 40])[:, None]

    def attend(q, k, v, keep):
        return F.scaled_dot_product_attention(q, k, v, keep[:, None, None, :])

    with torch.no_grad():
        check(attend, (q, k, v, keep))


@pytest.mark.parametrize("transposed", [False, True])
def test_strides(transposed):
    """Heads behind rows, and k whose features lie apart."""
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in inputs(2, 3, 3, 70, 90, 32, 32))
    if transposed:
        k = k.transpose(2, 3).contiguous().transpose(2, 3)
    with torch.no_grad():
        check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (q, k, v))


@pytest.mark.parametrize("scale", [0.5, 0.0, -0.25])
def test_scales(scale):
    with torch.no_grad():
        check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale), inputs(1, 2, 2, 40, 50, 32, 32))


@pytest.mark.parametrize("columns", [33, 64, 300])
@pytest.mark.parametrize("of", ["q", "k", "v"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_stays_where_it_is(value, of, columns):
    """In the last row: nothing of it is multiplied by the zeros behind the end."""
    given = dict(zip("qkv", inputs(1, 2, 2, 40, columns, 32, 32)))
    given[of][0, 0, -1, 3] = value

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(attend, backend="inkle", dynamic=False)(**given)
        exact = attend(**{name: t.double() for name, t in given.items()})
    assert torch.equal(found.isnan(), exact.isnan())
    assert torch.equal(found.isinf(), exact.isinf())
    torch.testing.assert_close(found.double(), exact, rtol=2e-2, atol=2e-2, equal_nan=True)
