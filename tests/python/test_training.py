"""Gradients through compiled graphs, against eager."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from checks import check_training, narrow, randn

pytestmark = pytest.mark.usefixtures("device")

CASES = {}


def case(name, module, make, **how):
    CASES[name] = (module, make, how)


class Call(nn.Module):
    """A function of parameters and submodules."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            is_module = isinstance(part, nn.Module)
            setattr(self, name, part if is_module else nn.Parameter(part))

    def forward(self, *args):
        return self.function(self, *args)


def tokens():
    return [torch.tensor([[1, 2, 3], [3, 3, 0]])]


def heads(x):
    return x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)


def lower(x):
    return torch.ones(5, 5, dtype=torch.bool, device=x.device).tril()


def attention(self, x, **how):
    q, k, v = (heads(part) for part in self.l(x).chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v, **how)
    return y.transpose(1, 2).reshape(x.shape)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * context.saved_tensors[0]


def tied():
    module = nn.Sequential(nn.Embedding(10, 6), nn.GELU(), nn.Linear(6, 10, bias=False))
    module[2].weight = module[0].weight
    return module


def autocast(self, x):
    with narrow(x):
        return self.l(x).relu()


def loss_under_autocast(self, x, y):
    with narrow(x):
        logits = self.l(x)
        return F.cross_entropy(logits, y), F.cross_entropy(logits * 2, y, reduction="sum")


def checkpointed(self, x):
    return torch.utils.checkpoint.checkpoint(
        lambda z: F.gelu(self.l(z)).sin(), x, use_reentrant=False
    )


torch.manual_seed(0)  # the weights of all cases

case("mlp", nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), lambda: [randn(5, 4)])
case("rank 3", nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Tanh(), nn.Softmax(-1)),
     lambda: [randn(2, 5, 4)])
case("dynamic", nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Dropout(0.1)),
     lambda: [randn(2, 5, 4)], dynamic=True)
case("convolutions", nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                                   nn.MaxPool2d(2), nn.Conv2d(4, 5, 3), nn.AdaptiveAvgPool2d(1),
                                   nn.Flatten()), lambda: [randn(2, 3, 8, 8)])
case("channels last", nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU()),
     lambda: [randn(2, 3, 8, 8).to(memory_format=torch.channels_last)])
case("groups and dilation", nn.Sequential(nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2),
                                          nn.GELU(), nn.Conv2d(8, 8, 3, stride=2, groups=8)),
     lambda: [randn(2, 4, 9, 8)])
case("transposed convolutions", nn.Sequential(nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), nn.ReLU(),
                                              nn.ConvTranspose2d(6, 3, 2, stride=2)),
     lambda: [randn(2, 4, 5, 6).requires_grad_()])
case("sequence and volume", Call(lambda s, x, v: (s.a(x), s.b(v)), a=nn.Conv1d(4, 6, 5, stride=2),
                                 b=nn.Conv3d(2, 3, (1, 3, 2))),
     lambda: [randn(2, 4, 19), randn(2, 2, 3, 5, 4).requires_grad_()])
case("skipped rows", nn.Conv2d(3, 4, 2, stride=3), lambda: [randn(2, 3, 9, 10).requires_grad_()])
case("dynamic convolution", nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)),
     lambda: [randn(2, 3, 8, 8)], dynamic=True)
case("group norm", nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU()), lambda: [randn(2, 4, 3, 3)])
case("embedding", nn.Sequential(nn.Embedding(10, 6, padding_idx=0), nn.LayerNorm(6)), tokens)
case("bag", nn.EmbeddingBag(10, 3), tokens)
case("tied", tied(), tokens)
case("causal", Call(lambda s, x: attention(s, x, is_causal=True), l=nn.Linear(8, 24)),
     lambda: [randn(2, 5, 8)])
case("dynamic attention", Call(lambda s, x: attention(s, x, is_causal=True), l=nn.Linear(8, 24)),
     lambda: [randn(2, 5, 8)], dynamic=True)
case("masked", Call(lambda s, x: attention(s, x, attn_mask=lower(x), dropout_p=0.2),
                    l=nn.Linear(8, 24)), lambda: [randn(2, 5, 8)])
