"""Trains a family with several draws of weights: are Inkle's errors larger than eager's, or either's by chance?

    python bench/draws.py timm/shvit_s1 --draws 10 --threads 1

A family that misses the rule with the weights of ``families.py`` may be one whose rounding errors grow
from layer to layer; then eager misses it beside Inkle with other weights. For each draw: how many of the
outputs, gradients and statistics miss the rule beside eager, how many of eager's would miss it beside
Inkle, and RMS errors of gradients over eager's in geometric mean. At the end the same of all draws.
"""

from __future__ import annotations

import argparse
import copy
import logging
import math
import os
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def _exchanged(one: Any) -> Any:
    """Eager judged beside Inkle."""
    other = copy.copy(one)
    other.squares, other.eager_squares = one.eager_squares, one.squares
    other.largest, other.eager_largest = one.eager_largest, one.largest
    return other


def _logarithms(found: dict[str, Any]) -> list[float]:
    gradients = [one for name, one in found.items() if name.startswith("gradient ")]
    return [0.5 * math.log(one.squares / one.eager_squares)
            for one in gradients if one.squares > 0 and one.eager_squares > 0]  # fmt: skip


def _line(name: str, misses: int, exchanged: int, count: int, logarithms: list[float]) -> str:
    mean = math.exp(sum(logarithms) / len(logarithms)) if logarithms else float("nan")
    return (f"{name:<8} misses {misses:4}, eager beside Inkle {exchanged:4}, of {count:4}; "
            f"errors of gradients over eager's {mean:.2f}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", help="a name of zoo.py, as timm/shvit_s1")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    arguments.train, arguments.poison = True, False
    import judging
    import torch
    import zoo

    import inkle

    if arguments.family not in zoo.names():
        parser.error(f"no family {arguments.family!r}")
    logging.getLogger("inkle").setLevel(logging.ERROR)
    torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.allow_tf32 = False

    def compile_model(model: Any) -> Any:
        return torch.compile(model, backend="inkle", options={"random": "eager"})

    total, counts = [], [0, 0, 0]
    for draw in range(arguments.draws):
        torch._dynamo.reset()
        inkle.reset()
        built = judging.placed(zoo.build(arguments.family, draw), arguments)
        found = judging.train(built, compile_model)
        if isinstance(found, str):
            print(f"{draw:<8} {found}")
            return 1
        misses = [not one.ok for one in found.values()]
        exchanged = [not _exchanged(one).ok for one in found.values()]
        logarithms = _logarithms(found)
        for i, n in enumerate((sum(misses), sum(exchanged), len(found))):
            counts[i] += n
        total += logarithms
        print(_line(f"draw {draw}", sum(misses), sum(exchanged), len(found), logarithms), flush=True)
    print(_line("all", *counts, total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
