"""Random numbers as the compiler's own code draws them, in torch's arithmetic."""

from __future__ import annotations

from typing import Sequence

import torch

_MASK32 = 0xFFFFFFFF


def _product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 32 bits of the product of two numbers of 32 bits, in tensors of i64."""
    low, high = a * (b & 0xFFFF), a * (b >> 16)
    middle = high + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def philox(seed: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Word ``offset % 4`` of Philox-4x32-10 for counter ``offset // 4``, as the compiler's own code
    draws it; 32 bits, in i64."""
    zero, counter = torch.zeros_like(offset), offset >> 2
    c = philox_words(seed, [counter & _MASK32, (counter >> 32) & _MASK32, zero, zero])
    low = torch.where(offset & 1 == 0, c[0], c[1])
    high = torch.where(offset & 1 == 0, c[2], c[3])
    return torch.where(offset & 2 == 0, low, high)


def philox_words(seed: torch.Tensor, counter: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The four words of Philox-4x32-10 for counters of four words."""
    key0, key1 = seed & _MASK32, (seed >> 32) & _MASK32
    c = list(counter)
    for _ in range(10):
        high0, low0 = _product(0xD2511F53, c[0])
        high1, low1 = _product(0xCD9E8D57, c[2])
        c = [high1 ^ c[1] ^ key0, low1, high0 ^ c[3] ^ key1, low0]
        key0, key1 = (key0 + 0x9E3779B9) & _MASK32, (key1 + 0xBB67AE85) & _MASK32
    return c


def dropped_below(p: float) -> int:
    """What is kept has 32 random bits that are at least this."""
    return int(p * 2**32 + 0.5)


def kept_scale(p: float) -> float:
    return 0.0 if p >= 1 else 1 / (1 - p)