case("encoder", nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True),
     lambda: [randn(2, 5, 8)])
case("cross entropy", Call(lambda s, x, y: F.cross_entropy(s.l(x), y), l=nn.Linear(4, 7)),
     lambda: [randn(5, 4), torch.tensor([0, 1, 2, -100, 6])])
case("cross entropy under autocast", Call(loss_under_autocast, l=nn.Linear(4, 7)),
     lambda: [randn(5, 4), torch.tensor([0, 1, 2, -100, 6])])
case("unused parameter", Call(lambda s, x: s.l(x), l=nn.Linear(4, 3), u=randn(3)),
     lambda: [randn(5, 4)])
case("several outputs", Call(lambda s, x: (s.l(x), s.l(x).detach(), x.argmax(), s.l(x).sum(0)),
                             l=nn.Linear(4, 3)), lambda: [randn(5, 4)])
case("mutated input", Call(lambda s, x, b: (b.add_(x.sum().detach()), s.l(x))[1],
                           l=nn.Linear(4, 3)), lambda: [randn(5, 4), randn(3)])
case("views", Call(lambda s, x: (s.l(x).view(-1), s.l.weight.t(), s.l.weight.view(-1) * 2),
                   l=nn.Linear(4, 3)), lambda: [randn(5, 4)])
case("gradient of the input", nn.Sequential(nn.Linear(4, 8), nn.ReLU()),
     lambda: [randn(5, 4).requires_grad_()])
case("indexing", Call(lambda s, x: (s.p[x], s.p.gather(0, x[:, None]), s.p[:, 1:], s.p[1],
                                    s.p.clone().index_put((x,), s.p[:3] * 2)), p=randn(4, 5)),
     lambda: [torch.tensor([0, 2, 2])])
case("reductions", Call(lambda s, x: (s.p.mean(), s.p.std(0), s.p.norm(), s.p.max(0)[0],
                                      s.p.logsumexp(0), s.p.prod(), s.p.cumsum(0),
                                      s.p.log_softmax(0)), p=randn(4, 5)), lambda: [randn(2)])
case("complex", Call(lambda s, x: torch.view_as_complex(s.p.view(4, 2, 2)) * torch.exp(1j * x),
                     p=randn(4, 4)), lambda: [randn(4, 2)])
case("bf16", nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)).bfloat16(),
     lambda: [randn(5, 4).bfloat16()])
case("autocast", Call(autocast, l=nn.Linear(4, 3)), lambda: [randn(5, 4)])
case("checkpoint", Call(checkpointed, l=nn.Linear(4, 3)), lambda: [randn(5, 4)])
case("autograd function", Call(lambda s, x: Double.apply(s.l(x)), l=nn.Linear(4, 3)),
     lambda: [randn(5, 4)])


@pytest.mark.parametrize("name", CASES)
def test_gradients(name, device):
    module, make, how = CASES[name]
    if name == "cross entropy under autocast":
        reports = check_training(copy.deepcopy(module), make, floor=1e-3)
        assert len(reports) == 2 and all(r.compiled for r in reports)
        if device == "cuda":  # where eager rounds the logarithms to bf16
            return
    reports = check_training(module, make, **how)
    assert len(reports) == 2 and all(r.compiled for r in reports)


@pytest.mark.parametrize("stage", ["frontend", "passes", "lower", "schedule", "codegen", "run"])
def test_gradients_when_a_stage_fails(stage):
    check_training(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), lambda: [randn(5, 4)],
                   strict=False, fail_stage=stage)


def error_ratio(function, *args):
    """RMS error of compiled over eager against f64, with the floor of the accuracy rule."""
    exact = function(*(a.double() for a in args))
    wanted, found = function(*args), torch.compile(function, backend="inkle")(*args)

    def rms(t):
        return (t.double() - exact).square().mean().sqrt()

    return ((rms(found) - 1e-7 * exact.abs().max()) / rms(wanted)).item()


