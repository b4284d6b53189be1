"""Finds where gradients of a family jump because an activation lies at a corner: of a relu, or of a maximum.

    python bench/corners.py timm/tresnet_m

Where one activation lies on the other side of the corner than in f64, the bias of the norm before it has
nearly all of its error in one element, and all gradients of earlier layers are off as well. For each of the
inputs of ``families.py``: the tensors whose error has such an element, with the RMS errors of Inkle, of
eager and of eager with weights disturbed in their last bit, over the gradient's, and that element's share
of the squared errors of each.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))

# A share of the squared error that one element does not have by chance, and an error that is a jump.
SHARE, JUMP = 0.9, 3e-5


def _judge(found: Any, exact: Any) -> tuple[float, float]:
    """The RMS error over that of the gradient, and the share of the element that is off most."""
    squares = (found.double() - exact).square()
    total = squares.sum().item()
    size = exact.square().sum().item()
    return (total / size) ** 0.5 if size > 0 else 0.0, squares.max().item() / total if total > 0 else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", help="a name of zoo.py, as timm/tresnet_m")
    parser.add_argument("--disturbed", type=int, default=2)
    arguments = parser.parse_args()
    arguments.device, arguments.dtype, arguments.train, arguments.poison = "cpu", "f32", True, False
    import common
    import judging
    import torch
    import zoo

    import inkle  # noqa: F401: registers the backend

    if arguments.family not in zoo.names():
        parser.error(f"no family {arguments.family!r}")
    logging.getLogger("inkle").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    built = judging.placed(zoo.build(arguments.family), arguments)
    built.model.train()
    models = {"Inkle": copy.deepcopy(built.model), "eager": copy.deepcopy(built.model)}
    for seed in range(arguments.disturbed):
        models[f"disturbed {seed}"] = judging._disturbing(seed, built.eps)(copy.deepcopy(built.model))
    runs = dict(models)
    runs["Inkle"] = torch.compile(models["Inkle"], backend="inkle", options={"random": "eager"})
    double = copy.deepcopy(built.model).double()
    rows = []
    for seed in range(judging.INPUTS):
        inputs = built.inputs(seed)
        torch.set_default_dtype(torch.float64)
        _, exact = judging._step(built, double, double, common.to_double(inputs))
        torch.set_default_dtype(torch.float32)
        found = {name: judging._step(built, runs[name], models[name], inputs)[1] for name in models}
        for tensor, wanted in exact.items():
            judged = [_judge(gradients[tensor], wanted) for gradients in found.values()]
            if any(error > JUMP and share > SHARE for error, share in judged) and wanted.numel() > 1:
                rows.append([str(seed), tensor, *(f"{error:.0e} {share:.2f}" for error, share in judged)])
    print(common.table(["input", "tensor", *(f"{name}: error, share" for name in models)], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
