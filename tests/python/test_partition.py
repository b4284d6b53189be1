"""The cut of joint graphs: never more kept than AOTAutograd's default partition, eager's gradients."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import inkle
from checks import IS_OLDER_TORCH, check_training, compiled, narrow, randn
from inkle import pair

pytestmark = pytest.mark.usefixtures("device")


class Block(nn.Module):
    """A transformer block with layer norm, a gelu written out and dropout."""

    def __init__(self, p: float = 0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)
        self.p = p

    def forward(self, x, mask=None):
        n, length, width = x.shape
        q, k, v = (part.view(n, length, 4, 8).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).chunk(3, -1))  # fmt: skip
        y = F.scaled_dot_product_attention(q, k, v, mask)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(n, length, width)), self.p)
        h = self.up(self.norm2(x))
        h = 0.5 * h * (1 + torch.tanh(0.79788456 * (h + 0.044715 * h * h * h)))
        return x + F.dropout(self.down(h), self.p)


class Masked(nn.Module):
    """A mask of attention computed in the graph."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x, lengths):
        places = torch.arange(x.shape[1], device=x.device)
        return self.block(x, (places[None, :] < lengths[:, None])[:, None, None, :])


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.l = Block(), nn.Linear(32, 8)

    def forward(self, x):
        return self.l(checkpoint(self.block, x, use_reentrant=False))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(16, 32)
        self.block = Block()

    def forward(self, ids):
        return self.block(self.e(ids)) @ self.e.weight.t()


