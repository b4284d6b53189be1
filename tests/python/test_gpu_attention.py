"""Decomposed attention in training on a GPU: torch's own kernels, each against f64 and eager."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inkle
import test_attention_training as training
from inkle import attention_backends

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]

HEADS, WIDTH = 4, 32
KERNELS = {"flash": 1, "efficient": 2, "cudnn": 3}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(0)


class Attention(nn.Module):
    """Projections around a function of q, k, v over (batch, head, row, feature) and a mask."""

    def __init__(self, function, mask=None, kv_heads=HEADS, keys=None):
        super().__init__()
        self.function, self.keys = function, keys
        self.q = nn.Linear(HEADS * WIDTH, HEADS * WIDTH)
        # Whose bias would have no gradient but rounding: it moves all scores of a row alike.
        self.k = nn.Linear(HEADS * WIDTH, kv_heads * WIDTH, bias=False)
        self.v = nn.Linear(HEADS * WIDTH, kv_heads * WIDTH)
        self.out = nn.Linear(HEADS * WIDTH, HEADS * WIDTH)
        self.register_buffer("mask", mask)

    def forward(self, x):
        of_keys = x if self.keys is None else x[:, : self.keys]
        q, k, v = (
            layer(y).unflatten(-1, (-1, WIDTH)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, of_keys), (self.v, of_keys))
        )
        return self.out(self.function(q, k, v, self.mask).transpose(1, 2).flatten(2))


def scores_of(q, k):
    return (q @ k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]))


def plain(q, k, v, mask):
    return F.softmax(scores_of(q, k), -1) @ v


def wide_softmax(q, k, v, mask):
    return F.softmax(scores_of(q, k), -1, dtype=torch.float32).to(q.dtype) @ v


def divided(q, k, v, mask):
    return F.softmax(q @ k.transpose(-2, -1) / math.sqrt(WIDTH), -1) @ v


def by_batch(q, k, v, mask):
    batch, heads, rows, _ = q.shape
    q, k, v = (t.reshape(batch * heads, -1, WIDTH) for t in (q, k, v))
    weights = F.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.2, -1)
    return torch.bmm(weights, v).view(batch, heads, rows, WIDTH)


def causal(q, k, v, mask):
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    return F.softmax(scores_of(q, k).masked_fill(~keep, float("-inf")), -1) @ v


def causal_least(q, k, v, mask):
    s = scores_of(q, k)
    rows = torch.arange(q.shape[2], device=q.device)
    keep = rows[:, None] >= rows[None, :]
    return F.softmax(torch.where(keep, s, torch.finfo(s.dtype).min), -1) @ v


def filled(q, k, v, mask):
    return F.softmax(scores_of(q, k).masked_fill(mask == 0, float("-inf")), -1) @ v


def filled_number(q, k, v, mask):
    s = scores_of(q, k)
    return F.softmax(s.masked_fill(mask == 0, -6e4 if s.dtype == torch.float16 else -1e9), -1) @ v


def added(q, k, v, mask):
    return F.softmax(scores_of(q, k) + mask, -1) @ v


def added_as_scores(q, k, v, mask):
    s = scores_of(q, k)
    return F.softmax(s + mask.to(s.dtype), -1) @ v


def added_least(q, k, v, mask):
    return F.softmax(scores_of(q, k) + (1.0 - mask) * torch.finfo(torch.float32).min, -1) @ v


def added_fully_masked(q, k, v, mask):
    """Nobody reads the row that sees nothing."""
    s = scores_of(q, k)
    hidden = (1.0 - mask).to(s.dtype) * (-65504.0 if s.dtype == torch.float16 else -1e38)
    y = F.softmax(s + hidden, -1) @ v
    return y * (torch.arange(y.shape[2], device=y.device) != 3)[:, None]


def grouped(q, k, v, mask):
    share = q.shape[1] // k.shape[1]
    k, v = (
        t[:, :, None].expand(-1, -1, share, -1, -1).reshape(t.shape[0], -1, t.shape[2], WIDTH)
        for t in (k, v)
    )
    return causal(q, k, v, mask)


def ones_tril(rows, columns):
    return torch.ones(rows, columns).tril()[None, None]


def padding(batch, columns):
    mask = torch.ones(batch, 1, 1, columns)
    for i in range(1, batch):
        mask[i, ..., columns - 7 * i :] = 0
    return mask


def fully_masked(rows, columns):
    """One row sees nothing."""
    mask = ones_tril(rows, columns)
    mask[..., 3, :] = 0
    return mask


# Sizes (batch, rows), and how the module is made for them.
FORMS = {
    "plain": ((3, 128), lambda b, n: Attention(plain)),
    "odd": ((2, 77), lambda b, n: Attention(plain)),
    "wide softmax": ((2, 128), lambda b, n: Attention(wide_softmax)),
    "divided": ((2, 64), lambda b, n: Attention(divided)),
    "by batch": ((2, 64), lambda b, n: Attention(by_batch)),
    "causal": ((2, 128), lambda b, n: Attention(causal)),
    "causal, odd": ((2, 101), lambda b, n: Attention(causal)),
    "causal by the least": ((2, 128), lambda b, n: Attention(causal_least)),
    "cross": ((2, 96), lambda b, n: Attention(plain, keys=40)),
    "buffer": ((2, 128), lambda b, n: Attention(filled, ones_tril(n, n))),
    "buffer, odd": ((2, 93), lambda b, n: Attention(filled, ones_tril(n, n))),
    "padding": ((4, 64), lambda b, n: Attention(filled, padding(b, n))),
    "padding, odd": ((4, 61), lambda b, n: Attention(filled_number, padding(b, n))),
    "number": ((2, 64), lambda b, n: Attention(filled_number, ones_tril(n, n))),
    "fully masked row": ((2, 64), lambda b, n: Attention(filled_number, fully_masked(n, n))),
    "added": ((2, 64), lambda b, n: Attention(added_as_scores, torch.randn(1, HEADS, n, n))),
    "added, by head": ((2, 61), lambda b, n: Attention(added_as_scores, torch.randn(b, 1, n, n))),
    "added, least": ((4, 64), lambda b, n: Attention(added_least, padding(b, n))),
    "added, fully masked row": ((2, 64), lambda b, n: Attention(added_fully_masked, fully_masked(n, n))),
    "grouped": ((2, 64), lambda b, n: Attention(grouped, kv_heads=2)),
}  # fmt: skip
# (dtype of parameters, of autocast)
KINDS = {
    "autocast bf16": (torch.float32, torch.bfloat16),
    "bf16": (torch.bfloat16, None),
    "autocast f16": (torch.float32, torch.float16),
    "f16": (torch.float16, None),
    "f32": (torch.float32, None),
}


def gradients(model, run, x, autocast):
    x = x.detach().clone().requires_grad_()
    model.zero_grad(set_to_none=True)
    with torch.autocast("cuda", autocast, enabled=autocast is not None):
        y = run(x)
    generator = torch.Generator("cuda").manual_seed(7)
    weight = torch.randn(y.shape, device="cuda", dtype=torch.float64, generator=generator)
    (y.double() * weight).sum().backward()
    return {"y": y.detach(), "x": x.grad, **{n: p.grad for n, p in model.named_parameters()}}


def attention_calls():
    ran = [op for r in inkle.reports() for op, _, _ in r.eager]
    return sorted({op for op in ran if op != "inkle::seed"})


def pair_of(kernel):
    return [f"inkle::{kernel}_attention", f"inkle::{kernel}_attention_backward"]


def check(model, x, autocast, **options):
    """RMS error against f64 at most 1.5 times that of eager and a part of the scale."""
    wanted_model, eager_model = copy.deepcopy(model).double(), copy.deepcopy(model)
    wanted = gradients(wanted_model, wanted_model, x.double(), None)
    eager = gradients(eager_model, eager_model, x, autocast)
    run = torch.compile(model, backend="inkle", fullgraph=True, options=options)
    got = gradients(model, run, x, autocast)
    assert all(r.compiled for r in inkle.reports()), [r.reason for r in inkle.reports()]
    floor = 1e-7 if x.dtype == torch.float32 and autocast is None else 1e-3
    wrong = []
    for name, reference in wanted.items():
        assert got[name].shape == eager[name].shape and got[name].dtype == eager[name].dtype, name
        scale = reference.abs().max().item()
        ours, theirs = (
            (t[name].double() - reference).square().mean().sqrt().item() for t in (got, eager)
        )
        if not ours <= 1.5 * theirs + floor * scale:
            wrong.append(f"{name}: {ours:.3e}, eager {theirs:.3e}, scale {scale:.3e}")
    assert not wrong, (attention_calls(), wrong)


def made(form, dtype, autocast, device="cuda"):
    (batch, rows), make = FORMS[form]
    model = make(batch, rows).to(device).train()
    if model.mask is not None and autocast is None:
        model.mask = model.mask.to(dtype)
    for p in model.parameters():
        p.data = p.data.to(dtype)
    return model, torch.randn(batch, rows, HEADS * WIDTH, device=device).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_gradients(form, kind):
    dtype, autocast = KINDS[kind]
    model, x = made(form, dtype, autocast)
    check(model, x, autocast)
    calls = attention_calls()
    assert calls == [] if kind == "f32" else any(calls == pair_of(k) for k in KERNELS), calls


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", ["plain", "odd", "causal", "buffer", "buffer, odd", "added", "fully masked row",
                                  "padding, odd", "by batch"])  # fmt: skip
def test_each_kernel(form, kernel, monkeypatch):
    monkeypatch.setattr(attention_backends, "for_training", lambda *given: KERNELS[kernel])
    model, x = made(form, torch.float32, torch.bfloat16)
    check(model, x, torch.bfloat16)
    masked = model.mask is not None
    assert attention_calls() == pair_of(kernel) or (masked and kernel == "flash")


def test_weights_that_others_read():
    def function(q, k, v, mask):
        weights = F.softmax(scores_of(q, k), -1)
        return weights @ v + weights.sum(-1, keepdim=True) * weights.amax()

    model = Attention(function).cuda()
    check(model, torch.randn(2, 64, HEADS * WIDTH, device="cuda"), torch.bfloat16)
    assert attention_calls() == []


def test_a_mask_that_learns():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.bias = Attention(plain), nn.Parameter(torch.randn(1, HEADS, 64, 64))
            self.inner.function = lambda q, k, v, m: F.softmax(scores_of(q, k) + self.bias, -1) @ v

        def forward(self, x):
            return self.inner(x)

    model = Biased().cuda()
    x = torch.randn(2, 64, HEADS * WIDTH, device="cuda")
    run = torch.compile(model, backend="inkle", fullgraph=True)
    got = gradients(model, run, x, torch.bfloat16)
    assert attention_calls() == []
    wanted = gradients(model, model, x, None)
    torch.testing.assert_close(got["bias"].double(), wanted["bias"].double(), rtol=5e-2, atol=5e-2)


def test_an_f32_mask_of_many_values_stays():
    model = Attention(added, torch.randn(1, HEADS, 64, 64)).cuda()
    check(model, torch.randn(2, 64, HEADS * WIDTH, device="cuda"), torch.bfloat16)
    assert attention_calls() == []


def test_a_row_of_minus_infinity_is_nan():
    model = Attention(filled, fully_masked(64, 64)).cuda()
    x = torch.randn(2, 64, HEADS * WIDTH, device="cuda")
    run = torch.compile(model, backend="inkle", fullgraph=True)
    got, wanted = gradients(model, run, x, torch.bfloat16), gradients(model, model, x, torch.bfloat16)
    assert attention_calls() != []
    assert torch.equal(got["y"].isnan(), wanted["y"].isnan()) and wanted["y"].isnan().any()


def dropped(p):
    return lambda q, k, v, mask: F.dropout(F.softmax(scores_of(q, k), -1), p, True) @ v


@pytest.mark.parametrize("kernel", [None, *KERNELS])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout(p, kernel, monkeypatch):
    """Of the unit matrix as values the result tells which weights were kept."""
    if kernel is not None:
        monkeypatch.setattr(attention_backends, "for_training", lambda *given: KERNELS[kernel])
    rows = 64
    run = torch.compile(lambda q, k, v: dropped(p)(q, k, v, None), backend="inkle", fullgraph=True)
    q, k = (torch.randn(4, 8, rows, rows, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(2))  # fmt: skip
    v = torch.eye(rows, device="cuda", dtype=torch.bfloat16).expand(4, 8, rows, rows)
    v = v.contiguous().requires_grad_()
    seed = torch.randn_like(q)
    results = []
    for start in (1, 2, 1):
        torch.manual_seed(start)
        y = run(q, k, v)
        results.append((y.detach(), *torch.autograd.grad(y, (q, k, v), seed)))
    assert attention_calls() == pair_of(kernel) if kernel else attention_calls() != []
    assert torch.equal(results[0][0], results[2][0]) and not torch.equal(results[0][0], results[1][0])
    y = results[0][0]
    kept = y != 0
    assert abs(kept.double().mean().item() - (1 - p)) < 0.01
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    wanted = (F.softmax(scores_of(*wide[:2]), -1) * kept / (1 - p)) @ wide[2]
    wanted_all = (wanted.detach(), *torch.autograd.grad(wanted, wide, seed.double()))
    for found, reference in zip(results[0], wanted_all):
        error = (found.double() - reference).square().mean().sqrt()
        assert error <= 2e-2 * reference.square().mean().sqrt()


def test_gradients_that_lie_otherwise(monkeypatch):
    """The same geometry of query, key and value, another of the gradient."""
    monkeypatch.setattr(attention_backends, "for_training", lambda *given: KERNELS["cudnn"])
    for is_scaled in (False, True, False):
        model = Attention(lambda q, k, v, m: plain(q, k, v, m) * (2.0 if is_scaled else 1.0)).cuda()
        inner = model.function
        if is_scaled:
            model.function = lambda q, k, v, m: inner(q, k, v, m).contiguous().sin()
        torch._dynamo.reset()
        inkle.reset()
        check(model, torch.randn(2, 64, HEADS * WIDTH, device="cuda"), torch.bfloat16)
        assert attention_calls() == pair_of("cudnn")


def test_eagers_dropout_stays():
    model = Attention(dropped(0.3)).cuda()
    x = torch.randn(2, 64, HEADS * WIDTH, device="cuda")
    run = torch.compile(model, backend="inkle", fullgraph=True, options={"random": "eager"})
    found = []
    for f in (model, run):
        torch.manual_seed(5)
        found.append(gradients(model, f, x, torch.bfloat16))
    assert not any("attention" in op for op in attention_calls())
    torch.testing.assert_close(found[0]["y"], found[1]["y"], rtol=2e-2, atol=2e-2)


def test_no_matrix_of_weights_is_kept():
    rows = 1024
    model = Attention(filled, ones_tril(rows, rows)).cuda()
    x = torch.randn(4, rows, HEADS * WIDTH, device="cuda", requires_grad=True)
    run = torch.compile(model, backend="inkle", fullgraph=True)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            run(x).float().sum().backward()

    step()
    assert inkle.reports()[0].kept_bytes < 4 * HEADS * rows * rows * 2
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    assert torch.cuda.max_memory_allocated() - before < 4 * HEADS * rows * rows * 2


def test_dynamic_sizes():
    model = Attention(causal).cuda()
    run = torch.compile(model, backend="inkle", fullgraph=True, dynamic=True)
    for batch, rows in ((2, 64), (3, 96), (5, 33)):
        x = torch.randn(batch, rows, HEADS * WIDTH, device="cuda")
        got, wanted = (gradients(model, f, x, torch.bfloat16) for f in (run, model))
        for name in wanted:
            scale = wanted[name].abs().max().item()
            assert (got[name] - wanted[name]).abs().max().item() < 3e-2 * scale, name
    assert attention_calls() != []


def _rows_in_heads(q, k, v):
    """The query lies by heads, as after a rotation; so does the result."""
    return F.scaled_dot_product_attention(q.contiguous(), k.contiguous(), v)


def _gradient_in_heads(q, k, v):
    """The result's gradient lies by heads, too."""
    return _rows_in_heads(q, k, v).square().contiguous()


