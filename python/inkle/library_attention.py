"""Decomposed attention, and its gradient, by torch's own kernels on a GPU.

The compiler finds it in a joint graph and asks here (``passes::library_attention``): which kernel torch
would take for ``scaled_dot_product_attention`` of these tensors, or the one that was measured to be
the fastest, becomes a pair of calls. Dropout's numbers are the kernel's own; what it drew from is
kept, so that its backward draws them again.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Callable, NamedTuple, Sequence

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from inkle import attention_backends, cudnn_attention
from inkle.eager_graph import NAMED_DTYPES, size_of

_log = logging.getLogger("inkle")
_aten = torch.ops.aten
# Rows of a bias start at multiples of so many elements for the efficient kernel, as torch pads them.
_BIAS_ALIGNMENT = 16

Tensor = torch.Tensor


class Call(NamedTuple):
    """How a kernel is called."""

    dropout: float
    is_causal: bool
    scale: float


class Kernel(NamedTuple):
    """``forward``(query, key, value, bias, call) gives the result and what ``backward`` reads beside
    it; ``backward``(grad, query, key, value, results, bias, call) three gradients."""

    name: str
    forward: Callable[..., list[Tensor]]
    backward: Callable[..., list[Tensor]]
    # Of the results of the forward those that lie on the CPU, whatever torch states.
    on_cpu: tuple[int, ...] = ()


def _flash(q: Tensor, k: Tensor, v: Tensor, bias: None, c: Call) -> list[Tensor]:
    r = _aten._scaled_dot_product_flash_attention.default(
        q, k, v, c.dropout, c.is_causal, False, scale=c.scale
    )
    return [r[0], r[1], r[6], r[7]]


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, results: Sequence[Tensor], bias: None, c: Call
) -> list[Tensor]:
    out, logarithms, seed, offset = results
    return list(_aten._scaled_dot_product_flash_attention_backward.default(
        grad, q, k, v, out, logarithms, None, None, q.shape[2], k.shape[2], c.dropout, c.is_causal,
        seed, offset, scale=c.scale,
    ))  # fmt: skip


def _padded(bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    if bias is None:
        return None
    columns = k.shape[2]
    missing = -columns % _BIAS_ALIGNMENT if isinstance(columns, int) else 0
    if missing:
        bias = F.pad(bias, (0, missing))[..., :columns]
    return bias.expand(q.shape[0], q.shape[1], q.shape[2], columns)


def _efficient(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, c: Call) -> list[Tensor]:
    return list(attention_backends.efficient_in_eager(
        q, k, v, _padded(bias, q, k), True, c.dropout, c.is_causal, scale=c.scale
    ))  # fmt: skip


def _efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, results: Sequence[Tensor], bias: Tensor | None,
    c: Call,
) -> list[Tensor]:  # fmt: skip
    out, logarithms, seed, offset = results
    return list(_aten._scaled_dot_product_efficient_attention_backward.default(
        grad, q, k, v, _padded(bias, q, k), out, logarithms, seed, offset, c.dropout,
        [True, True, True, False], c.is_causal, scale=c.scale,
    )[:3])  # fmt: skip


def _by_batch(bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    if bias is None:
        return None
    return bias.expand(q.shape[0], bias.shape[1], q.shape[2], k.shape[2])


def _cudnn(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, c: Call) -> list[Tensor]:
    r = _aten._scaled_dot_product_cudnn_attention.default(
        q, k, v, _by_batch(bias, q, k), True, c.dropout, c.is_causal, False, scale=c.scale
    )
    return [r[0], r[1], r[6], r[7]]


def _cudnn_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, results: Sequence[Tensor], bias: Tensor | None,
    c: Call,
) -> list[Tensor]:  # fmt: skip
    out, logarithms, seed, offset = results
    return list(cudnn_attention.backward(
        grad, q, k, v, out, logarithms, seed, offset, _by_batch(bias, q, k), None, None, q.shape[2],
        k.shape[2], c.dropout, c.is_causal, scale=c.scale,
    ))  # fmt: skip


KERNELS = {
    _aten._scaled_dot_product_flash_attention.default: Kernel("flash", _flash, _flash_backward),
    _aten._scaled_dot_product_efficient_attention.default:
        Kernel("efficient", _efficient, _efficient_backward, (2, 3)),
    _aten._scaled_dot_product_cudnn_attention.default: Kernel("cudnn", _cudnn, _cudnn_backward),
}  # fmt: skip
_NAMED = {kernel.name: kernel for kernel in KERNELS.values()}


class _Recorder(TorchDispatchMode):
    """Which of the kernels is called, with tensors as they came."""

    def __init__(self, tensors: Sequence[Tensor]):
        super().__init__()
        self._given = [(t.shape, t.dtype) for t in tensors]
        self.found: Kernel | None = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kernel = KERNELS.get(func)
        # Not where torch pads or casts them first.
        if kernel is not None and [(t.shape, t.dtype) for t in args[:3]] == self._given:
            self.found = kernel
        return func(*args, **(kwargs or {}))


def choose(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, c: Call) -> Kernel | None:
    """What scaled_dot_product_attention of these fake tensors, which need gradients, would call."""
    backend = attention_backends.for_training((q, k, v), bias, c.dropout, c.is_causal, c.scale, False)
    recorder = _Recorder((q, k, v))
    with attention_backends.preferring(backend), recorder:
        F.scaled_dot_product_attention(q, k, v, bias, c.dropout, c.is_causal, scale=c.scale)
    return recorder.found


class LibraryAttention:
    """Answers the compiler for one joint graph."""

    def __init__(self, walker: Any, mode: Any, symbols: dict[str, Any]):
        """``walker``: its importer; ``symbols``: integers of ``mode``'s shapes, by name."""
        self._walker, self._mode, self._symbols = walker, mode, symbols
        # (op, source, reason) of each call, as reports have them.
        self.calls: list[tuple[str, str, str]] = []

    def __call__(
        self, tensors: list[Any], bias: Any, is_causal: bool, dropout: float, scale: float,
        sources: tuple[str, str],
    ) -> tuple[Any, ...] | None:  # fmt: skip
        """``tensors``: types of query, key, value and the result's gradient. Gives (name, number of
        the forward, of the backward, types of the forward's results, of gradients)."""
        try:
            return self._answer(tensors, bias, Call(dropout, is_causal, scale), sources)
        except Exception as error:  # noqa: BLE001: decomposed it is as right
            _log.info("attention stays decomposed: %s: %s", type(error).__name__, error)
            return None

    def _answer(
        self, tensors: list[Any], bias_type: Any, call: Call, sources: tuple[str, str]
    ) -> tuple[Any, ...] | None:
        with self._mode, torch.no_grad(), torch._C._DisableAutocast():
            q, k, v, grad = (self._fake(t) for t in tensors)
            # In f32 the kernels may be five times as far from f64 as the products that eager runs.
            if q.dtype not in (torch.float16, torch.bfloat16):
                return None
            bias = None if bias_type is None else self._fake(bias_type)
            if bias is not None and bias.dim() < 4:
                bias = bias.view(*[1] * (4 - bias.dim()), *bias.shape)
            with torch.enable_grad():
                kernel = choose(*(t.detach().requires_grad_() for t in (q, k, v)), bias, call)
            if kernel is None:
                return None
            results = kernel.forward(q, k, v, bias, call)
            gradients = kernel.backward(grad, q, k, v, results, bias, call)
            results = [
                torch.empty_like(r, device="cpu") if i in kernel.on_cpu else r
                for i, r in enumerate(results)
            ]
        name = f"inkle::{kernel.name}_attention"
        self.calls += [(name, sources[0], "torch's own"), (name + "_backward", sources[1], "torch's own")]
        targets, has_bias = self._walker.targets, bias is not None
        targets += [
            _KernelCall(kernel.name, call, len(results), has_bias, is_backward)
            for is_backward in (False, True)
        ]
        return (name, len(targets) - 2, len(targets) - 1,
                [self._walker.type(r) for r in results],
                [self._walker.type(g) for g in gradients])  # fmt: skip

    def _fake(self, described: tuple[Any, ...]) -> Tensor:
        dtype, sizes, strides, (kind, index) = described
        return torch.empty_strided(
            [size_of(s, self._symbols) for s in sizes], [size_of(s, self._symbols) for s in strides],
            dtype=NAMED_DTYPES[dtype], device=torch.device(kind, index),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _KernelCall:
    """One of the kernels as programs call it, of flat operands: (query, key, value[, bias]), of the
    backward (gradient, query, key, value, results of the forward[, bias])."""

    name: str
    call: Call
    results: int
    has_bias: bool
    is_backward: bool

    def __call__(self, *flat: Tensor) -> list[Tensor]:
        kernel = _NAMED[self.name]
        with torch.no_grad(), torch._C._DisableAutocast():
            if not self.is_backward:
                return kernel.forward(*flat[:3], self._bias(flat), self.call)
            results = flat[4 : 4 + self.results]
            return kernel.backward(*flat[:4], results, self._bias(flat), self.call)

    def _bias(self, flat: Sequence[Tensor]) -> Tensor | None:
        if not self.has_bias:
            return None
        bias = flat[-1]
        return bias.view(*[1] * (4 - bias.dim()), *bias.shape)
