"""Host time inside Inkle's callable: a call, an argument, a generated kernel, a library call.

    python bench/host_overhead.py

Programs over tensors of 8 elements, so that there is little but host time in a call; a line fitted
over programs of different size gives the cost of one more argument, kernel or library call. The
kernels' own few nanoseconds are part of it. Limit: 5 us + 0.04 us an argument + 0.2 us a kernel +
0.4 us a library call.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Callable

import common

LIMITS = {"call": 5.0, "argument": 0.04, "kernel": 0.2, "library call": 0.4}  # microseconds


def _add_all(*xs: Any) -> Any:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def _kernels(count: int) -> Callable[[Any], Any]:
    """``count`` scans in a row: each needs all of the last one, so none fuse."""

    def run(x: Any) -> Any:
        for _ in range(count):
            x = x.flip(0).cumsum(0)
        return x

    return run


def _calls(count: int) -> Callable[[Any, Any], Any]:
    def run(x: Any, w: Any) -> Any:
        for _ in range(count):
            x = x @ w
        return x

    return run


def _compile(function: Callable[..., Any], inputs: list[Any]) -> Any:
    """(report, callable) of the one graph of ``function``."""
    import torch

    import inkle

    torch._dynamo.reset()
    inkle.reset()
    with torch.no_grad():
        torch.compile(function, backend="inkle", options={"strict": True}, dynamic=False)(*inputs)
    (report,) = inkle.reports()
    return report


def _microseconds(report: Any, inputs: list[Any], seconds: float) -> float:
    """The least mean of a hundred calls."""
    call, best = report.callable, float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(100):
            call(list(inputs))
        best = min(best, (time.perf_counter() - start) * 1e4)
    return best


def _slope(points: list[tuple[float, float]]) -> float:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="for each program")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is exceeded")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    programs = [("argument", n, _add_all, [torch.randn(8) for _ in range(n)]) for n in (2, 8, 32)]
    programs += [("kernel", n, _kernels(n), [torch.randn(8)]) for n in (1, 4, 16)]
    matrix = torch.eye(8)
    programs += [("library call", n, _calls(n), [torch.randn(8, 8), matrix]) for n in (1, 4, 16)]
    progress = common.Progress(len(programs), "host")
    points: dict[str, list[tuple[float, float]]] = {}
    rows, base = [], float("inf")
    for kind, count, function, inputs in programs:
        progress.step(f"{count} {kind}")
        report = _compile(function, inputs)
        took = _microseconds(report, inputs, arguments.seconds)
        x = {"argument": count, "kernel": report.launches, "library call": report.library_calls}
        points.setdefault(kind, []).append((x[kind], took))
        limit = (LIMITS["call"] + LIMITS["argument"] * len(inputs) +
                 LIMITS["kernel"] * report.launches +
                 LIMITS["library call"] * report.library_calls)  # fmt: skip
        base = min(base, took)
        rows.append([f"{count} x {kind}", len(inputs), report.launches, report.library_calls,
                     f"{took:.2f}", f"{limit:.2f}"])  # fmt: skip
    progress.end()
    print(common.table(["program", "arguments", "kernels", "library calls", "us a call", "limit"],
                       rows))  # fmt: skip
    print()
    found = {"call": base}
    for kind, measured in points.items():
        different = len({x for x, _ in measured}) > 1
        found[kind] = _slope(measured) if different else float("nan")
    print(common.table(["one more", "us", "limit"],
                       [[k, f"{v:.3f}", LIMITS[k]] for k, v in found.items()]))  # fmt: skip
    print(f"\n{common.machine()}, {common.versions(['torch'])}")
    is_met = all(float(r[4]) <= float(r[5]) for r in rows)
    return 1 if arguments.check and not is_met else 0


if __name__ == "__main__":
    sys.exit(main())