class Arithmetic(nn.Module):
    """A chain of cheap ops between two products."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 64), nn.Linear(64, 8)

    def forward(self, x):
        h = self.a(x)
        return self.b(torch.sin(h) * torch.exp(-h * h) + torch.sigmoid(h) * h)


def images():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(),
                         nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4), nn.Hardtanh())  # fmt: skip


def mlp(p: float = 0.0):
    layers = nn.Linear(16, 64), nn.Tanh(), nn.Dropout(p), nn.Linear(64, 8), nn.Softplus()
    return nn.Sequential(*layers)


def sequence():
    return [randn(2, 12, 32, requires_grad=True)]


# name: module, arguments, whether the cut keeps less
MODELS = {
    "arithmetic": (Arithmetic, lambda: [randn(32, 16, requires_grad=True)], True),
    "block": (Block, sequence, True),
    "images": (images, lambda: [randn(4, 3, 10, 10, requires_grad=True)], True),
    "masked": (Masked, lambda: [*sequence(), torch.tensor([5, 12])], True),
    "norm": (lambda: nn.BatchNorm2d(4), lambda: [randn(4, 4, 6, 6, requires_grad=True)], True),
    "mlp": (mlp, lambda: [randn(32, 16, requires_grad=True)], False),
    "tied": (Tied, lambda: [torch.tensor([[1, 2, 3, 3], [0, 15, 7, 2]])], True),
}
ALL = {**MODELS, "checkpointed": (Checkpointed, sequence, False)}


class Cuts:
    """Every cut that is made: the joint graph, and what the compiler made of it."""

    def __init__(self, monkeypatch):
        self.made: list[tuple[pair.Joint, object]] = []
        kept = pair.Kept

        def recorded(joint, walker, cut):
            self.made.append((joint, cut))
            return kept(joint, walker, cut)

        monkeypatch.setattr(pair, "Kept", recorded)

    def names(self, is_backward: bool) -> list[str]:
        """ATen names of the nodes of one half, of all cuts."""
        return [node[0].split()[0] if node[0] else node[2][0]
                for _, cut in self.made for node in cut.nodes(is_backward)]  # fmt: skip


@pytest.fixture
def cuts(monkeypatch):
    return Cuts(monkeypatch)


@pytest.mark.parametrize("choice", ["own", "smallest"])
@pytest.mark.parametrize("name", MODELS)
def test_never_keeps_more(name, choice, cuts):
    make, arguments, is_less = MODELS[name]
    torch.manual_seed(0)
    reports = check_training(make(), arguments, partition=choice)
    assert len(reports) == 2 and all(r.compiled for r in reports)
    ((joint, cut),) = cuts.made
    assert reports[0].kept_bytes == cut.bytes <= joint.default_bytes
    if choice == "smallest" and is_less:
        assert cut.bytes < joint.default_bytes


@pytest.mark.parametrize("name", ALL)
def test_tensors_that_autograd_keeps(name, device):
    """What the hooks of saved tensors see is no more than with the default partition."""
    make, arguments, _ = ALL[name]
    torch.manual_seed(0)
    module = make().train()
    found = {}
    for choice in ("own", "smallest", "default"):
        torch._dynamo.reset()
        # On a GPU AOTAutograd's partition gives the random state as an argument, which is left to eager;
        # an older one keeps it on the CPU, too.
        is_eager = choice == "default" and (device == "cuda" or IS_OLDER_TORCH)
        run = compiled(copy.deepcopy(module), strict=not is_eager, partition=choice)
        run(*arguments()).sum().backward()
        kept = {}

        def pack(x):
            if not isinstance(x, nn.Parameter):
                kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            outputs = run(*arguments())
        found[choice] = sum(kept.values())
        outputs.sum().backward()
    # In eager the random state of a checkpoint, 16 bytes, is none of the tensors that are kept.
    most = found["default"] + (16 if device == "cuda" and name == "checkpointed" else 0)
    assert 0 < found["smallest"] <= most, found
    assert 0 < found["own"] <= most, found


@pytest.mark.parametrize("name", ALL)
def test_a_call_that_fails_runs_in_eager(name):
    """Node by node, each half on its own."""
    make, arguments, _ = ALL[name]
    torch.manual_seed(0)
    reports = check_training(make(), arguments, strict=False, fail_stage="run")
    assert [r.fault for r in reports] == ["made to fail by option fail_stage"] * len(reports)


@pytest.mark.parametrize("fails", [0, 1], ids=["forward", "backward"])
def test_one_half_that_fails(fails):
    torch._dynamo.reset()
    inkle.reset()
    module = Block(0.3).train()
    run, x = compiled(module, strict=False, random="fast"), sequence()[0]
    gradients = []
    for is_failing in (False, True):
        torch.manual_seed(7)
        x.grad = None
        outputs = run(x)
        inkle.reports()[fails].callable.fails = is_failing
        if is_failing:
            torch.manual_seed(7)
            outputs = run(x)
        outputs.square().sum().backward()
        gradients.append(x.grad)
    assert inkle.reports()[fails].fault
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [lambda: Block(0.3), lambda: mlp(0.5)], ids=["block", "mlp"])
def test_dropout_has_one_mask(make, cuts):
    """Half of a numeric derivative along a direction needs the mask of the forward."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = make().train()
    run = compiled(module, random="fast")
    x = randn(2, 12, 32) if isinstance(module, Block) else randn(32, 16)
    step = randn(*x.shape).flip(0) * 1e-2

    def loss(value):
        torch.manual_seed(4)
        return run(value).pow(2).sum()

    given = x.clone().requires_grad_()
    loss(given).backward()
    with torch.enable_grad():
        ahead = loss((x + step).requires_grad_()).item()
        behind = loss((x - step).requires_grad_()).item()
    wanted = (given.grad * step).sum().item()
    assert abs((ahead - behind) / 2 - wanted) < 2e-2 * abs(wanted)
    assert "inkle::seed" in cuts.names(False) and "inkle::seed" not in cuts.names(True)


