"""Gradients on a GPU under autocast to bf16, each against f64 and eager."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inkle
from inkle import attention_backends

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(0)


def gradients(model, run, x, autocast=True):
    """The result and the gradients of the input and of all parameters; buffers of the model after."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    model.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        y = run(x)
        loss = (y.to(x.dtype) * torch.linspace(-1, 1, y.numel(), device="cuda",
                                                dtype=x.dtype).reshape(y.shape)).sum()  # fmt: skip
    loss.backward()
    found = {"y": y.detach(), "x": x.grad}
    found |= {name: p.grad for name, p in model.named_parameters()}
    found |= {f"buffer {n}": b.clone() for n, b in model.named_buffers() if b.is_floating_point()}
    return found


def check(model, x, in_eager=(), autocast=True):
    """RMS error against f64 at most 1.5 times that of eager and 1e-3 of the scale."""
    model = model.cuda().train()
    wanted_model, eager_model = copy.deepcopy(model).double(), copy.deepcopy(model)
    wanted = gradients(wanted_model, wanted_model, x.double(), autocast=False)
    eager = gradients(eager_model, eager_model, x, autocast)
    got = gradients(model, torch.compile(model, backend="inkle", fullgraph=True), x, autocast)
    ran = {op for r in inkle.reports() for op, _, _ in r.eager}
    assert ran <= set(in_eager), ran
    assert all(r.compiled for r in inkle.reports()), [r.reason for r in inkle.reports()]
    for name, reference in wanted.items():
        assert got[name].shape == eager[name].shape and got[name].dtype == eager[name].dtype, name
        scale = reference.abs().max().item()
        ours, theirs = ((t[name].double() - reference).square().mean().sqrt().item()
                        for t in (got, eager))  # fmt: skip
        assert ours <= 1.5 * theirs + 1e-3 * scale, f"{name}: {ours:.3e}, eager {theirs:.3e}"


def images(*sizes, channels_last=True):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.randn(*sizes, device="cuda").to(memory_format=layout)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(
    ("inputs", "outputs", "window", "stride", "padding", "groups"),
    [(64, 128, 3, 1, 1, 1), (64, 128, 3, 2, 1, 1), (128, 64, 1, 1, 0, 1), (64, 128, 1, 2, 0, 1),
     (3, 64, 7, 2, 3, 1), (64, 64, 3, 1, 1, 64), (64, 128, 3, 1, 1, 4)],
)  # fmt: skip
def test_convolutions(inputs, outputs, window, stride, padding, groups, channels_last):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = nn.Sequential(
        nn.Conv2d(inputs, outputs, window, stride, padding, groups=groups),
        nn.ReLU(),
        nn.Conv2d(outputs, 32, 1, bias=False),
    ).to(memory_format=layout)
    check(model, images(8, inputs, 29, 30, channels_last=channels_last))
    steps = [s for r in inkle.reports() for s in r.steps]
    assert sum(s["kind"] == "convolution" for s in steps) >= 5


@pytest.mark.parametrize("sizes", [(32, 64, 56, 56), (16, 256, 14, 14), (64, 2048, 7, 7), (5, 24, 3, 7)])
@pytest.mark.parametrize("channels_last", [True, False])
def test_batch_norm(sizes, channels_last):
    channels = sizes[1]
    model = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels), nn.ReLU())
    layout = torch.channels_last if channels_last else torch.contiguous_format
    check(model.to(memory_format=layout), images(*sizes, channels_last=channels_last) + 3)


def test_moments_of_what_lies_far_from_zero():
    model = nn.BatchNorm2d(64).cuda().train()
    x = images(32, 64, 28, 28) * 0.25 + 1000
    run = torch.compile(model, backend="inkle", fullgraph=True)
    y = run(x)
    wanted = copy.deepcopy(model).double().train()(x.double())
    assert (y.double() - wanted).abs().max() < 2e-3
    torch.testing.assert_close(model.running_var, 0.9 + 0.1 * x.double().var((0, 2, 3)).float(),
                               rtol=1e-3, atol=1e-4)  # fmt: skip


