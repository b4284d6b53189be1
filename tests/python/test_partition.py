"""What the backward keeps: never more than AOTAutograd's default, with eager's gradients."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch import partitioners
from torch.utils.checkpoint import checkpoint

import inkle
import checks
from checks import check_training, randn
from inkle import partition


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


# name: module, arguments, whether the minimum cut saves less
MODELS = {
    "arithmetic": (Arithmetic, lambda: [randn(32, 16, requires_grad=True)], True),
    "block": (Block, sequence, True),
    "checkpointed": (Checkpointed, sequence, False),
    "images": (images, lambda: [randn(4, 3, 10, 10, requires_grad=True)], False),
    "masked": (Masked, lambda: [*sequence(), torch.tensor([5, 12])], True),
    "mlp": (mlp, lambda: [randn(32, 16, requires_grad=True)], False),
    "tied": (Tied, lambda: [torch.tensor([[1, 2, 3, 3], [0, 15, 7, 2]])], True),
}


_compiled = checks.compiled


def compiled(function, *given, **options):
    return _compiled(function, *given, **{"partition": "smallest", **options})


@pytest.fixture(autouse=True)
def _smallest(monkeypatch):
    monkeypatch.setattr(checks, "compiled", compiled)


class Sizes:
    """Saved bytes of each partition made: of the one taken and of the default."""

    def __init__(self, monkeypatch):
        self.pairs: list[tuple[int, int]] = []
        self.backwards: list[torch.fx.GraphModule] = []
        take = partition.smallest

        def measured(joint, inputs, *, num_fwd_outputs, **named):
            other = partition._copy(joint)
            taken = take(joint, inputs, num_fwd_outputs=num_fwd_outputs, **named)
            default = partitioners.default_partition(
                other, inputs, num_fwd_outputs=num_fwd_outputs, **named
            )
            self.pairs.append(
                tuple(partition.saved_bytes(h[0], num_fwd_outputs) for h in (taken, default))
            )
            self.backwards.append(taken[1])
            return taken

        monkeypatch.setattr(partition, "smallest", measured)


@pytest.mark.parametrize("name", MODELS)
def test_never_saves_more(name, monkeypatch):
    make, arguments, is_less = MODELS[name]
    sizes = Sizes(monkeypatch)
    torch.manual_seed(0)
    reports = check_training(make(), arguments)
    assert reports and all(r.compiled for r in reports)
    assert len(sizes.pairs) == 1
    taken, default = sizes.pairs[0]
    assert (taken < default) if is_less else (taken == default), (taken, default)


@pytest.mark.parametrize("name", MODELS)
def test_tensors_that_autograd_keeps(name):
    """What the hooks of saved tensors see is no more than with the default partition."""
    make, arguments, _ = MODELS[name]
    torch.manual_seed(0)
    module = make().train()
    found = {}
    for choice in ("smallest", "default"):
        torch._dynamo.reset()
        run = compiled(copy.deepcopy(module), partition=choice)
        outputs = run(*arguments())
        outputs.sum().backward()
        kept = {}

        def pack(x):
            if not isinstance(x, nn.Parameter):
                kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            outputs = run(*arguments())
        found[choice] = sum(kept.values())
        outputs.sum().backward()
    assert 0 < found["smallest"] <= found["default"], found


@pytest.mark.parametrize("make", [lambda: Block(0.3), lambda: mlp(0.5)], ids=["block", "mlp"])
def test_dropout_has_one_mask(make, monkeypatch):
    """Half of a numeric derivative along a direction needs the mask of the forward."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = make().train()
    sizes = Sizes(monkeypatch)
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
    for backward in sizes.backwards:
        assert not [n for n in backward.graph.nodes if partition._is_random(n)]


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


def test_contractions_are_not_computed_again(monkeypatch):
    sizes = Sizes(monkeypatch)
    check_training(Block(), sequence)
    forward_only = ("addmm", "convolution.", "_scaled_dot_product", "native_layer_norm.")
    names = [str(n.target) for n in sizes.backwards[0].graph.nodes if n.op == "call_function"]
    again = [n for n in names if any(f in n for f in forward_only) and "backward" not in n]
    assert not again, again


def test_failure_keeps_the_default(monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("no cut today")

    monkeypatch.setattr(partitioners, "min_cut_rematerialization_partition", fail)
    monkeypatch.setattr(partition, "_failed", set())
    with caplog.at_level(logging.WARNING, "inkle"):
        for _ in range(2):
            reports = check_training(Arithmetic(), lambda: [randn(32, 16, requires_grad=True)])
    assert all(r.compiled for r in reports)
    assert len([r for r in caplog.records if "no cut today" in r.message]) == 1


def test_symbolic_batch(monkeypatch):
    sizes = Sizes(monkeypatch)
    check_training(Arithmetic(), lambda: [randn(32, 16, requires_grad=True)], dynamic=True)
    taken, default = sizes.pairs[0]
    assert 0 < taken < default


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

    run = compiled(chain)
    assert kept(run) == x.untyped_storage().nbytes()
    assert kept(chain) > 10 * x.untyped_storage().nbytes()
