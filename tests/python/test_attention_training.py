"""Attention in training: one op with its gradient, which keep no matrix of weights."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inkle
from checks import narrow
from inkle import attend, dropout

pytestmark = pytest.mark.usefixtures("device")

BATCH, HEADS, ROWS, WIDTH = 2, 4, 70, 32


class Attention(nn.Module):
    """Projections around a function of q, k and v over (batch, head, row, feature)."""

    def __init__(self, function, kv_heads=HEADS):
        super().__init__()
        self.function, self.kv_heads = function, kv_heads
        self.q = nn.Linear(HEADS * WIDTH, HEADS * WIDTH)
        self.k = nn.Linear(HEADS * WIDTH, kv_heads * WIDTH)
        self.v = nn.Linear(HEADS * WIDTH, kv_heads * WIDTH)

    def forward(self, x):
        q, k, v = (l(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2) for l in (self.q, self.k, self.v))
        return self.function(q, k, v).transpose(1, 2).flatten(2)


def make_mask(kind):
    generator = torch.Generator("cpu").manual_seed(3)
    numbers = torch.rand(BATCH, 1, ROWS, ROWS, generator=generator, device="cpu")
    numbers = numbers.to(torch.get_default_device())
    if kind == "bool":
        keep = numbers > 0.3
        keep[..., 0] = True
        return keep
    return {"float": numbers * 4 - 2, "tril": torch.ones(1, 1, ROWS, ROWS).tril(), None: None}[kind]


def sdpa(p, mask=None, **how):
    given = make_mask(mask)
    return lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, None if given is None else given.to(v.dtype) if mask == "float" else given, p, **how
    )


def by_hand(p, mask=None, style="fill"):
    given = make_mask(mask)

    def function(q, k, v):
        scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(WIDTH))
        if mask == "float":
            scores = scores + given.to(scores.dtype)
        elif mask is not None and style == "fill":
            scores = scores.masked_fill(given == 0, float("-inf"))
        elif mask is not None:
            scores = torch.where(given.bool(), scores, torch.finfo(scores.dtype).min)
        weights = F.softmax(scores, -1)
        return (F.dropout(weights, p, True) if p else weights) @ v

    return function


CASES = {
    "sdpa": lambda p: Attention(sdpa(p)),
    "sdpa causal": lambda p: Attention(sdpa(p, is_causal=True)),
    "sdpa bool": lambda p: Attention(sdpa(p, "bool")),
    "sdpa float": lambda p: Attention(sdpa(p, "float")),
    "sdpa grouped": lambda p: Attention(sdpa(p, enable_gqa=True), kv_heads=2),
    "by hand": lambda p: Attention(by_hand(p)),
    "by hand, filled": lambda p: Attention(by_hand(p, "tril")),
    "by hand, selected": lambda p: Attention(by_hand(p, "tril", "where")),
    "by hand, added": lambda p: Attention(by_hand(p, "float")),
}


def gradients(module, x, dtype=None):
    module.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    with narrow(x, dtype is not None):
        y = module(x)
    y.float().square().sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in module.parameters())]


def exact(module, x):
    """In f64."""
    wide = Attention(module.function, module.kv_heads).double()
    wide.load_state_dict(module.state_dict())
    wide.zero_grad(set_to_none=True)
    x = x.double().requires_grad_()
    y = wide(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in wide.parameters())]


def compiled_gradients(module, x, dtype=None, random="fast", **how):
    torch._dynamo.reset()
    inkle.reset()
    options = {"strict": True, "random": random}
    torch.manual_seed(11)
    found = gradients(torch.compile(module, backend="inkle", options=options, **how), x, dtype)
    reports = inkle.reports()
    assert len(reports) == 2 and all(r.compiled for r in reports)
    return found, reports


def labels(report):
    return [step["label"] for step in report.steps]


def check_one_op(reports):
    if torch.get_default_device().type != "cpu":
        return  # there it is an op of torch
    for report in reports:
        assert labels(report).count("attention") == 1
        assert not any("softmax" in label or "dropout" in label for label in labels(report))
    assert reports[0].kept_bytes < BATCH * HEADS * ROWS * ROWS * 4 + 5 * BATCH * ROWS * HEADS * WIDTH * 4


def rms(t):
    return t.square().mean().sqrt().item()


def check_errors(found, eager, wanted, floor):
    for f, e, w in zip(found, eager, wanted):
        scale = w.abs().max().item()
        if torch.get_default_device().type != "cpu" and scale < 1e-12:
            continue  # the keys' bias moves no weight: its gradients are roundings alone
        assert rms(f.double() - w) <= 1.5 * rms(e.double() - w) + floor * scale


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_as_exact_as_eagers(name):
    torch.manual_seed(0)
    module, x = CASES[name](0.0), torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, reports = compiled_gradients(module, x)
    check_one_op(reports)
    check_errors(found, gradients(module, x), exact(module, x), 1e-7)


@pytest.mark.parametrize("name", CASES)
def test_gradients_under_autocast(name):
    torch.manual_seed(0)
    module, x = CASES[name](0.0), torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, reports = compiled_gradients(module, x, torch.bfloat16)
    check_one_op(reports)
    check_errors(found, gradients(module, x, torch.bfloat16), exact(module, x), 1e-3)


class Dropped:
    """Attention in eager with the numbers that the op draws in its place."""

    def __init__(self, p, mask=None, causal=False, style="fill"):
        self.p, self.mask, self.causal, self.style = p, make_mask(mask), causal, style

    def __call__(self, q, k, v):
        share = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(share, 1) for t in (k, v))
        scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(WIDTH))
        mask = self.mask
        if self.causal:
            mask = torch.ones(ROWS, ROWS, dtype=torch.bool).tril()
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        elif mask is not None and self.style == "add":
            scores = scores + mask
        elif mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = F.softmax(scores, -1)
        torch.manual_seed(11)
        seed = dropout.draw_seed(torch.device("cpu"))
        return (weights * attend.factors(tuple(scores.shape), seed, 0, self.p)) @ v


DROPPED = {
    "sdpa": lambda p: Dropped(p),
    "sdpa causal": lambda p: Dropped(p, causal=True),
    "sdpa bool": lambda p: Dropped(p, "bool"),
    "sdpa float": lambda p: Dropped(p, "float", style="add"),
    "sdpa grouped": lambda p: Dropped(p),
    "by hand": lambda p: Dropped(p),
    "by hand, filled": lambda p: Dropped(p, "tril"),
    "by hand, selected": lambda p: Dropped(p, "tril"),
    "by hand, added": lambda p: Dropped(p, "float", style="add"),
}


@pytest.mark.cpu_only  # elsewhere torch draws them
@pytest.mark.parametrize("p", [0.1, 0.75])
@pytest.mark.parametrize("name", CASES)
def test_dropout_is_eagers_given_its_numbers(name, p):
    torch.manual_seed(0)
    module, x = CASES[name](p), torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, reports = compiled_gradients(module, x)
    check_one_op(reports)
    module.function = DROPPED[name](p)
    check_errors(found, gradients(module, x), exact(module, x), 1e-7)


@pytest.mark.parametrize("name", CASES)
def test_eagers_numbers_where_they_are_asked_for(name):
    torch.manual_seed(0)
    module, x = CASES[name](0.25), torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, _ = compiled_gradients(module, x, random="eager")
    torch.manual_seed(11)
    for f, w in zip(found, gradients(module, x)):
        torch.testing.assert_close(f, w, rtol=1e-4, atol=1e-4)


def test_dropout_keeps_its_share_of_the_weights():
    seed = torch.tensor(5)
    for p in (0.1, 0.5):
        drawn = attend.factors((2, 3, 128, 200), seed, 4, p)
        share = (drawn != 0).double().mean().item()
        assert abs(share - (1 - p)) < 5 * math.sqrt(p * (1 - p) / drawn.numel())
        assert (attend.factors((2, 3, 128, 200), seed, 5, p) != drawn).any()


@pytest.mark.cpu_only  # elsewhere that is what torch's kernels make of it
def test_everything_dropped_is_zero():
    torch.manual_seed(0)
    module, x = Attention(sdpa(1.0)), torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, _ = compiled_gradients(module, x)
    assert not any(t.any() for t in found)


@pytest.mark.parametrize("rows", [1, 5, 64, 200])
@pytest.mark.parametrize("p", [0.0, 0.2])
def test_one_compile_for_all_lengths(rows, p):
    torch.manual_seed(0)
    module = Attention(sdpa(p, is_causal=True))
    torch._dynamo.reset()
    inkle.reset()
    run = torch.compile(module, backend="inkle", dynamic=True, options={"strict": True})
    for length in (96, max(rows, 2)):
        x = torch.randn(BATCH, length, HEADS * WIDTH)
        found = gradients(run, x)
    assert len(inkle.reports()) == 2
    if p == 0:
        check_errors(found, gradients(module, x), exact(module, x), 1e-7)


def test_weights_that_are_returned_are_kept():
    def function(q, k, v):
        weights = F.softmax(q @ k.transpose(-2, -1), -1)
        return weights @ v + weights.sum(-1, keepdim=True)

    torch.manual_seed(0)
    module, x = Attention(function), torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, reports = compiled_gradients(module, x)
    assert "attention" not in labels(reports[1])
    check_errors(found, gradients(module, x), exact(module, x), 1e-7)


@pytest.mark.parametrize("safe", [True, False])
def test_rows_that_see_nothing(safe):
    """sdpa gives them zeros; a softmax by hand NaN, whose gradient ends where scores were filled."""
    mask = make_mask("bool")
    mask[0, 0, 3] = False

    def function(q, k, v):
        if safe:
            return F.scaled_dot_product_attention(q, k, v, mask)
        scores = (q @ k.transpose(-2, -1)).masked_fill(~mask, float("-inf"))
        return F.softmax(scores, -1) @ v

    torch.manual_seed(0)
    module, x = Attention(function), torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, reports = compiled_gradients(module, x)
    check_one_op(reports)
    for f, w in zip(found, gradients(module, x)):
        torch.testing.assert_close(f, w, rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("number", [0.0, -5.0, 2.5, math.inf, math.nan])
def test_a_number_put_in_place_of_later_columns_has_its_weight(number):
    def function(q, k, v):
        scores = (q @ k.transpose(-2, -1)) * 0.2
        return F.softmax(scores.masked_fill(torch.ones(ROWS, ROWS).tril() == 0, number), -1) @ v

    torch.manual_seed(0)
    module, x = Attention(function), torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, _ = compiled_gradients(module, x)
    for f, w in zip(found, gradients(module, x)):
        torch.testing.assert_close(f, w, rtol=1e-3, atol=1e-3, equal_nan=True)


class Own(torch.autograd.Function):
    """Attention with a gradient of its own, whose ``order`` says how that is written."""

    @staticmethod
    def forward(ctx, q, k, v, order):
        weights = F.softmax(q @ k.mT * 0.3, -1)
        ctx.save_for_backward(q, k, v, weights)
        ctx.order = order
        return weights @ v

    @staticmethod
    def backward(ctx, grad):
        q, k, v, weights = ctx.saved_tensors
        flat = weights.flatten(0, 1).mT
        if ctx.order == "values first":
            dv = (flat @ grad.flatten(0, 1)).view(v.shape)
            dp = grad.reshape(grad.shape[1], grad.shape[0], *grad.shape[2:]).view(grad.shape) @ v.mT
        else:
            dp = grad @ v.mT
            dv = (flat @ grad.flatten(0, 1)).view(v.shape)
        dim = -2 if ctx.order == "over rows" else -1
        ds = torch.ops.aten._softmax_backward_data(dp, weights, dim, torch.float32) * 0.3
        return ds @ k, ds.mT @ q, dv, None


@pytest.mark.parametrize("order", ["plain", "values first", "over rows"])
def test_gradients_that_are_written_by_hand(order):
    torch.manual_seed(0)
    module = Attention(lambda q, k, v: Own.apply(q, k, v, order))
    x = torch.randn(BATCH, ROWS, HEADS * WIDTH)
    found, _ = compiled_gradients(module, x)
    for f, w in zip(found, gradients(module, x)):
        torch.testing.assert_close(f, w, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("other", [math.inf, math.nan, 0.0])
def test_kernels_that_put_other_numbers_in_place_are_others(other):
    mask = make_mask("bool")

    def function(q, k, v):
        scores = q @ k.transpose(-2, -1)
        results = (F.softmax(scores.masked_fill(~mask, n), -1) @ v for n in (-math.inf, other))
        return torch.cat(list(results), 1)

    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, ROWS, WIDTH, requires_grad=True) for _ in range(3))
    found = torch.compile(function, backend="inkle", options={"strict": True})(q, k, v)
    torch.testing.assert_close(found, function(q, k, v), rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.cpu_only
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_calls_inside_vmap_stay_as_they_are(is_trained, masked):
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, 9, 8, requires_grad=is_trained) for _ in range(3))
    mask = torch.rand(BATCH, 1, 9, 9) > 0.3
    mask[..., 0] = True

    def function(q, k, v, mask):
        if masked:
            one = lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m)
            return torch.vmap(one)(q, k, v, mask)
        return torch.vmap(F.scaled_dot_product_attention)(q, k, v)

    wanted = function(q, k, v, mask)
    found = torch.compile(function, backend="inkle")(q, k, v, mask)
    torch.testing.assert_close(found, wanted)
    if is_trained:
        grads = torch.autograd.grad(found.square().sum(), (q, k, v))
        torch.testing.assert_close(grads, torch.autograd.grad(wanted.square().sum(), (q, k, v)))


@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("features, values", [(0, 0), (0, 4), (4, 0)])
def test_heads_without_features(features, values, by_hand, is_trained):
    sizes = [(2, 3, 17, features), (2, 3, 19, features), (2, 3, 19, values)]
    tensors = [torch.randn(s, requires_grad=is_trained) for s in sizes]

    def function(q, k, v):
        if by_hand:
            return F.softmax(q @ k.mT * 0.3, -1) @ v
        return F.scaled_dot_product_attention(q, k, v)

    wanted = function(*tensors)
    found = torch.compile(function, backend="inkle")(*tensors)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    if is_trained:
        grads = torch.autograd.grad(found.sum(), tensors)
        torch.testing.assert_close(grads, torch.autograd.grad(wanted.sum(), tensors))


@pytest.mark.cpu_only
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_scores_that_are_rounded_stay_rounded(dtype, is_trained):
    torch.manual_seed(0)
    tensors = [torch.randn(2, 3, n, 8, requires_grad=is_trained) for n in (17, 19, 19)]

    def function(q, k, v):
        return F.softmax((q @ k.mT * 0.3).to(dtype), -1).to(q.dtype) @ v

    wanted = function(*tensors)
    found = torch.compile(function, backend="inkle")(*tensors)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    if is_trained:
        grads = torch.autograd.grad(found.sum(), tensors)
        wanted = torch.autograd.grad(wanted.sum(), tensors)
        torch.testing.assert_close(grads, wanted, rtol=1e-4, atol=1e-4)
