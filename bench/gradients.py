"""Gradients of the training models against f64: f32 and autocast to bf16, accumulated over two calls.

    python bench/gradients.py                                   the eight models, both
    python bench/gradients.py --models gpt2,llama --dtypes f32
    python bench/gradients.py --update                          into docs/coverage.md
    python bench/gradients.py --device cuda --jobs 4            on a GPU, four processes side by side

Train mode: batch norm uses the batch and updates its statistics, which are compared, too. Dropout is
off, as its masks differ between f32 and f64. The rule is that of bench/common.py for each parameter
by itself: RMS error at most 1.5 times eager's plus the floor (of the gradient's own largest value),
the largest at most 3 times plus the same. A gradient that is zero but for rounding (below 1e-6 of
the largest of the model: biases before a norm, of keys) has the floor of the model's largest.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import copy
import json
import math
import os
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common
import eight
import inkle
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MARKS = {
    "cpu": ("<!-- gradients:begin -->", "<!-- gradients:end -->"),
    "cuda": ("<!-- gradients-gpu:begin -->", "<!-- gradients-gpu:end -->"),
}
FLOORS = {"f32": 1e-7, "bf16": 1e-3}
ZERO_BUT_FOR_ROUNDING = 1e-6
IMAGES = 4  # in a batch: batch norm wants more than one


def _case(name: str, small: bool) -> eight.Case:
    case = eight.make(name, small=small)
    if name == "bert-base":
        from transformers import BertForMaskedLM

        torch.manual_seed(0)
        case.model = eight.FirstOutput(BertForMaskedLM(case.model.model.config), True)
    for module in case.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    case.model.train()
    return case


def _inputs(case: eight.Case, seed: int, device: str) -> tuple[torch.Tensor, ...]:
    """Token numbers of a case in another order; a batch of other images."""
    generator = torch.Generator().manual_seed(seed)

    def one(x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            return torch.randn(IMAGES, *x.shape[1:], generator=generator)
        return x[:, torch.randperm(x.shape[1], generator=generator)]

    return tuple(one(x).to(device) for x in case.inputs)


def _accumulate(model: Any, owner: torch.nn.Module, calls: Any, autocast: bool) -> dict[str, Any]:
    """Gradients of all calls added up, and the buffers after them."""
    for inputs in calls:
        with torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=autocast):
            y = model(*inputs)
            y = y.flatten(0, -2)
            generator = torch.Generator().manual_seed(3)
            labels = torch.randint(0, y.shape[-1], (y.shape[0],), generator=generator)
            labels = labels.to(y.device)
            loss = torch.nn.functional.cross_entropy(y, labels)
        loss.backward()
    found = {n: p.grad for n, p in owner.named_parameters() if p.grad is not None}
    buffers = {n: b for n, b in owner.named_buffers() if b.is_floating_point()}
    return found | {f"buffer {n}": b.clone() for n, b in buffers.items()}


def _measure(name: str, dtype: str, arguments: argparse.Namespace) -> dict[str, Any]:
    torch._dynamo.reset()
    inkle.reset()
    case = _case(name, arguments.small)
    case.model.to(arguments.device)
    first = 2 * arguments.seed
    calls = [_inputs(case, seed, arguments.device) for seed in (first, first + 1)]
    plain, double = copy.deepcopy(case.model), copy.deepcopy(case.model).double()
    run = torch.compile(case.model, backend="inkle")
    found = _accumulate(run, case.model, calls, dtype == "bf16")
    eager = _accumulate(plain, plain, calls, dtype == "bf16")
    exact = _accumulate(double, double, common.to_double(calls), False)
    if not found.keys() == eager.keys() == exact.keys():
        raise AssertionError(f"{name}: gradients of other parameters than in eager")
    largest = max(g.abs().max().item() for g in exact.values())
    failed, logs, rms, most = [], 0.0, 0.0, 0.0
    for key, wanted in exact.items():
        one = common.compare(found[key], eager[key], wanted, FLOORS[dtype])
        if one.scale < ZERO_BUT_FOR_ROUNDING * largest:
            one.scale = largest
        if not one.ok:
            failed.append(f"{key}: {one}")
        floor = one.floor * one.scale
        logs += math.log((one.rms + floor) / (one.eager_rms + floor))
        rms = max(rms, one.rms / (common.RMS_FACTOR * one.eager_rms + floor))
        most = max(most, one.largest / (common.MAX_FACTOR * one.eager_largest + floor))
    reports = inkle.reports()
    return {
        "model": case.name, "input": "x".join(map(str, calls[0][0].shape)), "dtype": dtype,
        "tensors": len(exact), "mean": math.exp(logs / len(exact)), "rms": rms, "largest": most,
        "failed": failed, "graphs": len(reports), "compiled": sum(r.compiled for r in reports),
        "eager": sorted({op for r in reports for op, _, _ in r.eager}),
    }  # fmt: skip


def _table(rows: list[dict[str, Any]]) -> str:
    head = ["model", "input", "dtype", "tensors", "error / eager's, mean", "largest RMS / allowed",
            "largest maximum / allowed", "ops in eager", "rule"]  # fmt: skip
    cells = [
        [r["model"], r["input"], r["dtype"], str(r["tensors"]), f"{r['mean']:.2f}",
         f"{r['rms']:.2f}", f"{r['largest']:.2f}", ", ".join(r["eager"]) or "none",
         f"{len(r['failed'])} missed" if r["failed"] else "met"]
        for r in rows
    ]  # fmt: skip
    return common.table(head, cells)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(eight.names()))
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--device", choices=tuple(MARKS), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a model at a time")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--out", default="", help="JSON file that rows are added to")
    parser.add_argument("--update", action="store_true", help="write docs/coverage.md")
    return parser.parse_args()


def _rows_of(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for dtype in arguments.dtypes.split(","):
        rows.append(_measure(name, dtype, arguments))
        common.say(f"  {name} {dtype}: {rows[-1]}")
    return rows


def _rows_elsewhere(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The same, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "rows.json")
        command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--models", name,
                   "--dtypes", arguments.dtypes, "--device", arguments.device,
                   "--seed", str(arguments.seed), "--out", out]  # fmt: skip
        subprocess.run(command + ["--small"] * arguments.small, stdout=subprocess.DEVNULL)
        if not os.path.exists(out):
            raise RuntimeError(f"{name}: its process did not end well; run it with --models {name}")
        with open(out) as file:
            return json.load(file)


def main() -> int:
    arguments = _parse()
    rows: list[dict[str, Any]] = []
    if arguments.out and os.path.exists(arguments.out):
        with open(arguments.out) as file:
            rows = json.load(file)
    names = list(filter(None, arguments.models.split(",")))
    measure = _rows_elsewhere if arguments.jobs > 1 else _rows_of
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for new in pool.map(lambda name: measure(name, arguments), names):
            known = {(r["model"], r["dtype"]) for r in new}
            rows = [r for r in rows if (r["model"], r["dtype"]) not in known] + new
            if arguments.out:
                with open(arguments.out, "w") as file:
                    json.dump(rows, file, indent=1)
    text = _table(rows)
    print(text)
    for row in rows:
        for line in row["failed"]:
            print(f"{row['model']} {row['dtype']} {line}")
    if arguments.update:
        marks = MARKS[arguments.device]
        common.update_docs(os.path.join(ROOT, "docs", "coverage.md"), *marks, text)
    return 1 if any(r["failed"] or r["compiled"] < r["graphs"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
