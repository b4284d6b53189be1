"""Times attention of bf16 against the same in f32 and against eager, and compares their errors.

    OMP_NUM_THREADS=1 python bench/attention_bf16.py
    OMP_NUM_THREADS=1 python bench/attention_bf16.py --gradient     forward and backward
    OMP_NUM_THREADS=1 python bench/attention_bf16.py --dropout 0.1  with or without --gradient; no errors

Least time of 0.4 seconds each, in milliseconds; the root of the mean squared error against f64.
On a processor with tiles (AMX) the same without them (INKLE_ISA=avx512: in pairs) runs in turns with
them.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F

import inkle
from inkle import machine

# Batch, heads, rows, columns, features, causal.
SHAPES = [(8, 12, 128, 128, 32, False), (1, 32, 256, 256, 64, True), (1, 12, 512, 512, 64, False),
          (2, 12, 197, 197, 64, False), (1, 8, 77, 77, 40, True), (1, 16, 1024, 1024, 128, True)]
HAS_TILES = "amx_bf16" in Path("/proc/cpuinfo").read_text()


def milliseconds(calls: list[Callable[..., Any]], *arguments: torch.Tensor) -> list[float]:
    """The least time of each, in turns."""
    least = [float("inf")] * len(calls)
    start = time.perf_counter()
    while time.perf_counter() - start < 0.4 * len(calls):
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            call(*arguments)
            least[i] = min(least[i], time.perf_counter() - begin)
    return [t * 1e3 for t in least]


def with_gradient(attend: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of q, k and v, for a gradient of the result that is q."""
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        with torch.enable_grad():
            out = attend(*leaves)
        return torch.cat([t.flatten() for t in torch.autograd.grad(out, leaves, q)])

    return call


def compiled(function: Callable[..., Any], isa: str) -> Callable[..., Any]:
    """For the instruction set alone; the first call compiles."""
    def backend(*args: Any, **kwargs: Any) -> Any:
        """One for each, else Dynamo would take what it has compiled for the other."""
        return inkle.backend.inkle(*args, **kwargs)

    os.environ["INKLE_ISA"] = isa
    machine.forget()
    inkle.reset()
    return torch.compile(function, backend=backend, dynamic=False, options={"random": "fast"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    options = parser.parse_args()
    whole = with_gradient if options.gradient else lambda attend: attend
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ways = ["", "avx512"] if HAS_TILES else [""]
    print("| shape | f32 inputs | bf16 |" + " bf16 without tiles |" * HAS_TILES + " eager | error | eager's |")
    print("|---" * (6 + HAS_TILES) + "|")
    for batch, heads, rows, columns, features, causal in SHAPES:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, None, options.dropout, causal)

        q, k, v = (torch.randn(batch, heads, n, features).bfloat16() for n in (rows, columns, columns))
        exact = whole(attend)(q.double(), k.double(), v.double())
        torch._dynamo.reset()
        calls, results = [], []
        for isa in ways:
            calls.append(whole(compiled(attend, isa)))
            results.append(calls[-1](q, k, v))
        errors = [(r.double() - exact).square().mean().sqrt().item() for r in (results[0], whole(attend)(q, k, v))]
        ours = milliseconds(calls, q, k, v)
        wide = whole(compiled(attend, ""))
        times = [*milliseconds([wide], q.float(), k.float(), v.float()), *ours, *milliseconds([whole(attend)], q, k, v)]
        print(f"| {batch}, {heads}, {rows}, {columns}, {features}{', causal' if causal else ''} | "
              + " | ".join(f"{t:.2f}" for t in times)
              + (" | - | - |" if options.dropout else f" | {errors[0]:.2e} | {errors[1]:.2e} |"), flush=True)


if __name__ == "__main__":
    main()
