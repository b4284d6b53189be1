"""Attention of bf16 on the processor, in tiles, in pairs or in f32, as it has them: against f64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import inkle
from inkle import attend, dropout

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

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=gqa)

    given = inputs(*shape)
    if symbolic:
        for t in given:
            torch._dynamo.maybe_mark_dynamic(t, 2)
    with torch.no_grad():
        check(function, given)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES[:5])
def test_masks(shape, dtype):
    q, k, v = inputs(*shape)
    mask = torch.rand(shape[3], shape[4]) > 0.3
    mask[0] = True
    if dtype != torch.bool:
        mask = torch.where(mask, torch.randn(mask.shape), -math.inf).to(dtype)

    gqa = shape[1] != shape[2]

    def function(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=gqa)

    with torch.no_grad():
        check(function, (q, k, v, mask))


def test_padding_mask_of_a_batch():
    q, k, v = inputs(3, 2, 2, 64, 64, 32, 32)
    keep = torch.arange(64)[None, :] < torch.tensor([64, 17, 40])[:, None]

    def function(q, k, v, keep):
        return F.scaled_dot_product_attention(q, k, v, keep[:, None, None, :])

    with torch.no_grad():
        check(function, (q, k, v, keep))


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

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(function, backend="inkle", dynamic=False)(**given)
        exact = function(**{name: t.double() for name, t in given.items()})
    assert torch.equal(found.isnan(), exact.isnan())
    assert torch.equal(found.isinf(), exact.isinf())
    torch.testing.assert_close(found.double(), exact, rtol=2e-2, atol=2e-2, equal_nan=True)


def with_gradients(function, given, grad, symbolic=False):
    leaves = [t.detach().clone().requires_grad_() for t in given]
    for t in leaves if symbolic else ():
        torch._dynamo.maybe_mark_dynamic(t, 2)
    out = function(*leaves)
    out.backward(grad.to(out.dtype))
    return [out.detach(), *(t.grad for t in leaves)]


def check_gradients(function, eager, given, symbolic=False):
    """Results and gradients, each about as far from f64 as eager's.

    Where values are not as wide as keys, or weights are dropped, eager computes in f32, and only the result of
    the forward has rounded weights. Of more than 512 columns a gradient takes what its rows have in common from
    the rounded result, which eager does without rounding there.
    """
    allowed = 1.3
    if given[0].shape[3] != given[2].shape[3]:
        allowed = 2.5
    if given[1].shape[2] > 512:
        allowed = 8
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(5)
    grad = torch.randn(*given[0].shape[:3], given[2].shape[3]).bfloat16()
    torch.manual_seed(11)
    compiled = torch.compile(function, backend="inkle", options={"strict": True, "random": "fast"})
    found = with_gradients(compiled, given, grad, symbolic)
    assert all([step["label"] for step in r.steps].count("attention") == 1 for r in inkle.reports())
    exact = with_gradients(eager, [t.double() for t in given], grad)
    for f, e, w in zip(found, with_gradients(eager, given, grad), exact):
        assert f.dtype == torch.bfloat16
        error, others = ((t.double() - w).square().mean() for t in (f, e))
        assert error <= allowed * others + 1e-12


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients(shape, is_causal, symbolic):
    gqa = shape[1] != shape[2]

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=gqa)

    check_gradients(function, function, inputs(*shape), symbolic)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES[:5])
def test_gradients_with_masks(shape, dtype):
    gqa = shape[1] != shape[2]
    mask = torch.rand(shape[3], shape[4]) > 0.3
    mask[:, 0] = True
    if dtype != torch.bool:
        mask = torch.where(mask, torch.randn(mask.shape), -math.inf).to(dtype)

    def function(q, k, v):
        own = mask if mask.dtype == torch.bool else mask.to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, own, enable_gqa=gqa)

    check_gradients(function, function, inputs(*shape))


@pytest.mark.parametrize("p", [0.1, 0.75])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout(shape, is_causal, p):
    """Beside eager's algorithm, which computes in f32, with the same numbers."""
    batch, heads, kv_heads, rows, columns, features, _ = shape
    torch.manual_seed(11)
    factors = attend.factors((batch, heads, rows, columns), dropout.draw_seed(torch.device("cpu")), 0, p)

    def given_numbers(q, k, v):
        dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
        q, k, v = q.to(wide), *(t.to(wide).repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(features)
        if is_causal:
            scores = scores.masked_fill(~torch.ones(rows, columns, dtype=torch.bool).tril(), -math.inf)
        return ((F.softmax(scores, -1) * factors.to(wide)) @ v).to(dtype)

    def function(q, k, v):
        return F.scaled_dot_product_attention(
            q, k, v, None, p, is_causal, enable_gqa=heads != kv_heads
        )

    check_gradients(function, given_numbers, inputs(*shape))
