"""Matrix products of bf16 by the template on a GPU of sm_90: results against f64, time against the library.

    python bench/gemm_gpu.py                 results of all, then times in turns
    python bench/gemm_gpu.py --results       results alone
    python bench/gemm_gpu.py --only mlp      shapes whose name has this
    python bench/gemm_gpu.py --forced        only the cases that name a configuration

Cases whose layout begins with `t` have a left operand whose rows are its last dimension, those that end with
`n` a right one whose columns are. Cases with a tile have that one and no other (INKLE_GEMM=template:TILE), `p`
is ping-pong, `/3` the terms in three parts, `+left` with computed left operands. The epilogue `silu(a)`
computes the left operand, not the result.
Each program is compiled twice, with INKLE_GEMM=template and =library, and both run in one process. A time
is the median of many calls between CUDA events, the programs in turns; what a call costs on the host is
hidden by a kernel that keeps the card busy meanwhile. `eager` is torch's own product alone (cuBLASLt), without
the epilogue. Operands are normal random numbers: zeros and integers make a card faster.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from typing import Any, Callable

import torch
import torch.nn.functional as F

import inkle
from inkle import machine

# Name, batch, M, N, K, layout of the operands, tile that is forced.
SHAPES = [
    ("square 4096", 1, 4096, 4096, 4096, "nt", ""),
    ("square 8192", 1, 8192, 8192, 8192, "nt", ""),
    ("bert qkv", 1, 8192, 2304, 768, "nt", ""),
    ("bert out", 1, 8192, 768, 768, "nt", ""),
    ("bert mlp up", 1, 8192, 3072, 768, "nt", ""),
    ("bert mlp down", 1, 8192, 768, 3072, "nt", ""),
    ("vit mlp up", 1, 25216, 3072, 768, "nt", ""),
    ("llama gate", 1, 1024, 8192, 2048, "nt", ""),
    ("llama down", 1, 1024, 2048, 8192, "nt", ""),
    ("llama head", 1, 1024, 128256, 2048, "nt", ""),
    ("few rows", 1, 100, 4096, 4096, "nt", ""),
    ("ragged", 1, 1000, 1000, 1000, "nt", ""),
    ("ragged columns", 1, 257, 515, 520, "nt", ""),
    ("one tile", 1, 7, 24, 40, "nt", ""),
    ("batch", 16, 512, 512, 64, "nt", ""),
    ("batch ragged", 3, 130, 200, 72, "nt", ""),
    ("nn", 1, 4096, 4096, 4096, "nn", ""),
    ("tn", 1, 4096, 4096, 4096, "tn", ""),
    ("tt", 1, 4096, 4096, 4096, "tt", ""),
    ("gradient of input", 1, 8192, 768, 3072, "nn", ""),
    ("gradient of weight", 1, 768, 3072, 8192, "tn", ""),
    ("ragged nn", 1, 1000, 1000, 1000, "nn", ""),
    ("batch ragged tn", 3, 136, 200, 72, "tn", ""),
]
FORCED = [
    ("whole tiles", 1, 8192, 3072, 768, "nt", "128x256"),
    ("whole tiles", 1, 8192, 3072, 768, "nt", "128x192"),
    ("ping-pong", 1, 8192, 3072, 768, "nt", "128x192p"),
    ("ping-pong", 1, 8192, 3072, 768, "nt", "128x160p"),
    ("ping-pong", 1, 8192, 3072, 768, "nt", "128x128p"),
    ("ping-pong", 1, 8192, 3072, 768, "nt", "64x256p"),
    ("ping-pong nn", 1, 8192, 3072, 768, "nn", "128x192p"),
    ("ping-pong tn", 1, 8192, 3072, 768, "tn", "128x128p"),
    ("ping-pong ragged", 1, 1000, 1000, 1000, "nt", "128x128p"),
    ("ping-pong ragged", 3, 257, 520, 520, "tn", "64x128p"),
    ("computed", 1, 8192, 768, 768, "nt", "128x192"),
    ("computed", 1, 8192, 768, 3072, "nt", "128x192"),
    ("computed", 16, 512, 512, 64, "nt", "128x256"),
    ("computed ragged", 3, 130, 200, 72, "nt", "128x64"),
    ("computed ragged tn", 3, 136, 200, 72, "tn", "128x64"),
    ("parts", 1, 100, 4096, 4096, "nt", "128x128/4"),
    ("parts", 1, 256, 1024, 8192, "nt", "128x128/8"),
    ("parts ragged", 1, 257, 515, 2056, "nt", "128x64/3"),
    ("parts ragged tn", 2, 136, 200, 1000, "tn", "128x128/5"),
    ("parts ping-pong", 1, 300, 520, 1000, "nt", "64x128p/3"),
]
EPILOGUES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "none": lambda y, other: y,
    "gelu": lambda y, other: F.gelu(y),
    "gate": lambda y, other: F.silu(y) * other,
    "two": lambda y, other: (F.gelu(y), y),
    "silu(a)": lambda y, other: y,
}


# Sides of a product by the layout's letters; what is passed is what lies in memory.
LEFT = {"n": "a", "t": "a.transpose(-1, -2)"}
RIGHT = {"n": "b", "t": "b.transpose(-1, -2)"}


def compiled(by: str, epilogue: str, inputs: tuple[torch.Tensor, ...], layout: str) -> tuple[Any, str]:
    """The program, and what it does: "" where all is one kernel, else kernels and calls."""
    os.environ["INKLE_GEMM"] = by
    machine._compilers.clear()
    names: dict[str, Any] = {"epilogue": EPILOGUES[epilogue], "silu": F.silu}
    # Code of its own, else the program compiled for the other one would be taken.
    left = f"silu({LEFT[layout[0]]})" if epilogue == "silu(a)" else LEFT[layout[0]]
    exec(f"def forward(a, b, other): return epilogue({left} @ {RIGHT[layout[1]]}, other)", names)
    call = torch.compile(names["forward"], backend="inkle", dynamic=False)
    call(*inputs)
    kinds = [s["kind"] for s in inkle.reports()[-1].steps]
    if "matmul" in kinds:
        return call, "library"
    return call, "" if len(kinds) == 1 else f"{len(kinds)} steps"


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def error_of(results: Any, expected: Any) -> float:
    """Largest error of an element over what rounding to bf16 may do to it and to the sum before."""
    worst = 0.0
    for got, want in zip(as_tuple(results), as_tuple(expected)):
        want = want.double()
        scale = 2.0 ** -7 * (want.abs() + want.abs().mean())
        worst = max(worst, ((got.double() - want).abs() / scale).max().item())
    return worst


def times(calls: dict[str, Callable[[], Any]], flops: float) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    busy = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)
    turns = max(10, min(60, int(4e13 / flops)))
    for name, call in calls.items():
        for _ in range(5):
            call()
    for _ in range(turns):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            busy.zero_()  # also takes what the last call left in L2
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            found[name].append(begin.elapsed_time(end))
    return {name: statistics.median(each) for name, each in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--epilogue", default="")
    parser.add_argument("--forced", action="store_true")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    failed = 0
    ratios: dict[str, list[float]] = {}
    print("| shape | batch | M | N | K | layout | tile | epilogue | error | template, us | library, us | eager product, us"
          " | TFLOP/s, template | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name, batch, rows, columns, terms, layout, tile in FORCED if options.forced else SHAPES + FORCED:
        if options.only and options.only not in name:
            continue
        lead = (batch,) if batch > 1 else ()
        a = torch.randn(*lead, *((rows, terms) if layout[0] == "n" else (terms, rows)), device="cuda",
                        dtype=torch.bfloat16)
        b = torch.randn(*lead, *((terms, columns) if layout[1] == "n" else (columns, terms)), device="cuda",
                        dtype=torch.bfloat16) / math.sqrt(terms)
        other = torch.randn(*lead, rows, columns, device="cuda", dtype=torch.bfloat16)
        left = a if layout[0] == "n" else a.transpose(-1, -2)
        right = b if layout[1] == "n" else b.transpose(-1, -2)
        case = f"{name} | {batch} | {rows} | {columns} | {terms} | {layout} | {tile}"
        for epilogue, function in EPILOGUES.items():
            if options.epilogue and options.epilogue != epilogue:
                continue
            if epilogue == "silu(a)" and columns > 1024:  # its kernel stays one of its own
                continue
            if tile and epilogue not in ("none", "gate", "silu(a)"):
                continue
            inputs = (a, b, other)
            torch._dynamo.reset()  # here alone: whoever is called after it is compiled again, by the other way
            try:
                computes = "+left" if epilogue == "silu(a)" else ""
                by = f"template:{tile}{computes}" if tile else "template"
                ours, does = compiled(by, epilogue, inputs, layout)
                result = ours(*inputs)
                torch.cuda.synchronize()
            except Exception as error:  # the others are to be seen, too
                print(f"| {case} | {epilogue} | {error!r:.300} |", flush=True)
                failed += 1
                if "CUDA" in repr(error) or "device" in repr(error):
                    return 1
                continue
            few = slice(0, 512)
            multiplied = F.silu(left[..., few, :]) if epilogue == "silu(a)" else left[..., few, :]
            wide = (multiplied.double() @ right.double()).float()
            error = error_of(tuple(r[..., few, :] for r in as_tuple(result)),
                             function(wide.to(torch.bfloat16).float(), other[..., few, :].float()))
            again = ours(*inputs)
            same = all(torch.equal(x, y) for x, y in zip(as_tuple(result), as_tuple(again)))
            verdict = f"{error:.2f}" + ("" if error < 2 and same else " WRONG")
            failed += error >= 2 or not same
            if does:
                verdict += f" ({does})"
            line = f"| {case} | {epilogue} | {verdict} |"
            if options.results or does == "library":
                print(line, flush=True)
                continue
            theirs, _ = compiled("library", epilogue, inputs, layout)
            programs = len(inkle.reports())
            flops = 2.0 * batch * rows * columns * terms
            measured = times({"template": lambda: ours(*inputs), "library": lambda: theirs(*inputs),
                              "eager": lambda: left @ right}, flops)
            if len(inkle.reports()) != programs:
                raise SystemExit("a program was compiled again while it was timed")
            ratio = measured["library"] / measured["template"]
            ratios.setdefault(epilogue, []).append(ratio)
            print(line + f" {measured['template'] * 1e3:.1f} | {measured['library'] * 1e3:.1f} | "
                  f"{measured['eager'] * 1e3:.1f} | {flops / measured['template'] * 1e-9:.0f} | {ratio:.2f} |",
                  flush=True)
    for epilogue, each in ratios.items():
        mean = math.exp(statistics.fmean(math.log(r) for r in each))
        print(f"{epilogue}: geometric mean {mean:.3f}, least {min(each):.3f}, of {len(each)} shapes")
    print(f"{failed} wrong" if failed else "all right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
