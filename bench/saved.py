"""What training keeps between forward and backward, by partition: bytes and peak memory of a step.

    python bench/saved.py                              the eight models
    python bench/saved.py --models minilm,gpt2 --small
    python bench/saved.py --update                     into docs/benchmarks.md

Kept: storages that autograd holds for the backward, without parameters and inputs. Peak: of the
program's own memory, the larger of forward (arena and kept) and backward (kept and arena).
"""

from __future__ import annotations

import argparse
import copy
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common
import eight
import inkle
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- saved:begin -->", "<!-- saved:end -->"
PARTITIONS = ("default", "own", "smallest")


def _loss(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    result = model(*inputs)
    return (result if isinstance(result, torch.Tensor) else result[0]).float().square().mean()


def _measure(case: eight.Case, partition: str) -> tuple[float, float, float]:
    """Megabytes kept and at the peak, and seconds of Inkle's own compile time."""
    torch._dynamo.reset()
    inkle.reset()
    model = copy.deepcopy(case.model).train()
    run = torch.compile(model, backend="inkle", options={"partition": partition})
    _loss(run, case.inputs).backward()
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(),
                                                      *case.inputs)}  # fmt: skip
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = _loss(run, case.inputs)
    loss.backward()
    kept = sum(storages.values())
    arenas = [r.callable.memory["arena"] for r in inkle.reports() if r.compiled]
    seconds = sum(r.seconds for r in inkle.reports())
    return kept / 1e6, (kept + max(arenas)) / 1e6, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="")
    parser.add_argument("--partitions", default=",".join(PARTITIONS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--update", action="store_true", help="write docs/benchmarks.md")
    arguments = parser.parse_args()
    partitions = arguments.partitions.split(",")
    names = arguments.models.split(",") if arguments.models else eight.names()
    rows = []
    for name in names:
        case = eight.make(name, small=arguments.small)
        common.say(f"  {name}")
        found = [_measure(case, p) for p in partitions]
        rows.append([case.name, case.shape, *(f"{k:.1f} / {p:.1f}" for k, p, _ in found),
                     *(f"{s:.2f}" for _, _, s in found)])  # fmt: skip
    header = ["model", "input", *partitions, *(f"s, {p}" for p in partitions)]
    text = common.table(header, rows)
    print(f"Megabytes kept / at the peak, and seconds of Inkle's compile time:\n\n{text}")
    if arguments.update:
        common.update_docs(os.path.join(ROOT, "docs", "benchmarks.md"), BEGIN, END, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
