"""Views whose elements share memory, and writes beside them, of a random function (``fuzz_draw.py``).

An element of ``unfold``, ``expand`` or ``as_strided`` may lie where another one does. What a write through such a
view leaves there depends on its order, and what lies beyond the elements of a result on the op that made it: neither
is drawn.
"""

from __future__ import annotations

import re
from typing import Any

import torch

# Seeds from here on draw these as well; those before stand for the functions that they always were.
FIRST = 11_000_000

_REACH = 5  # elements from the first that ``as_strided`` below reaches

# {a}, {b}: tensors; {f}: of floats; {x}: real; {d}: a dimension of a; {s}: a scalar; {v}: what is made.
STATEMENTS = [
    # Views.
    "{v} = {a}.unfold({d}, 2, 1)", "{v} = {a}.unfold({d}, 3, 2)", "{v} = {a}.unfold({d}, 2, 2)",
    "{v} = {a}.as_strided((2, 2), (1, 1))", "{v} = {a}.as_strided((2, 3), (0, 1), 1)",
    "{v} = {a}.as_strided((3, 2), (1, 2))", "{v} = {a}.expand(3, *{a}.shape)", "{v} = {a}[:1].expand({a}.shape)",
    "{v} = {a}.unfold({d}, 2, 1).transpose(0, -1)", "{v} = {a}.unfold({d}, 2, 1)[1:]", "{v} = {a}.diagonal(1)",
    # Copies with another part.
    "{v} = torch.select_scatter({a}, {a}.select({d}, 0) * 2, {d}, -1)", "{v} = torch.diagonal_scatter({a}, {a}.diagonal() + 1)",
    "{v} = torch.slice_scatter({a}, {a}.narrow({d}, 0, 1) * 2, {d}, 0, 1)",
    "{v} = torch.slice_scatter({a}, {a}[::2] + 1, 0, 0, None, 2)", "{v} = torch.as_strided_scatter({a}, {a}.reshape(-1)[:2] * 2, (2,), (1,))",
    "{v} = {a}.index_copy({d}, torch.tensor([0]), {a}.narrow({d}, -1, 1))", "{v} = {a}.index_put((torch.tensor([0, -1]),), {a}[:1] * 2)",
    "{v} = {a}.index_put((torch.tensor([0, 0]),), {a}[:1], accumulate=True)", "{v} = {a}.masked_scatter({m}, {a}.reshape(-1))",
    "{v} = {a}.scatter_add({d}, torch.zeros_like({a}, dtype=torch.int64), {a})", "{v} = {a}.put(torch.tensor([0]), {a}.reshape(-1)[:1] * 2)",
    "{v} = {f}.scatter_reduce({d}, torch.zeros_like({f}, dtype=torch.int64), {f}, 'amax')",
    # Reads.
    "{v} = {a}.unfold({d}, 2, 1).sum(-1)", "{v} = {f}.unfold({d}, 2, 1).amax(-1)", "{v} = {f}.as_strided((2, 2), (1, 1)) @ {f}[:2, :2]",
    "{v} = {a}.expand(2, *{a}.shape).contiguous()", "{v} = {a}.unfold({d}, 2, 1).clone()", "{v} = torch.empty_like({a}.unfold({d}, 2, 1)).fill_(1)",
    "{v} = {a}.expand(2, *{a}.shape).sum(0)", "{v} = {f}.unfold({d}, 2, 1).mean((0, -1))", "{v} = {a}.as_strided((2, 2), (1, 1)).reshape(-1)",
    "{v} = torch.cat([{a}.expand(2, *{a}.shape), {a}[None]])", "{v} = {a}.unfold({d}, 2, 1) + {s}", "{v} = F.pad({x}.unfold({d}, 2, 1), (1, 0))",
    # Writes to it, beside it and below it.
    "{a}.unfold({d}, 2, 2).mul_(2)", "{a}.unfold({d}, 2, 1).select(-1, 0).add_(1)", "{a}.unfold({d}, 2, 1)[..., 1].zero_()",
    "{a}.as_strided((2,), (2,)).fill_({s})", "{a}.as_strided((2, 2), (2, 1)).add_(1)", "{a}.expand(2, *{a}.shape)[0].mul_({s})", "{a}.put_(torch.tensor([0]), {a}.reshape(-1)[-1:].clone())", "{a}.diagonal(1).add_(1)",
    "{a}.index_put_((torch.tensor([0, 0]),), {a}[:1].clone(), accumulate=True)", "{a}.scatter_add_({d}, torch.zeros_like({a}, dtype=torch.int64), {a}.clone())",
    "{a}.index_copy_({d}, torch.tensor([0]), {a}.narrow({d}, -1, 1).clone())", "{a}.masked_scatter_({m}, {a}.clone())",
    "{a}.narrow({d}, 0, 1).copy_({a}.narrow({d}, -1, 1))", "{a}.copy_({a}.flip(0))", "{a}[..., 1:].copy_({a}[..., :-1].clone())",
]  # fmt: skip


def is_specified(text: str, values: dict[str, Any]) -> bool:
    """Whether ``as_strided`` stays in its operand, and no tensor is written whose elements share memory."""
    for name in re.findall(r"(\w+)\.as_strided", text):
        base = values.get(name)
        if isinstance(base, torch.Tensor) and not (base.is_contiguous() and base.numel() >= _REACH):
            return False
        if isinstance(base, torch.Tensor) and base.storage_offset() and "(0, 1), 1)" in text:
            return False
    if re.match(r"[vwk]\d* = ", text):
        return True
    named = [values.get(n) for n in re.findall(r"\b[vx]\d+\b", text)]
    written = [v for v in named if isinstance(v, torch.Tensor)]
    written += [v._base for v in written if v._base is not None]
    return not any(map(_shares, written))


def _shares(value: torch.Tensor) -> bool:
    """Whether two of its elements lie in one place."""
    if value.numel() < 2 or value.layout != torch.strided:
        return False
    span = 0
    for stride, size in sorted((t, s) for s, t in zip(value.shape, value.stride()) if s > 1):
        if stride <= span:
            return True
        span += stride * (size - 1)
    return False
