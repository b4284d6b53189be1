"""Times training steps on the CPU with two builds of the compiler, in turns: forward, loss, backward, SGD.

    python bench/training_builds.py OLD NEW                        two folders `python` with built modules
    python bench/training_builds.py OLD NEW --models resnet50 --size 64 --batch 8

Each build trains in a process of its own, which takes one step when it is its turn; both on one thread
and one core. Of each step the processor time. The table has minimum and median of both, and of the
ratio new / old of medians its 95 per cent bootstrap interval over turns.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

MODELS = ("resnet50", "mobilenetv3_large_100", "densenet121", "batch norms", "minilm")


def _batch_norms(batch: int, size: int) -> tuple[Any, Callable[[Any], Any]]:
    """Nothing but norms with activations between."""
    import torch

    layers: list[Any] = []
    for _ in range(8):
        layers += [torch.nn.BatchNorm2d(64), torch.nn.ReLU()]
    x = torch.randn(batch, 64, size, size, generator=torch.Generator().manual_seed(0))
    return torch.nn.Sequential(*layers), lambda m: m(x).square().mean()


def _minilm() -> tuple[Any, Callable[[Any], Any]]:
    import training

    _, model, loss_of = training.MODELS["minilm"]()
    return model, loss_of


def _network(name: str, batch: int, size: int) -> tuple[Any, Callable[[Any], Any]]:
    import timm
    import torch

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, 3, size, size, generator=generator)
    labels = torch.randint(0, 1000, (batch,), generator=generator)
    return timm.create_model(name), lambda m: torch.nn.functional.cross_entropy(m(x), labels)


def _work(name: str, batch: int, size: int) -> None:
    """Takes a step for each line on standard input and answers with its processor time."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if name == "minilm":
        model, loss_of = _minilm()
    else:
        model, loss_of = _batch_norms(batch, size) if name == "batch norms" else _network(name, batch, size)
    model.train()
    compiled = torch.compile(model, backend="inkle", options={"strict": True})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> float:
        begin = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss_of(compiled).backward()
        optimizer.step()
        return time.process_time() - begin

    for _ in range(3):
        step()
    for _ in sys.stdin:
        print(step(), flush=True)


class _Worker:
    def __init__(self, folder: pathlib.Path, core: int, arguments: list[str]) -> None:
        paths = os.pathsep.join([str(folder), str(ROOT / "bench")])
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "INKLE_CACHE_DIR": ""}
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, __file__, "--work", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)  # fmt: skip

    def step(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a worker ended with status {self.process.wait()}")
        return float(answer) * 1e3

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def _row(name: str, arguments: argparse.Namespace) -> list[str]:
    from corpus_parts.timing import interval

    given = [name, str(arguments.batch), str(arguments.size)]
    workers = [_Worker(folder.resolve(), arguments.core, given) for folder in (arguments.old, arguments.new)]
    times: tuple[list[float], list[float]] = ([], [])
    for worker in workers:
        worker.step()
    for turn in range(arguments.turns):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            times[which].append(workers[which].step())
    for worker in workers:
        worker.end()
    old, new = times
    low, ratio, high = interval(new, old)
    return [name, *(f"{min(t):.2f} / {statistics.median(t):.2f}" for t in times), f"{min(new) / min(old):.3f}",
            f"{ratio:.3f}", f"{low:.3f} to {high:.3f}"]  # fmt: skip


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        _work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return 0
    from corpus_parts.comparing import table
    from corpus_parts.timing import one_processor_a_core

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--core", type=int, default=one_processor_a_core(os.sched_getaffinity(0))[-1])
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models.split(","):
        rows.append(_row(name, arguments))
        print(f"  {rows[-1]}", file=sys.stderr)
    print(table(["model", "old ms, min / median", "new ms, min / median", "new / old, min",
                 "new / old, median", "95 per cent"], rows))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