@pytest.mark.parametrize("mean", [0.0, 50.0])
@pytest.mark.parametrize("shape", [(8, 24, 56, 56), (64, 200, 3, 3), (4, 8, 7)])
def test_long_sums_are_as_exact_as_eagers(shape, mean):
    x = randn(*shape) * 3 + mean
    x = x.to(memory_format=torch.channels_last) if len(shape) == 4 else x
    dims = [d for d in range(len(shape)) if d != 1]

    def normal(t):
        return F.batch_norm(t, None, None, training=True)

    assert error_ratio(normal, x) < 1.5
    assert error_ratio(lambda t: t.sum(dims), x) < 1.5
    assert error_ratio(lambda t: t.var(dims), x) < 1.5
    assert error_ratio(lambda t: (t * t).mean((0, 1)), x) < 1.5


@pytest.mark.cpu_only  # elsewhere eager's are of f32, too
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("mean", [0.0, 5.0])
@pytest.mark.parametrize("shape", [(2, 144, 28, 28), (2, 64, 56, 56), (4, 96, 7, 7)])
def test_gradients_of_batch_norm_are_as_exact_as_eagers(shape, mean, channels_last):
    """Each of the image's, the weight's and the bias's, and the result itself."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(shape) * torch.rand(shape[1], 1, 1) + mean * torch.randn(shape[1], 1, 1)
    gradient = torch.randn(shape) * 1e-3 + 1e-4
    if channels_last:
        x, gradient = (t.to(memory_format=torch.channels_last) for t in (x, gradient))
    module = nn.BatchNorm2d(shape[1])
    nn.init.uniform_(module.weight, 0.5, 1.5)

    def step(run, owner, x, gradient):
        x = x.detach().clone().requires_grad_()
        y = run(x)
        y.backward(gradient)
        return {"y": y, "x": x.grad, "weight": owner.weight.grad, "bias": owner.bias.grad}

    plain, double = copy.deepcopy(module), copy.deepcopy(module).double()
    exact = step(double, double, x.double(), gradient.double())
    wanted = step(plain, plain, x, gradient)
    found = step(torch.compile(module, backend="inkle"), module, x, gradient)
    for name, reference in exact.items():
        ours, eagers = ((t[name] - reference).square().mean().sqrt() for t in (found, wanted))
        assert ours <= 1.5 * eagers + 1e-7 * reference.abs().max(), name


@pytest.mark.cpu_only
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("shape", [(2, 64, 1, 1), (4, 64, 2, 2), (8, 64, 8, 8), (8, 64, 11, 11),
                                   (2, 64, 28, 28), (8, 64, 56, 56)])  # fmt: skip
def test_statistics_are_rounded_once(shape, channels_last):
    run = torch.compile(nn.BatchNorm2d(64), backend="inkle")
    errors = []
    for factor in range(1, 11):
        x = randn(*shape) * factor + 5
        x = x.to(memory_format=torch.channels_last) if channels_last else x
        run.reset_running_stats()
        run(x)
        exact = x.double().transpose(0, 1).flatten(1)
        for found, wanted in ((run.running_mean, 0.1 * exact.mean(1)),
                              (run.running_var, 0.9 + 0.1 * exact.var(1))):  # fmt: skip
            errors.append(((found - wanted) / wanted).square().mean())
    # Roundings to the nearest of 24 bits are 2^-24 at most, 2.6e-8 in RMS.
    assert torch.stack(errors).mean().sqrt() < 3.2e-8


@pytest.mark.parametrize("whole", [False, True], ids=["one", "row"])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_cross_entropy_of_what_is_not_finite(value, whole):
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(5, 7)
    x[1, slice(None) if whole else slice(2, 3)] = value
    target = torch.tensor([0, 3, 2, -100, 6])

    def loss(x):
        return torch.nn.functional.cross_entropy(x, target, reduction="none")

    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    wanted, got = loss(a), torch.compile(loss, backend="inkle", fullgraph=True)(b)
    wanted.sum().backward()
    got.sum().backward()
    torch.testing.assert_close(got, wanted, equal_nan=True)
    torch.testing.assert_close(b.grad, a.grad, equal_nan=True)
