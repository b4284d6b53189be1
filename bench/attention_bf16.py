"""Times attention of bf16 against the same in f32 and against eager, and compares their errors.

    OMP_NUM_THREADS=1 python bench/attention_bf16.py

Least time of 0.4 seconds each, in milliseconds; the root of the mean squared error against f64.
"""

from __future__ import annotations

import time
from typing import Any, Callable

import torch
import torch.nn.functional as F

import inkle  # noqa: F401

# Batch, heads, rows, columns, features, causal.
SHAPES = [(8, 12, 128, 128, 32, False), (1, 32, 256, 256, 64, True), (1, 12, 512, 512, 64, False),
          (2, 12, 197, 197, 64, False), (1, 8, 77, 77, 40, True)]


def milliseconds(call: Callable[..., Any], *arguments: torch.Tensor) -> float:
    times = []
    start = time.perf_counter()
    while time.perf_counter() - start < 0.4:
        begin = time.perf_counter()
        call(*arguments)
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def main() -> None:
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print("| shape | f32 inputs | bf16 | eager | error | eager's |\n|---|---|---|---|---|---|")
    for batch, heads, rows, columns, features, causal in SHAPES:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        q, k, v = (torch.randn(batch, heads, n, features).bfloat16() for n in (rows, columns, columns))
        exact = attend(q.double(), k.double(), v.double())
        torch._dynamo.reset()
        compiled = torch.compile(attend, backend="inkle", dynamic=False)
        errors = [(f(q, k, v).double() - exact).square().mean().sqrt().item() for f in (compiled, attend)]
        wide = milliseconds(compiled, q.float(), k.float(), v.float())
        print(f"| {batch}, {heads}, {rows}, {columns}, {features}{', causal' if causal else ''} | {wide:.2f} "
              f"| {milliseconds(compiled, q, k, v):.2f} | {milliseconds(attend, q, k, v):.2f} "
              f"| {errors[0]:.2e} | {errors[1]:.2e} |", flush=True)


if __name__ == "__main__":
    main()
