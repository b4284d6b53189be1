"""Decomposed attention in joint graphs on a GPU that is not there: what becomes of it."""

from __future__ import annotations

import threading
import types

import pytest
import test_gpu_attention as forms
import torch
import torch.nn.functional as F
from torch._guards import detect_fake_mode

import inkle
from inkle import _inkle, attention_backends, cudnn_attention, library_attention, pair

KERNELS = {k.name: k for k in library_attention.KERNELS.values()}


class _Compiled(BaseException):
    """The joint graph was compiled; nothing can be run."""


def _on_gpu(gm):
    """A joint graph that was traced on the CPU, as if its tensors lay on a GPU."""
    mode = detect_fake_mode([n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"])

    def moved(value):
        if not isinstance(value, torch.Tensor):
            return torch.device("cuda:0") if isinstance(value, torch.device) else value
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda:0")

    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if value is not None:
            several = isinstance(value, (list, tuple))
            node.meta["val"] = type(value)(map(moved, value)) if several else moved(value)
        node.args = torch.fx.node.map_aggregate(node.args, moved)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, moved)


@pytest.fixture
def compiled(monkeypatch):
    """A function that compiles a training step and gives the reports of both halves."""
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(0)
    run = pair.Partition.__call__
    kept = []  # reports hold no programs

    def partition(self, gm, inputs, **named):
        _on_gpu(gm)
        kept.append(run(self, gm, inputs, **named))
        raise _Compiled

    monkeypatch.setattr(pair.Partition, "__call__", partition)
    monkeypatch.setattr(pair, "get_compiler", lambda gpu: _inkle.Compiler.null("sm_90a"))

    def step(model, x, autocast=torch.bfloat16, kernel="efficient", **how):
        monkeypatch.setattr(library_attention, "choose", lambda *given: KERNELS.get(kernel))
        x = x.detach().requires_grad_()
        options = {"strict": True, "random": how.pop("random", "fast"), "graphs": how.pop("graphs", False)}
        with torch.autocast("cpu", autocast, enabled=autocast is not None), pytest.raises(_Compiled):
            torch.compile(model, backend="inkle", options=options, **how)(x)
        reports = inkle.reports()
        assert len(reports) == 2 and all(r.compiled for r in reports), [r.reason for r in reports]
        return reports

    return step


def labels(reports):
    return [step["label"] for r in reports for step in r.steps]


@pytest.mark.parametrize("kind", forms.KINDS)
@pytest.mark.parametrize("form", forms.FORMS)
def test_forms(form, kind, compiled):
    dtype, autocast = forms.KINDS[kind]
    model, x = forms.made(form, dtype, autocast, "cpu")
    reports = compiled(model, x, autocast)
    if kind == "f32":  # not as exact as eager's products
        assert forms.attention_calls() == []
        return
    assert forms.attention_calls() == forms.pair_of("efficient")
    assert not any("softmax" in label for label in labels(reports))
    # Query, key, value and gradient are read where they lie, but where eager copies them, too.
    if form not in ("by batch", "cross", "grouped", "added, fully masked row"):
        assert not {"copy", "eager"} & set(labels(reports)), labels(reports)


@pytest.mark.parametrize("kernel", KERNELS)
def test_dropout(kernel, compiled):
    model = forms.Attention(forms.dropped(0.1))
    reports = compiled(model, torch.randn(2, 64, forms.HEADS * forms.WIDTH), kernel=kernel)
    assert forms.attention_calls() == forms.pair_of(kernel)
    assert not any("dropout" in label for label in labels(reports))


def test_eagers_dropout_stays(compiled):
    model = forms.Attention(forms.dropped(0.1))
    compiled(model, torch.randn(2, 64, forms.HEADS * forms.WIDTH), random="eager")
    assert not any("attention" in op for op in forms.attention_calls())


@pytest.mark.parametrize("form", ["causal", "buffer", "odd"])
def test_dynamic_sizes(form, compiled):
    model, x = forms.made(form, torch.float32, torch.bfloat16, "cpu")
    x = torch.cat([x, x])
    compiled(model, x, dynamic=form != "buffer" or None)
    assert forms.attention_calls() == forms.pair_of("efficient")


def test_training_says_why_it_is_not_recorded(compiled):
    reports = compiled(torch.nn.Linear(8, 8), torch.randn(4, 8), graphs=True)
    for report in reports:
        recorded, replayed, reason = report.callable.graphs
        assert recorded == replayed == 0 and "backward" in reason


def test_nothing_where_torch_has_no_kernel(compiled):
    model, x = forms.made("plain", torch.float32, torch.bfloat16, "cpu")
    assert any("softmax" in label for label in labels(compiled(model, x, kernel=None)))
    assert forms.attention_calls() == []


def test_weights_that_others_read(compiled):
    def function(q, k, v, mask):
        weights = torch.softmax(forms.scores_of(q, k), -1)
        return weights @ v + weights.sum(-1, keepdim=True) * weights.amax()

    compiled(forms.Attention(function), torch.randn(2, 64, forms.HEADS * forms.WIDTH))
    assert forms.attention_calls() == []


def test_an_f32_mask_of_many_values_stays(compiled):
    model = forms.Attention(forms.added, torch.randn(1, forms.HEADS, 64, 64))
    compiled(model, torch.randn(2, 64, forms.HEADS * forms.WIDTH))
    assert forms.attention_calls() == []


def test_the_weights_are_not_kept(compiled):
    rows = 512
    model = forms.Attention(forms.filled, forms.ones_tril(rows, rows))
    reports = compiled(model, torch.randn(2, rows, forms.HEADS * forms.WIDTH))
    assert reports[0].kept_bytes < 2 * forms.HEADS * rows * rows * 2


@pytest.mark.parametrize(("rest", "start", "in_place"), [(8, 8, True), (8, 1, False), (1, 0, False)])
def test_what_kernels_cannot_read_at_once_is_copied(rest, start, in_place, compiled):
    width = forms.HEADS * forms.WIDTH

    class Joined(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(width, 3 * width + rest)

        def forward(self, x):
            parts = self.qkv(x)
            q, k, v = (
                parts[..., start + i * width : start + (i + 1) * width]
                .unflatten(-1, (-1, forms.WIDTH))
                .transpose(1, 2)
                for i in range(3)
            )
            return forms.plain(q, k, v, None).transpose(1, 2).flatten(2)

    reports = compiled(Joined(), torch.randn(2, 64, width))
    assert forms.attention_calls() == forms.pair_of("efficient")
    forward = [step["label"] for step in reports[0].steps]
    copies = any("eager" in label.split("+") for label in forward)
    assert copies != in_place, forward


class _KeepingStrides:
    """Torch's op for cuDNN's gradient as 2.11 has it: a gradient is read with the strides of the first
    that came with query, key and value of these strides."""

    def __init__(self):
        self.kept, self.copies, self.calls = {}, 0, 0

    def default(self, grad, q, k, v, out, logarithms, *others, scale=None):
        self.calls += 1
        assert len(others) == 9
        self.copies += v.stride(-2) % v.shape[-1] != 0  # rows of another length
        kept = self.kept.setdefault(tuple(t.stride() for t in (q, k, v)), grad.stride())
        grad = grad.as_strided(grad.shape, kept)
        weights = (q @ k.transpose(-2, -1) * scale - logarithms).exp()
        of_weights = grad @ v.transpose(-2, -1) - (grad * out).sum(-1, keepdim=True)
        of_scores = weights * of_weights * scale
        found = (of_scores @ k, of_scores.transpose(-2, -1) @ q, weights.transpose(-2, -1) @ grad)
        return tuple(torch.empty_like(t).copy_(f) for t, f in zip((q, k, v), found))


@pytest.mark.parametrize("before", [None, (0, 1, 2, 3), (0, 2, 1, 3)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
@pytest.mark.parametrize("of_query", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_gradients_of_cudnn_after_another_call(monkeypatch, before, order, of_query):
    """Whatever gradient an eager call has left behind in torch, that of a program is read as it lies."""
    op = _KeepingStrides()
    name = "_scaled_dot_product_cudnn_attention_backward"
    monkeypatch.setattr(torch.ops.aten, name, op)
    monkeypatch.setattr(cudnn_attention, "_thread", threading.local())

    def lying(order):
        return torch.randn([(2, 4, 10, 16)[d] for d in order]).permute(order)

    q, k, v = lying(of_query), lying((0, 2, 1, 3)), lying((0, 2, 1, 3))
    scores = q @ k.transpose(-2, -1) * 0.25
    out = torch.empty_like(q).copy_(scores.softmax(-1) @ v)
    rest = (q, k, v, out, scores.logsumexp(-1, True), "seed", "offset", None, None, None, 10, 10, 0.0, False)
    if before is not None:
        op.default(lying(before), *rest, scale=0.25)
    grad = lying(order)
    inputs = [t.detach().requires_grad_() for t in (q, k, v)]
    result = F.scaled_dot_product_attention(*inputs, scale=0.25)
    wanted = torch.autograd.grad(result, inputs, grad)
    for _ in range(2):
        found = cudnn_attention.backward(grad, *rest, scale=0.25)
        torch.testing.assert_close(found, wanted)
        assert found[2].stride() == v.stride()
    # Once to see how the gradient is read, then a call each.
    apart = before == (0, 1, 2, 3)
    assert op.calls == (before is not None) + 1 + 2
    assert op.copies == (2 if apart else 0)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_states_of_efficient_attention_are_on_the_cpu(monkeypatch, dropout):
    """Torch makes them on the GPU while a stream is recorded; the meta device stands for it."""
    made = (torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3),
            *(torch.empty((), dtype=torch.int64, device="meta") for _ in range(2)))
    name = "_scaled_dot_product_efficient_attention"
    monkeypatch.setattr(torch.ops.aten, name, types.SimpleNamespace(default=lambda *a, **k: made))
    q = torch.randn(1, 2, 3, 4)
    for found in (attention_backends.efficient_in_eager(q, q, q, None, True, dropout, scale=0.5),
                  attention_backends.efficient_in_eager(q, q, q, None, True, dropout_p=dropout)):
        assert found[0] is made[0] and found[1] is made[1] and len(found) == 4
        assert all(s.is_cpu == (dropout == 0) and s.dtype == torch.int64 for s in found[2:])
