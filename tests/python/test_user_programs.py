"""Programs in the manner of libraries that compile their users' models: forward and backward against eager,
at three sizes, as they are traced first and with symbolic sizes."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import inkle

Arguments = Callable[[int], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[[], Any], Arguments]] = {}


def program(arguments: Arguments) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """``arguments``: of a size. What is decorated makes a module or a function."""
    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[make.__name__] = make, arguments
        return make

    return add


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


@program(lambda n: (leaf(2, n, 8), 2))
def rearranged_heads() -> Any:
    def f(x: torch.Tensor, heads: int) -> Any:
        b, n, c = x.shape
        q = x.reshape(b, n, heads, c // heads).permute(0, 2, 1, 3)
        weights = torch.einsum("bhid,bhjd->bhij", q, q).softmax(-1)
        made = torch.einsum("bhij,bhjd->bhid", weights, q).permute(0, 2, 1, 3)
        return made.reshape(b, n, -1), weights.amax(-1).mean((1, 2)), x.unfold(1, 2, 1).sum(-1)

    return f


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, low: float, high: float) -> Any:
        ctx.save_for_backward(x)
        ctx.limits = low, high
        return x.clamp(low, high), x > high

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        low, high = ctx.limits
        return gradient * ((x > low) & (x < high)).to(gradient.dtype) * 0.5, None, None


@program(lambda n: (leaf(n, 3),))
def function_with_its_own_gradient() -> Any:
    def f(x: torch.Tensor) -> Any:
        y, above = Clip.apply(x * 2, -1.0, 1.0)
        return y.sin() + above.float(), above

    return f


@program(lambda n: (torch.randn(n, 3), torch.randn(3, 2)))
def transforms_of_functions() -> Any:
    def loss(w: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return ((row @ w).tanh() ** 2).sum()

    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)
        return each, torch.func.jvp(lambda t: (t @ w).sin(), (x,), (x,))[1]

    return f


class Running(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.count += 1
            self.mean.lerp_(x.mean(0), 0.1)
        return self.layer(x - self.mean) / (self.count + 1)


@program(lambda n: (leaf(n + 2, 4),))
def buffers_that_steps_write() -> Any:
    return nn.Sequential(Running(), nn.ModuleList([Running(), nn.BatchNorm1d(4)])[1], nn.ReLU(), Running())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both = nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True)
        self.gated = nn.GRU(10, 3)
        self.cell = nn.GRUCell(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        y, (h, c) = self.both(x)
        z, _ = self.gated(y.transpose(0, 1))
        return z, h, self.cell(z[-1]), c


@program(lambda n: (leaf(2, n, 4),))
def recurrent_layers() -> Any:
    return Recurrent()


@program(lambda n: (leaf(2, n + 1, 4), torch.tensor([n, 1])))
def masks_of_lengths() -> Any:
    def f(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        largest = x.masked_fill(~mask[..., None], float("-inf")).amax(1)
        mean = torch.where(mask[..., None], x, torch.zeros(())).sum(1) / lengths[:, None]
        cleared = x.clone()
        cleared[~mask] = 0
        attended = F.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None, :])
        return largest, mean, cleared, mask.float().cumsum(1) * mask, attended

    return f


@program(lambda n: (leaf(2, 3, n + 4, n + 5), leaf(3, 2, 2)))
def spectra() -> Any:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        spectrum = torch.fft.rfft2(x, norm="ortho")
        mixed = torch.einsum("bihw,io->bohw", spectrum, torch.view_as_complex(w))
        window = torch.hann_window(8)
        short = torch.stft(x.flatten(1), 8, hop_length=4, window=window, return_complex=True)
        made = torch.fft.irfft2(mixed, s=x.shape[-2:], norm="ortho")
        return made, short.abs().pow(2).sum(-1), torch.polar(x.abs(), x).angle(), torch.fft.fftshift(x)

    return f


@program(lambda n: (leaf(n + 2, 3), n, n * 0.5))
def numbers_as_arguments() -> Any:
    def f(x: torch.Tensor, n: int, scale: float) -> Any:
        group = max(n % 3, 1)
        at = torch.arange(x.shape[0]) // group
        sums = torch.zeros(x.shape[0] // group + 1, x.shape[1]).index_add(0, at, x)
        return sums * scale, x[: n // 2], F.pad(x, (0, n)), torch.full((n,), scale), n * 2, -(-x.shape[0] // 2)

    return f


@program(lambda n: (torch.randn(n, 3), torch.empty(n, n)))
def results_in_given_memory() -> Any:
    def f(x: torch.Tensor, out: torch.Tensor) -> Any:
        torch.mm(x, x.T, out=out)
        sums, sines = torch.empty(0), torch.empty_like(x)
        torch.add(x, 1, out=sums)
        torch.sin(x, out=sines[...])
        largest, at = torch.empty(x.shape[0]), torch.empty(x.shape[0], dtype=torch.long)
        torch.max(x, 1, out=(largest, at))
        return out + 1, sums, sines, largest, at

    return f


@program(lambda n: (leaf(n, 3),))
def hooks() -> Any:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    first.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    first.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,))
    second.register_forward_hook(lambda module, given, made: made * 2)
    return nn.Sequential(first, second, nn.Tanh())


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def part(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.layer(self.norm(x))) * x.sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = checkpoint(self.part, x, use_reentrant=False)
        return x


@program(lambda n: (leaf(n, 4),))
def checkpoints() -> Any:
    return Checkpointed()


@program(lambda n: (leaf(n, 3), leaf(3, 2)))
def targets_without_gradients() -> Any:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.no_grad():
            target = (x @ w).softmax(-1)
            target.mul_(0.9).add_(0.05)
        rounded = x + (x.detach().round() - x.detach())
        loss = F.kl_div((x @ w).log_softmax(-1), target, reduction="batchmean")
        return loss, rounded, target

    return f


@dataclasses.dataclass
class Output:
    total: torch.Tensor
    norms: torch.Tensor | None = None
    count: int = 0


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4, padding_idx=0)
        self.cache: dict[str, torch.Tensor] = {}

    def forward(self, at: torch.Tensor) -> Any:
        h = self.table(at)
        self.cache["mean"] = h.mean()
        made = Output(h.sum(1), h.norm(dim=-1), at.shape[1])
        return {"out": made.total * made.count, "more": [made.norms, None], "mean": self.cache["mean"]}


@program(lambda n: (torch.arange(2 * n).view(2, n) % 7,))
def structured_outputs() -> Any:
    return Embedded()


@program(lambda n: (leaf(n + 3, 3), torch.arange(18).view(2, 9) * 5 % (n + 3)))
def messages_along_edges() -> Any:
    def f(x: torch.Tensor, edges: torch.Tensor) -> Any:
        source, target = edges
        message = x[source] * x[target]
        at = target[:, None].expand_as(message)
        sums = torch.zeros_like(x).scatter_add_(0, at, message)
        degree = torch.bincount(target, minlength=x.shape[0]).clamp(min=1)
        largest = torch.full_like(x, -1e9).scatter_reduce(0, at, message, "amax")
        y = x.clone()
        y.index_put_((target,), message, accumulate=True)
        return sums / degree[:, None], largest, y

    return f


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))
        self.register_buffer("keys", torch.zeros(9, 4))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> Any:
        n, keys = x.shape[0], self.keys
        keys[:n].copy_(x.detach())
        self.position.add_(n)
        y = x * 1
        y[:, 0] = self.scale[0]
        y[::2].mul_(self.scale)
        y.view(-1)[0] = 0
        return y, keys[:n] @ self.scale, y.T


@program(lambda n: (leaf(n, 4),))
def a_cache_of_keys() -> Any:
    return Cached()


def gradients(run: Any, results: Any, arguments: tuple[Any, ...]) -> list[Any]:
    tensors = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
    if tensors:
        weights = [1 + torch.arange(t.numel()).view(t.shape) % 3 for t in tensors]
        sum((t.double() * w).nan_to_num(0, 0, 0).sum() for t, w in zip(tensors, weights)).backward()
    made = [a.grad for a in arguments if isinstance(a, torch.Tensor)]
    if isinstance(run, nn.Module):
        made += [*(p.grad for p in run.parameters()), *run.buffers()]
    return made


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, dynamic: bool | None) -> None:
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(0)
    make, arguments = PROGRAMS[name]
    eager = make()
    other = copy.deepcopy(eager) if isinstance(eager, nn.Module) else eager
    compiled = torch.compile(other, backend="inkle", dynamic=dynamic)
    for n in (3, 3, 5, 2):
        torch.manual_seed(n)
        given = arguments(n)
        same = pytree.tree_map_only(
            torch.Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), given
        )
        results, found = eager(*given), compiled(*same)
        wanted = [*pytree.tree_leaves(results), *given, *gradients(eager, results, given)]
        had = [*pytree.tree_leaves(found), *same, *gradients(other, found, same)]
        assert len(had) == len(wanted)
        for one, two in zip(had, wanted):
            if not isinstance(two, torch.Tensor):
                assert one == two and type(one) is type(two)
                continue
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5, equal_nan=True)
            assert one.requires_grad == two.requires_grad
    assert not [r.fault for r in inkle.reports() if r.fault]


@pytest.mark.parametrize("gradients", [False, True])
def test_transforms_leave_no_number_to_eager(gradients: bool) -> None:
    """Their rules multiply by numbers that they have made tensors of."""
    torch._dynamo.reset()
    inkle.reset()

    def f(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        def loss(row: torch.Tensor) -> torch.Tensor:
            return F.mse_loss((row @ w.detach()).sum(), row[0])

        return torch.vmap(torch.func.grad(loss))(x) + w[0]

    w, x = torch.randn(3, 3, requires_grad=gradients), torch.randn(4, 3)
    torch.testing.assert_close(torch.compile(f, backend="inkle")(w, x), f(w, x))
    assert [r.eager for r in inkle.reports()] == [[]] * (1 + gradients)