class _Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.last = nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.last(x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh")))


@pytest.mark.parametrize("sizes", [(8, 1024, 768), (128, 197, 192), (3, 50, 96)])
def test_norms_and_activations(sizes):
    check(_Residual(sizes[-1]), torch.randn(*sizes, device="cuda"))


class _Attention(nn.Module):
    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.causal = causal

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


_ATTENTION_KERNELS = {f"aten::_scaled_dot_product_{kind}_attention{back}"
                      for kind in ("cudnn", "flash", "efficient") for back in ("", "_backward")}  # fmt: skip


def test_attention_of_one_product():
    x = torch.randn(16, 197, 384, device="cuda")
    check(_Attention(384, 6), x, in_eager=_ATTENTION_KERNELS)
    backward = inkle.reports()[-1]
    wide = [s for s in backward.steps if s["kind"] == "kernel" and "cat" in s["label"]]
    assert len(wide) == 1


@pytest.mark.parametrize(("kernel", "backend"), [("flash", 1), ("efficient", 2), ("cudnn", 3)])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_by_each_kernel(kernel, backend, causal, monkeypatch):
    monkeypatch.setattr(attention_backends, "for_training", lambda *given: backend)
    x = torch.randn(8, 256, 384, device="cuda")
    check(_Attention(384, 6, causal), x, in_eager=_ATTENTION_KERNELS)
    ran = {op for r in inkle.reports() for op, _, _ in r.eager}
    wanted = f"aten::_scaled_dot_product_{kernel}_attention"
    assert ran == {wanted, f"{wanted}_backward"}


@pytest.mark.parametrize("backend", [None, 1, 2, 3])
def test_the_backward_of_attention_drops_the_same(backend, monkeypatch):
    monkeypatch.setattr(attention_backends, "for_training", lambda *given: backend)

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    run = torch.compile(attend, backend="inkle", fullgraph=True)
    q, k, v = (torch.randn(2, 4, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for _ in range(3))  # fmt: skip
    for _ in range(2):
        y = run(q, k, v)
        seed = torch.randn_like(y)
        (of_v,) = torch.autograd.grad(y, v, seed)
        # The result is linear in v, with the weights that were not dropped.
        torch.testing.assert_close((of_v.double() * v.double()).sum(), (y.double() * seed.double()).sum(),
                                   rtol=2e-2, atol=2)  # fmt: skip


def test_attention_is_measured_once():
    attention_backends.forget()
    model = _Attention(768, 12, causal=True).cuda()
    check(model, torch.randn(8, 1024, 768, device="cuda"), in_eager=_ATTENTION_KERNELS)
    (known,) = attention_backends.known()
    assert known.has_gradient and known.is_causal and known.dtype == torch.bfloat16


def test_measuring_leaves_the_random_numbers_alone():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    q, k, v = (torch.randn(8, 12, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for _ in range(3))  # fmt: skip
    states = []
    for _ in range(2):  # the second time it is known
        torch._dynamo.reset()
        torch.manual_seed(3)
        torch.compile(attend, backend="inkle", fullgraph=True)(q, k, v)
        states.append(torch.cuda.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("classes", [4099, 4098, 4096])
def test_wide_heads(classes):
    model = nn.Sequential(nn.Linear(256, classes), nn.LogSoftmax(-1))
    check(model, torch.randn(2048, 256, device="cuda"))


class _Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Conv2d(16, 64, 3, padding=1), nn.Linear(64, 10)
        self.norm = nn.BatchNorm2d(64)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.body(x))), 3, 2, 1)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def test_pooling():
    check(_Pooled().to(memory_format=torch.channels_last), images(16, 16, 30, 32))


class _Norm(nn.Module):
    def __init__(self, kind, width):
        super().__init__()
        self.norm = nn.LayerNorm(width) if kind == "layer" else nn.RMSNorm(width, 1e-6)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        return self.norm(x * 2)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(4096, 256), (16384, 768), (16, 512, 1024), (3, 1024, 2048),
                                   (2500, 4096), (4096, 8192), (128, 197, 384), (20, 96)])  # fmt: skip
def test_norms_read_their_rows_once(kind, dtype, sizes):
    """Gradients of input, weight and bias of a norm alone, in one walk over the rows."""
    check(_Norm(kind, sizes[-1]).to(dtype), torch.randn(*sizes, device="cuda", dtype=dtype),
          autocast=False)  # fmt: skip


def test_sums_of_columns_do_not_depend_on_the_run():
    model = _Norm("layer", 768).cuda()
    run, x = torch.compile(model, backend="inkle"), torch.randn(8192, 768, device="cuda")
    first, again = gradients(model, run, x), gradients(model, run, x)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_gradients_at_indices_are_the_same_in_each_run_if_asked_for():
    table = nn.Embedding(50, 24).cuda()
    tokens = torch.randint(0, 50, (64, 40), device="cuda")
    weights = torch.randn(64, 40, 24, device="cuda")
    run = torch.compile(lambda t: (table(t) * weights).sum(), backend="inkle",
                        options={"strict": True})

    def gradient(function):
        table.weight.grad = None
        function(tokens).backward()
        return table.weight.grad.clone()

    torch.use_deterministic_algorithms(True)
    try:
        wanted = gradient(lambda t: (table(t) * weights).sum())
        found = [gradient(run) for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(found[0], other) for other in found)
    torch.testing.assert_close(found[0], wanted, rtol=1e-5, atol=1e-5)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = self.project(x).view(2, 48, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 48, 64)


def test_a_step_that_a_user_records():
    """torch.cuda.graph over a step in f32, whose attention torch's efficient kernel computes."""
    model, x = Attention().cuda(), torch.randn(2, 48, 64, device="cuda")
    run = torch.compile(model, backend="inkle", fullgraph=True)

    def step(call):
        call(x).square().mean().backward()

    step(model)
    wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(run)
    torch.cuda.synchronize()
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(run)
    graph.replay()
    torch.cuda.synchronize()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, wanted[name], rtol=1e-4, atol=1e-6)
