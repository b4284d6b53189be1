"""Times matrix products by the template against the library, in turns, in one process.

    python bench/gemm.py --threads 1                   all of gemm_shapes.txt, without an epilogue
    python bench/gemm.py --epilogue gate               silu(a b) times another operand
    python bench/gemm.py --epilogue two                gelu(a b) and a b, both kept
    python bench/gemm.py --epilogue gelu               what the library can take, too; and `add`
    python bench/gemm.py --shapes 197x384x1536:nk      M, N and K of these alone
    python bench/gemm.py --prologue gate               (silu(a) times another operand) b
    python bench/gemm.py --dtype bf16                  of a processor with AVX512-BF16 or AMX
    python bench/gemm.py --ours auto                   whom the scheduler chooses, against the library
    python bench/gemm.py --weight i8 --most-rows 96    a weight of i8 with a scale of each column

A shape is called by each in turn, and the ratio is that of the medians. Of one thread (run with
OMP_NUM_THREADS=1) its processor time counts, which other processes disturb less. What the library cannot take
as its epilogue is a kernel after it, as Inkle calls it without the template.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from typing import Any, Callable

import torch
import torch.nn.functional as F

import inkle
from inkle import machine

EPILOGUES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "none": lambda y, other: y,
    "add": lambda y, other: y + other,
    "gelu": lambda y, other: F.gelu(y),
    "gate": lambda y, other: F.silu(y) * other,
    "two": lambda y, other: (F.gelu(y), y),
}
PROLOGUES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "none": lambda a, gate: a,
    "gate": lambda a, gate: F.silu(a) * gate,
}
SHAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gemm_shapes.txt")


def compiled(by: str, b: torch.Tensor, prologue: str, epilogue: str, inputs: Any) -> tuple[Any, str]:
    os.environ["INKLE_GEMM"] = by
    machine._compilers.clear()
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(b.clone(), requires_grad=False)
    weight = "module.weight"
    if b.dtype == torch.int8:
        scale = torch.rand(b.shape[-1]).to(inputs[0].dtype) / 64
        module.scale = torch.nn.Parameter(scale, requires_grad=False)
        weight = "(module.weight.to(a.dtype) * module.scale)"
    # Code of its own, else the program compiled for the other one would be taken.
    names = {"module": module, "prologue": PROLOGUES[prologue], "epilogue": EPILOGUES[epilogue]}
    exec(f"def forward(a, gate, other): return epilogue(prologue(a, gate) @ {weight}, other)", names)
    module.forward = names["forward"]
    call = torch.compile(module, backend="inkle", dynamic=False)
    programs = len(inkle.reports())
    call(*inputs)
    assert len(inkle.reports()) == programs + 1, "nothing was compiled"
    kinds = "+".join(s["label"] if s["kind"] == "kernel" else s["kind"]
                     for s in inkle.reports()[-1].steps)
    return call, kinds


def shapes(given: str) -> list[tuple[str, int, int, int, int, str]]:
    result = []
    if given:
        for shape in given.split(","):
            sizes, layout = shape.split(":")
            rows, columns, terms = (int(n) for n in sizes.split("x"))
            result.append(("given", 1, rows, columns, terms, layout))
        return result
    with open(SHAPES) as file:
        for line in file:
            if line.startswith("#"):
                continue
            name, batch, rows, columns, terms, layout = line.split()
            result.append((name, int(batch), int(rows), int(columns), int(terms), layout))
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epilogue", choices=list(EPILOGUES), default="none")
    parser.add_argument("--prologue", choices=list(PROLOGUES), default="none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.6, help="of measuring, for each shape")
    parser.add_argument("--only", default="")
    parser.add_argument("--shapes", default="", help="instead of gemm_shapes.txt")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--weight", choices=["as it is", "i8"], default="as it is")
    parser.add_argument("--most-rows", type=int, default=1 << 20)
    parser.add_argument("--ours", choices=["template", "auto"], default="template")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    ratios = []
    print("| shape | batch | M | N | K | template, ms | library, ms | GFLOP/s | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, batch, rows, columns, terms, layout in shapes(options.shapes):
        if (options.only and options.only not in name) or rows > options.most_rows:
            continue
        lead = (batch,) if batch > 1 else ()
        a = torch.randn(*lead, rows, terms)
        b = torch.randn(*lead, terms, columns)
        if layout == "nk":
            b = b.transpose(-1, -2).contiguous().transpose(-1, -2)
        inputs = (a, torch.randn_like(a), torch.randn(*lead, rows, columns))
        if options.dtype == "bf16":
            b, inputs = b.bfloat16(), tuple(t.bfloat16() for t in inputs)
        if options.weight == "i8":
            b = (b * 32).clamp(-128, 127).to(torch.int8)
        # Before both: what was compiled earlier would be compiled again, by whoever is set then.
        torch._dynamo.reset()
        calls, kinds = {}, {}
        for by in (options.ours, "library"):
            calls[by], kinds[by] = compiled(by, b, options.prologue, options.epilogue, inputs)
        assert "panels" not in kinds["library"], kinds
        if "panels" not in kinds[options.ours]:
            print(f"| {name} {layout} | {batch} | {rows} | {columns} | {terms} | the same by both | | | |")
            continue
        times: dict[str, list[float]] = {by: [] for by in calls}
        programs = len(inkle.reports())
        start = time.perf_counter()
        while time.perf_counter() - start < options.seconds or len(times["library"]) < 5:
            for by, call in calls.items():
                begin = clock()
                call(*inputs)
                times[by].append(clock() - begin)
        assert len(inkle.reports()) == programs, "a program was compiled while it was measured"
        ours, theirs = (statistics.median(times[by]) for by in (options.ours, "library"))
        ratios.append(theirs / ours)
        rate = 2e-9 * batch * rows * columns * terms / ours
        print(f"| {name} {layout} | {batch} | {rows} | {columns} | {terms} | {ours * 1e3:.3f} "
              f"| {theirs * 1e3:.3f} | {rate:.1f} | {theirs / ours:.2f} |", flush=True)
    mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
    print(f"\ngeometric mean {mean:.3f}, least {min(ratios):.3f}, of {len(ratios)} shapes")


if __name__ == "__main__":
    main()