MIXED = {
    **{name: lambda name=name: training.CASES[name](0.0) for name in ("sdpa", "sdpa causal", "by hand")},
    "query in heads": lambda: training.Attention(_rows_in_heads),
    "gradient in heads": lambda: training.Attention(_gradient_in_heads),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("first", [None, "query in heads", "gradient in heads"])
@pytest.mark.parametrize("sizes", [(2, 70), (3, 33)])
def test_eager_and_compiled_steps_in_one_process(on_gpu, name, first, sizes):
    """Torch's caches see nothing of a compiled backward that eager's own calls do not show them; and what
    eager's calls of another program have left there does not reach a compiled one."""
    torch.manual_seed(0)
    x = torch.randn(*sizes, training.HEADS * training.WIDTH)
    if first is not None:
        training.gradients(MIXED[first](), x, torch.bfloat16)
    module = MIXED[name]()
    exact = training.exact(module, x)
    compiled = [training.compiled_gradients(module, x, torch.bfloat16)[0] for _ in range(2)]
    # Eager's own is read in the wrong order after another program's, whatever ran between.
    eager = training.gradients(module, x, torch.bfloat16) if first in (None, name) else compiled[0]
    for found in compiled:
        for i, (got, wanted) in enumerate(zip(found, exact)):
            scale = wanted.abs().max().item()
            assert scale < 1e-12 or (got.double() - wanted).abs().max().item() < 5e-2 * scale, i
    training.check_errors(eager, compiled[1], exact, 1e-3)
