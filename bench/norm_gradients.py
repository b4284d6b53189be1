"""Gradients of networks with batch norm against f64, on the CPU, and how much of their error is chance.

    python bench/norm_gradients.py                              the six networks
    python bench/norm_gradients.py --models dla34 --seeds 0,1
    python bench/norm_gradients.py --references refs            keeps what eager computes, for later runs

Behind some fifty batch norms a rounding of an activation has grown a thousand times, and where it takes
one over the corner of a relu, a whole gradient jumps. So eager is also run with each weight multiplied by
1 + 6e-8 or 1 - 6e-8, by chance: what these runs differ by is what the last bit of anything does. Each
step has two images of 224, cross entropy, and no dropout. Of each gradient the RMS error over eager's:
"mean" is the geometric mean over tensors, "over 3" how many are more than three times as large, "beside"
how many are more than three times the largest of eager's and its disturbed runs. Gradients that are zero
but for rounding (below 1e-6 of the largest: biases before a norm) are counted beside alone.
"own" is as compiled; "eager's convolutions" leaves convolutions to eager, with the layouts that it has.
Below the table stand the tensors that count in "over 3", with the kind of their layer, the error of each
run over eager's, and the largest of a disturbed run. "share": of the squared error as compiled, what the
element has that is off most. Where one activation crosses a corner, it is near 1 in the bias of its norm.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import math
import os
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common
import torch
from left_to_eager import left_to_eager

import inkle

MODELS = ("mobilenetv2_100", "densenet121", "repvgg_a2", "dla34", "torchvision.mobilenet_v2",
          "torchvision.googlenet")  # fmt: skip
LAST_BIT = 6e-8
ZERO_BUT_FOR_ROUNDING = 1e-6
FACTOR = 3.0

Gradients = dict[str, torch.Tensor]


def _make(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    if name.startswith("torchvision."):
        import torchvision

        name = name.removeprefix("torchvision.")
        more = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
        model = getattr(torchvision.models, name)(**more)
    else:
        import timm

        model = timm.create_model(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


def _step(run: Any, owner: torch.nn.Module, x: torch.Tensor) -> Gradients:
    y = run(x)
    labels = torch.randint(0, y.shape[-1], (y.shape[0],), generator=torch.Generator().manual_seed(3))
    torch.nn.functional.cross_entropy(y, labels).backward()
    return {n: p.grad.double() for n, p in owner.named_parameters()}


def _disturbed(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    other = copy.deepcopy(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1 + LAST_BIT * torch.randn_like(p).sign())
    return other


def _references(
    name: str, model: torch.nn.Module, x: torch.Tensor, seed: int, arguments: argparse.Namespace
) -> tuple[Gradients, Gradients, list[Gradients]]:
    """Gradients of f64, of eager, and of eager disturbed."""
    path = os.path.join(arguments.references, f"{name}-{seed}.pt")
    if arguments.references and os.path.exists(path):
        exact, eager, others = torch.load(path)
    else:
        double, plain = copy.deepcopy(model).double(), copy.deepcopy(model)
        exact, eager = _step(double, double, x.double()), _step(plain, plain, x)
        others = []
    is_new = len(others) < arguments.disturbed
    while len(others) < arguments.disturbed:
        other = _disturbed(model, len(others))
        others.append(_step(other, other, x))
    if arguments.references and is_new:
        os.makedirs(arguments.references, exist_ok=True)
        torch.save((exact, eager, others), path)
    return exact, eager, others[: arguments.disturbed]


def _compiled(model: torch.nn.Module, x: torch.Tensor, eager_convolutions: bool) -> Gradients:
    torch._dynamo.reset()
    inkle.reset()
    model = copy.deepcopy(model)
    with left_to_eager(["convolution"] if eager_convolutions else []):
        return _step(torch.compile(model, backend="inkle", options={"strict": True}), model, x)


@dataclasses.dataclass
class Compared:
    """As the module tells: `ratios` of all tensors that are not zero but for rounding and the `shares`
    of their largest elements, the names of those `over` three times eager's error, and how many are
    `beside`."""

    ratios: dict[str, float]
    shares: dict[str, float]
    over: list[str]
    beside: int

    @property
    def mean(self) -> float:
        return math.exp(sum(map(math.log, self.ratios.values())) / len(self.ratios))


def _compare(found: Gradients, eager: Gradients, others: list[Gradients], exact: Gradients) -> Compared:
    largest = max(g.abs().max().item() for g in exact.values())
    result = Compared({}, {}, [], 0)
    for name, wanted in exact.items():
        def rms(one: Gradients) -> float:
            return (one[name] - wanted).square().mean().sqrt().item()

        ours, eagers = rms(found), rms(eager)
        floor = common.FLOORS[torch.float32] * wanted.abs().max().item()
        if wanted.abs().max().item() >= ZERO_BUT_FOR_ROUNDING * largest:
            result.ratios[name] = (ours + floor) / (eagers + floor)
            squares = (found[name] - wanted).square()
            result.shares[name] = (squares.max() / squares.sum()).item() if ours > 0 else 0.0
            if ours > FACTOR * eagers + floor:
                result.over.append(name)
        else:
            floor = common.FLOORS[torch.float32] * largest
        result.beside += ours > FACTOR * max([eagers, *map(rms, others)]) + floor
    return result


def _list_over(title: str, model: torch.nn.Module, runs: list[Compared], disturbed: list[Compared]) -> list[list[str]]:
    """A row for each tensor that is over in one of the runs."""
    owners = dict(model.named_modules())
    rows = []
    for name in runs[0].ratios:
        if not any(name in run.over for run in runs):
            continue
        kind = type(owners[name.rpartition(".")[0]]).__name__
        most = max((d.ratios[name] for d in disturbed), default=float("nan"))
        rows.append([title, name, kind, *(f"{run.ratios[name]:.1f}" for run in runs), f"{most:.1f}",
                     f"{runs[0].shares[name]:.2f}"])  # fmt: skip
    return rows


def _row(name: str, seed: int, arguments: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """The row of the table, and those of the tensors over three times eager's error."""
    model = _make(name)
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(seed))
    exact, eager, others = _references(name, model, x, seed, arguments)
    runs = [_compare(_compiled(model, x, eager_convolutions), eager, others, exact)
            for eager_convolutions in (False, True)]  # fmt: skip
    disturbed = [_compare(other, eager, [], exact) for other in others]
    cells = [name, str(seed), str(len(runs[0].ratios))]
    for run in runs:
        cells += [f"{run.mean:.2f}", str(len(run.over)), str(run.beside)]
    cells += [", ".join(f"{d.mean:.2f}" for d in disturbed), ", ".join(str(len(d.over)) for d in disturbed)]
    return cells, _list_over(f"{name} {seed}", model, runs, disturbed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", default="0", help="of the images")
    parser.add_argument("--references", default="", help="folder that keeps eager's gradients")
    parser.add_argument("--disturbed", type=int, default=3, help="runs of eager with other weights")
    arguments = parser.parse_args()
    head = ["model", "seed", "tensors", "own: mean", "over 3", "beside", "eager's convolutions: mean",
            "over 3", "beside", "eager disturbed: mean", "over 3"]  # fmt: skip
    rows, over = [], []
    for name in filter(None, arguments.models.split(",")):
        for seed in map(int, arguments.seeds.split(",")):
            row, listed = _row(name, seed, arguments)
            rows.append(row)
            over += listed
            common.say(f"  {row}")
    print(common.table(head, rows))
    if over:
        head = ["model, seed", "tensor", "layer", "own", "eager's convolutions", "eager disturbed, most",
                "share"]  # fmt: skip
        print(common.table(head, over))


if __name__ == "__main__":
    main()
