"""Where the host's time of a replayed CUDA graph goes, part by part.

    python bench/replay_host.py

Stacks of layers over tensors of 512 elements, so that the GPU is done long before the host is. Each
part is the median of calls by itself: the parts of ours by clocks that only ``time_replay`` of the
compiled program reads; Dynamo's guards by calling them; AOTAutograd's wrapper, the entry of ours
and the rest as differences of calls that have one more layer around them. The limit is 5 us for each
part that only checks something.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any, Callable

import common
import torch

LIMIT = 5.0  # microseconds
CHECKS = {
    "read": "arguments read (of weights: the address)",
    "versions": "versions of weights with prepared copies",
    "stream": "torch's current stream",
    "shapes": "dtypes, sizes and strides; recording found, LRU",
    "addresses": "addresses of inputs and parameters",
    "failures": "failures of kernels before",
    "prepared": "prepared copies, current or not",
    "alive": "results that the caller still has",
}
WORK = {
    "copies": "copies of inputs that moved",
    "launch": "cudaGraphLaunch",
    "results": "results made",
}


class Norms(torch.nn.Module):
    """Two parameters a layer; one result, which is copied."""

    def __init__(self, layers: int):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.LayerNorm(64) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) + 1
        return x


class Products(torch.nn.Module):
    """Products in bf16 whose weights are merged and kept, and a result that the caller gets as it is."""

    def __init__(self, layers: int):
        super().__init__()
        self.q = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(layers))
        self.k = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(layers))
        self.last = torch.nn.Linear(64, 16384)
        self.bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for q, k in zip(self.q, self.k):
            x = torch.relu(q(x)) + k(x)
        return self.last(x).repeat(16, 1)


def programs() -> list[tuple[str, Callable[[], tuple[torch.nn.Module, torch.dtype]]]]:
    norms = [(f"{2 * n} parameters", lambda n=n: (Norms(n), torch.float32)) for n in (1, 48, 100)]
    return [*norms, ("194 of products", lambda: (Products(48), torch.bfloat16))]


def microseconds(call: Callable[[], Any], seconds: float) -> float:
    """The median of the means of 20 calls; the GPU is idle before each 20."""
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            call()
        found.append((time.perf_counter() - start) / 20 * 1e6)
    return statistics.median(found)


def run_model(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x)


def moving(sizes: tuple[int, ...], dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    """Four inputs in turns."""
    inputs = [torch.randn(*sizes, device="cuda", dtype=dtype) for _ in range(4)]
    count = 0

    def one() -> torch.Tensor:
        nonlocal count
        count += 1
        return inputs[count % 4]

    return one


def of_parts(program: Any, arguments: Callable[[], list[Any]], seconds: float) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    end, calls = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or calls < 100:
        if calls % 20 == 0:
            torch.cuda.synchronize()
        calls += 1
        for part, took in program.time_replay(arguments()):
            found.setdefault(part, []).append(took)
    return {part: statistics.median(times) for part, times in found.items()}


def measure(model: torch.nn.Module, dtype: torch.dtype, seconds: float) -> dict[str, float]:
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    import inkle
    from inkle.backend import inkle as backend

    torch._dynamo.reset()
    inkle.reset()
    outer: dict[str, Any] = {}

    def watched(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        outer["call"] = backend(gm, inputs, mode="reduce-overhead", options={"strict": True})

        def call(*given: Any) -> Any:
            outer["given"] = given
            return outer["call"](*given)

        return call

    model, x = model.cuda().eval(), torch.randn(8, 64, device="cuda", dtype=dtype)
    torch.compile(run_model, backend=watched)(model, x)
    given = list(outer["given"])
    program = inkle.reports()[-1].callable
    torch._dynamo.reset()
    run = torch.compile(run_model, backend="inkle", mode="reduce-overhead")
    for _ in range(20):
        run(model, x)
        outer["call"](*given)
    (entry,) = _debug_get_cache_entry_list(run_model.__code__)
    at = next(i for i, g in enumerate(given) if g is x)
    next_x = moving((8, 64), dtype)

    def with_next() -> list[Any]:
        arguments = list(given)
        arguments[at] = next_x()
        return arguments

    found = of_parts(program, lambda: list(given), seconds)
    ours = microseconds(lambda: program(list(given)), seconds)
    wrapped = microseconds(lambda: outer["call"](*given), seconds)
    found["entry"] = ours - sum(found.values())
    found["wrapper"] = wrapped - ours
    locals_ = {"model": model, "x": x}
    found["guards"] = microseconds(lambda: entry.guard_manager.check(locals_), seconds)
    found["all"] = microseconds(lambda: run(model, x), seconds)
    found["dynamo"] = found["all"] - wrapped - found["guards"]
    recorded, replayed, reason = program.graphs
    assert recorded == 1 and replayed > 200, (recorded, replayed, reason)
    for _ in range(8):
        program(with_next())  # from the second one on it is copied
    found["copies"] = of_parts(program, with_next, seconds)["copies"]
    return found


ROWS = {
    "guards": "guards (Dynamo)",
    "dynamo": "the rest of Dynamo",
    "wrapper": "AOTAutograd's wrapper",
    "entry": "entry from Python, end of call",
    **{part: f"check: {what}" for part, what in CHECKS.items()},
    **WORK,
    "all": "**a call, its input in place**",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.3, help="for each number")
    parser.add_argument("--check", action="store_true", help="exit 1 where a check is over 5 us")
    arguments = parser.parse_args()
    from kernels import machine

    columns: dict[str, dict[str, float]] = {}
    cases = programs()
    progress = common.Progress(len(cases), "replay")
    for name, make in cases:
        progress.step(name)
        torch.manual_seed(0)
        model, dtype = make()
        with torch.no_grad():
            columns[name] = measure(model, dtype, arguments.seconds)
    progress.end()
    rows = [[what, *(f"{c[part]:.2f}" for c in columns.values())] for part, what in ROWS.items()]
    print(f"{machine()}\n\nCommand: `python bench/replay_host.py`. Microseconds of the host:\n")
    print(common.table(["part", *columns], rows))
    slow = [f"{name}: {ROWS[part]} {c[part]:.2f} us" for name, c in columns.items()
            for part in CHECKS if c[part] > LIMIT]  # fmt: skip
    print("\nOver the limit of 5 us: " + ("; ".join(slow) or "no check"))
    return 1 if arguments.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