def test_running_statistics_are_written_once():
    torch._dynamo.reset()
    module = images().train()
    plain = copy.deepcopy(module)
    run = compiled(module)
    for step in range(3):
        x = randn(4, 3, 10, 10) + step
        run(x).sum().backward()
        plain(x).sum().backward()
    assert module[1].num_batches_tracked.item() == 3
    for a, b in zip(module.buffers(), plain.buffers()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


class Written(nn.Module):
    """A cheap value of a buffer that the same forward writes afterwards."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.full((64, 32), 2.0))
        self.l = nn.Linear(32, 32)

    def forward(self, x):
        y = torch.sin(self.l(x)) * torch.cos(self.scale)
        self.scale.add_(1.0)
        return y


def test_written_buffer_is_not_read_again():
    reports = check_training(Written(), lambda: [randn(64, 32, requires_grad=True)])
    assert all(r.compiled for r in reports)


def test_contractions_are_not_computed_again(cuts):
    check_training(Arithmetic(), lambda: [randn(32, 16, requires_grad=True)], partition="smallest")
    products = {"aten::mm", "aten::addmm", "aten::matmul"}
    (joint, _), = cuts.made
    targets = [str(n.target) for n in joint.gm.graph.nodes]
    wanted = sum(t in ("aten.mm.default", "aten.addmm.default") for t in targets)
    found = [n for half in (False, True) for n in cuts.names(half) if n in products]
    assert len(found) == wanted > 4


def test_checkpointed_products_are_computed_again(cuts):
    """Of the block only its input is kept; the layer behind it is no part of it."""
    reports = check_training(Checkpointed(), sequence)
    assert reports[0].kept_bytes <= 3 * 2 * 12 * 32 * 4
    again = [n for n in cuts.names(True) if n.startswith("aten::_scaled_dot")]
    assert again


def test_failure_keeps_the_default(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("no cut today")

    monkeypatch.setattr(pair, "Kept", fail)
    inkle.reset()
    with caplog.at_level(logging.WARNING, "inkle"):
        for _ in range(2):
            torch._dynamo.reset()
            module = Arithmetic()
            compiled(module)(randn(32, 16)).sum().backward()
    assert all(r.compiled and r.kept_bytes is None for r in inkle.reports())
    assert len([r for r in caplog.records if "no cut today" in r.message]) == 1


def test_symbolic_batch(cuts):
    reports = check_training(Arithmetic(), lambda: [randn(32, 16, requires_grad=True)],
                             dynamic=True, partition="smallest")  # fmt: skip
    ((joint, cut),) = cuts.made
    assert len(reports) == 2 and 0 < cut.bytes < joint.default_bytes and cut.symbols


def test_symbolic_sizes_of_what_passes_made():
    """Layer norm is expanded before the cut: what is kept of it has sizes of the compiler's own."""
    torch._dynamo.reset()
    inkle.reset()
    module = Block().train()
    plain = copy.deepcopy(module)
    run = compiled(module, dynamic=True)
    for length in (12, 7, 30):
        x, y = (randn(3, length, 32, requires_grad=True) for _ in range(2))
        run(x).square().sum().backward()
        plain(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)
    assert len(inkle.reports()) == 2 and inkle.reports()[0].kept_bytes


@pytest.mark.parametrize("inside", [False, True])
def test_cross_entropy_under_autocast_keeps_narrow_logits(inside):
    torch._dynamo.reset()
    inkle.reset()
    layer, x = nn.Linear(16, 1000), randn(64, 16)
    target = torch.arange(64)

    def loss(x):
        if not inside:
            return F.cross_entropy(layer(x), target)
        with narrow(x):
            return F.cross_entropy(layer(x), target)

    run = compiled(loss)
    with narrow(x, not inside):
        found = run(x)
        wanted = loss(x)
    assert found.dtype == wanted.dtype == torch.float32
    if x.is_cuda:  # whose eager rounds the logarithms to bf16
        exact = F.cross_entropy(copy.deepcopy(layer).double()(x.double()), target)
        assert (found - exact).abs() <= 1.5 * (wanted - exact).abs() + 1e-3 * exact
    else:
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    # Logits in bf16 and a number a row.
    assert inkle.reports()[0].kept_bytes < 64 * 1000 * 2 + 64 * 64
    found.backward()
    gradient, layer.weight.grad = layer.weight.grad, None
    wanted.backward()
    torch.testing.assert_close(gradient, layer.weight.grad, rtol=2e-2, atol=1e-4)


class WrittenOut(nn.Module):
    """Attention as products and a softmax."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = (heads.unflatten(-1, (4, 8)).transpose(1, 2)
                   for heads in self.qkv(x).chunk(3, -1))  # fmt: skip
        weights = torch.softmax(q @ k.transpose(-2, -1) * 0.3, -1)
        return (weights @ v).transpose(1, 2).flatten(2)


@pytest.mark.cpu_only  # elsewhere written attention stays products
@pytest.mark.parametrize("choice", ["smallest", "own"])
def test_no_weights_of_attention_are_kept(choice):
    torch.manual_seed(0)
    reports = check_training(WrittenOut(), lambda: [randn(2, 64, 32)], partition=choice)
    assert reports[0].kept_bytes < 2 * 4 * 64 * 64 * 4


def test_an_output_may_be_written_to():
    """Eager keeps ``y + 1``; what is computed from an output may not be, once a user wrote to it."""

    def function(x, w):
        y = x @ w * 2
        return y, torch.sin(y + 1)

    gradients = []
    for choice in ("own", "smallest", None):
        torch._dynamo.reset()
        x, w = randn(64, 64, requires_grad=True), randn(64, 64) / 8
        run = compiled(function, partition=choice) if choice else function
        y, z = run(x, w)
        with torch.no_grad():
            y.zero_()
        z.sum().backward()
        gradients.append(x.grad)
    for found in gradients[:-1]:
        torch.testing.assert_close(found, gradients[-1], rtol=1e-4, atol=1e-5)


def test_an_argument_may_not_be_written_to():
    """Batch norm's gradient reads ``x - mean``, made of an argument again: eager keeps that, too."""
    torch._dynamo.reset()
    inkle.reset()
    run, x = compiled(nn.BatchNorm2d(4).train()), randn(4, 4, 6, 6)
    leaf = x.clone().requires_grad_()
    own = leaf * 1
    y = run(own)
    assert [r.kept_bytes for r in inkle.reports()] == [2 * 4 * 4] * 2
    with torch.no_grad():
        own.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.square().sum().backward()


class Shared(nn.Module):
    """Outputs that the backward reads, views of one another, and an input that comes back."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(16, 16)

    def forward(self, x):
        h = torch.tanh(self.l(x))
        return h, h.view(-1), torch.exp(h), x, h[1:]


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(16, 16)

    def forward(self, x, state):
        h = self.l(x).sigmoid_()
        state.mul_(0.5).add_(h.detach().mean(0))
        return (h * state).relu_()


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        with narrow(x):
            return self.block(x).float()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        y = x * x
        context.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(context, gradient):
        x, y = context.saved_tensors
        return gradient * (2 * x + 0 * y)


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(16, 16)

    def forward(self, x):
        return Square.apply(self.l(x)) * 2


class Drawn(nn.Module):
    """Random numbers of all kinds that the backward reads."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(16, 16)

    def forward(self, x):
        h = self.l(x)
        whole = torch.randint(-3, 9, h.shape, device=h.device)
        return F.dropout(h, 0.3) * torch.randn_like(h) * torch.rand_like(h) * whole.float()


SPECIAL = {
    "shared": (Shared, lambda: [randn(4, 16, requires_grad=True)], 1e-4),
    "in place": (InPlace, lambda: [randn(4, 16), randn(16)], 1e-4),
    "autocast": (Narrow, sequence, 5e-2),
    "function": (Custom, lambda: [randn(4, 16, requires_grad=True)], 1e-4),
}


@pytest.mark.parametrize("choice", ["own", "smallest"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special(name, choice):
    make, arguments, tolerance = SPECIAL[name]
    torch.manual_seed(0)
    reports = check_training(make(), arguments, partition=choice, tolerance=tolerance)
    assert len(reports) == 2 and all(r.kept_bytes is not None for r in reports)


@pytest.mark.parametrize("fails", [(), (0,), (1,), (0, 1)], ids=str)
def test_random_numbers_of_halves_in_eager(fails):
    torch._dynamo.reset()
    inkle.reset()
    run, x = compiled(Drawn(), strict=False, random="fast"), randn(8, 16, requires_grad=True)
    found = []
    for which in ((), fails):
        torch.manual_seed(7)
        y = run(x)
        for i in which:
            inkle.reports()[i].callable.fails = True
        x.grad = None
        torch.manual_seed(7)
        y = run(x)
        y.sum().backward()
        found.append((y.detach(), x.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    assert (found[0][0] == 0).any() and found[0][0].unique().numel() > 50


def test_peak_of_a_chain():
    """Eager keeps every step of a long chain of cheap ops; here its input is enough."""

    def chain(x):
        for _ in range(6):
            x = torch.sin(x) * 1.1 + torch.tanh(x)
        return x

    torch._dynamo.reset()
    inkle.reset()
    x = randn(64, 64, requires_grad=True)

    def kept(function) -> int:
        storages = {}

        def pack(t):
            storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = function(x)
        y.sum().backward()
        return sum(storages.values())

    run = compiled(chain, partition="smallest")
    assert kept(run) == x.untyped_storage().nbytes()
    assert kept(chain) > 5 * x.untyped_storage().nbytes()


def test_backward_twice():
    """Kept values live as long as the graph of autograd does."""
    torch._dynamo.reset()
    with torch._functorch.config.patch(donated_buffer=False):
        run, x = compiled(Arithmetic()), randn(32, 16, requires_grad=True)
        loss = run(x).sum()
        loss.backward(retain_graph=True)
        once = x.grad.clone()
        loss.backward()
    torch.testing.assert_close(x.grad, 2 * once)


def test_compiled_autograd_has_the_default_partition():
    torch._dynamo.reset()
    inkle.reset()
    module = Arithmetic()
    x, y = (randn(32, 16, requires_grad=True) for _ in range(2))
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled(module)(x).sum().backward()
    module(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)
    assert all(r.kept_bytes is None for r in inkle.reports())
