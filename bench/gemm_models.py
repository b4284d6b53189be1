"""Times the eight models with matrix products by INKLE_GEMM=auto against the library, in turns, in one process.

    OMP_NUM_THREADS=1 python bench/gemm_models.py                      all eight, f32
    OMP_NUM_THREADS=1 python bench/gemm_models.py --dtype bf16 --models gpt2,llama
    python bench/gemm_models.py --by template --threads 2

A call of each in turn, and the ratio is that of the medians, with an interval from 400 resamples of
the pairs of calls. Of one thread its processor time counts, which other processes disturb less.
"""

from __future__ import annotations

import argparse
import collections
import math
import os
import random
import statistics
import time
from typing import Any, Callable

import eight
import torch

import inkle
from inkle import machine


def compiled(model: torch.nn.Module, by: str) -> Callable[..., Any]:
    def backend(*args: Any, **kwargs: Any) -> Any:
        """One for each, else Dynamo would take what it has compiled for the other."""
        return inkle.backend.inkle(*args, **kwargs)

    os.environ["INKLE_GEMM"] = by
    machine.forget()
    return torch.compile(model, backend=backend)


def products() -> str:
    """By whom the last program has its products."""
    steps = [s for r in inkle.reports() for s in r.steps]
    kinds = collections.Counter(s["kind"] for s in steps)
    panels = sum(s["label"] == "panels" for s in steps)
    return f"{panels} of {panels + kinds['matmul']}"


def interval(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    draw = random.Random(0)
    found = []
    for _ in range(400):
        some = draw.choices(pairs, k=len(pairs))
        found.append(statistics.median(b for _, b in some) / statistics.median(a for a, _ in some))
    found.sort()
    return found[10], found[-11]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(eight.names()))
    parser.add_argument("--by", choices=["auto", "template"], default="auto")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8, help="of measuring, for each model")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    ratios = []
    print(f"| model | products by the template | {options.by}, ms | library, ms | ratio | 95 % |")
    print("|---|---|---|---|---|---|")
    for name in options.models.split(","):
        case = eight.make(name)
        if options.dtype == "bf16":
            case = case.to(torch.bfloat16)
        torch._dynamo.reset()
        calls, whose = [], []
        for by in (options.by, "library"):
            inkle.reset()
            call = compiled(case.model, by)
            call(*case.inputs)
            whose.append(products())
            calls.append(call)
        pairs: list[tuple[float, float]] = []
        start = time.perf_counter()
        while time.perf_counter() - start < options.seconds or len(pairs) < 5:
            taken = []
            for call in calls:
                begin = clock()
                call(*case.inputs)
                taken.append(clock() - begin)
            pairs.append((taken[0], taken[1]))
        ours, theirs = (statistics.median(side) for side in zip(*pairs))
        low, high = interval(pairs)
        ratios.append(theirs / ours)
        print(f"| {name} | {whose[0]} | {ours * 1e3:.2f} | {theirs * 1e3:.2f} | {theirs / ours:.3f} "
              f"| {low:.3f} to {high:.3f} |", flush=True)
    mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
    print(f"\ngeometric mean {mean:.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
