"""torch.cummax with its indices, on one thread of the CPU: eager and Inkle in turns.

python bench/running_extremes.py [--turns 40]     # a table; microseconds of the thread, the least of all turns
"""

from __future__ import annotations

import argparse
import time

import torch

import inkle  # noqa: F401

SHAPES = [((512, 1024), 1), ((1, 524288), 1), ((64, 64), 1), ((1024, 512), 0)]


def measure(functions: list, turns: int) -> list[float]:
    least = [float("inf")] * len(functions)
    for turn in range(turns + 2):
        for i, function in enumerate(functions):
            start = time.thread_time()
            function()
            if turn >= 2:
                least[i] = min(least[i], time.thread_time() - start)
    return [1e6 * t for t in least]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=40)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| dtype | sizes | along | elements | eager, us | Inkle, us | Inkle / eager |\n|---|---|---|---|---|---|---|")
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.int64):
        for shape, dim in SHAPES:
            for kind in ("random", "rising"):
                torch._dynamo.reset()
                x = (torch.randn(shape) * 1000).to(dtype)
                x = x.sort(dim)[0] if kind == "rising" else x
                function = lambda x, dim=dim: torch.cummax(x, dim)  # noqa: E731
                compiled = torch.compile(function, backend="inkle")
                eager, own = measure([lambda: function(x), lambda: compiled(x)], turns)  # noqa: B023
                sizes = " x ".join(map(str, shape))
                print(f"| {str(dtype)[6:]} | {sizes} | {'rows' if dim else 'columns'} | {kind} "
                      f"| {eager:.0f} | {own:.0f} | {own / eager:.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
