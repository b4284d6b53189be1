"""What compiled programs leave to PyTorch: calls as data, found again by name in a later process.

A call takes the flat operands of a node (tensors and sizes) and returns a list of tensors.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Sequence

import torch

from inkle import attention_backends, cudnn_attention
from inkle.dropout import draw_seed, ranks
from inkle.sizes import LARGEST_INTEGER, LEAST_INTEGER

_aten = torch.ops.aten


def within_64_bits(bound: int) -> int:
    """Where a slice begins or ends: beyond 64 bits it is beyond any size."""
    return max(LEAST_INTEGER, min(bound, LARGEST_INTEGER))


def _slice_backward(
    gradient: torch.Tensor, sizes: list[int], dim: int, start: int, end: int, step: int
) -> torch.Tensor:
    start, end = within_64_bits(start), within_64_bits(end)
    return _aten.slice_backward.default(gradient, sizes, dim, start, end, step)


# Overloads that are called through a function of ours.
_INSTEAD = {
    _aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_attention.backward,
    _aten._scaled_dot_product_efficient_attention.default: attention_backends.efficient_in_eager,
    _aten.slice_backward.default: _slice_backward,
}


class MissingOp(Exception):
    """An op that a stored program calls is not registered in this process."""


def find_op(name: str) -> torch._ops.OpOverload:
    """The overload that ``name_of_op`` names. Raises MissingOp."""
    qualified, overload = name.rsplit(".", 1)
    namespace, _, base = qualified.partition("::")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), base), overload)
    except AttributeError as error:
        raise MissingOp(f"the op {name} is not registered in this process") from error


def name_of_op(op: torch._ops.OpOverload) -> str:
    """``aten::add.Tensor``; ``default`` for an overload without a name."""
    return f"{op._schema.name}.{op._overloadname}"


def settled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if its memory does not hold its values (a lazy conjugate or negative)."""
    if tensor.is_neg() or (tensor.is_complex() and tensor.is_conj()):
        return torch.empty_like(tensor).copy_(tensor)
    return tensor


@dataclasses.dataclass(frozen=True)
class Operand:
    """Stands for the next of the flat operands."""

    is_condition: bool = False


OPERAND = Operand()


def _filled(template: Any, operands: Iterator[Any]) -> Any:
    """The template with operands in the places of ``Operand``."""
    if isinstance(template, Operand):
        value = next(operands)
        return bool(value) if template.is_condition else value
    if isinstance(template, list):
        return [_filled(part, operands) for part in template]
    return template


def is_view(op: Any) -> bool:
    """Whether results of ``op`` are views of its arguments, by its schema. Ops without one
    (those of higher order) make none."""
    if not isinstance(op, torch._ops.OpOverload):
        return False
    aliases = (returned.alias_info for returned in op._schema.returns)
    return any(alias is not None and not alias.is_write for alias in aliases)


# Torch's allocators align memory at least so well, and its kernels look no further.
_ALIGNMENT = 64


def of_its_own(view: torch.Tensor) -> torch.Tensor:
    """The same values, sizes and strides in memory of its own, from the begin of a storage. On a GPU it is
    as well aligned: torch's kernels draw random numbers in another order where they read several at once."""
    if view.numel() == 0:
        return torch.empty_strided(view.shape, view.stride(), dtype=view.dtype, device=view.device)
    span = 1 + sum((size - 1) * stride for size, stride in zip(view.shape, view.stride()))
    flat = view.as_strided((span,), (1,))
    made = _empty_at(view.data_ptr() % _ALIGNMENT, flat) if view.is_cuda else torch.empty_like(flat)
    return made.copy_(flat).as_strided(view.shape, view.stride(), 0)


def _empty_at(offset: int, like: torch.Tensor) -> torch.Tensor:
    """In one dimension, so many bytes behind an aligned address."""
    if offset == 0:
        return torch.empty_like(like)
    made = torch.empty(offset + like.nbytes, dtype=torch.uint8, device=like.device)
    # A view would have a storage offset, by which AOTAutograd makes views of arguments anew.
    return torch.from_dlpack(made[offset:]).view(like.dtype)


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of an op that are tensors, in the dtypes that FX states, which what follows counts
    on: running statistics of narrow floats are stated wider than eager makes them. Their memory
    holds their values: what follows reads it. It is their own: the graph knows of no views that
    eager makes, and may write to what they are views of. Nor are they views to autograd."""

    several: bool = False
    dtypes: tuple[tuple[int, torch.dtype | None], ...] = ((0, None),)  # by position
    are_views: bool = False

    def __call__(self, result: Any) -> list[Any]:
        parts = result if self.several else [result]
        chosen = ((parts[i], dtype) for i, dtype in self.dtypes)
        made = [settled(p if dtype in (None, p.dtype) else p.to(dtype)) for p, dtype in chosen]
        owned = [of_its_own(p) for p in made] if self.are_views else made
        return [p.detach() if p._is_view() else p for p in owned]


class OpCall:
    """A call of an op overload. Positions and keywords hold constants and operands; a constant that
    cannot be pickled keeps its program out of caches."""

    def __init__(
        self, op: torch._ops.OpOverload, values: Sequence[Any], results: Results = Results()
    ):
        """``values``: of the schema's arguments, in order."""
        self.name = name_of_op(op)
        self._positional: list[Any] = []
        self._keywords: dict[str, Any] = {}
        for described, value in zip(op._schema.arguments, values):
            if described.kwarg_only:
                self._keywords[described.name] = value
            else:
                self._positional.append(value)
        self._results = results
        self._run = _INSTEAD.get(op, op)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.name, self._positional, self._keywords, self._results

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.name, self._positional, self._keywords, self._results = state
        self._run = None

    def resolve(self) -> None:
        """Finds the op of a call that was unpickled. Raises MissingOp."""
        op = find_op(self.name)
        self._run = _INSTEAD.get(op, op)

    @property
    def is_pure(self) -> bool:
        """Whether the op neither draws random numbers nor writes. Of other ops than ATen's nobody knows."""
        op = find_op(self.name)
        return (
            op.namespace == "aten"
            and not op._schema.is_mutable
            and torch.Tag.nondeterministic_seeded not in op.tags
        )

    def __call__(self, *flat: Any) -> list[Any]:
        operands = iter(flat)
        positional = [_filled(p, operands) for p in self._positional]
        keywords = {name: _filled(k, operands) for name, k in self._keywords.items()}
        with torch.no_grad(), torch._C._DisableAutocast():
            return self._results(self._run(*positional, **keywords))


@dataclasses.dataclass(frozen=True)
class Seed:
    """Draws the seed of a graph's random numbers."""

    device: torch.device

    def __call__(self) -> list[torch.Tensor]:
        return [draw_seed(self.device)]


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Of long permutations: where each element goes."""

    dtype: torch.dtype

    def __call__(self, words: torch.Tensor) -> list[torch.Tensor]:
        return [ranks(words).to(self.dtype)]


def copied(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.clone()]


@dataclasses.dataclass(frozen=True)
class Lazy:
    """A tensor of the same value, sizes and strides that is lazy about its value."""

    conjugate: bool
    negative: bool

    def __call__(self, x: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
            lazy = torch._neg_view(made) if self.negative else made
            lazy = torch._conj(lazy) if self.conjugate else lazy
            lazy.copy_(x)
            return [lazy]
