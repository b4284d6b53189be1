"""Times kernels of f32 functions with two builds of the compiler, in turns: what do the functions cost?

    python bench/functions.py OLD NEW                       two commands `inkle`, one thread, AVX2
    python bench/functions.py OLD NEW --cases attention     the cases whose name has that in it
    python bench/functions.py OLD NEW --isa avx512

Bare functions read and write arrays that lie in L2, in L3 and in memory; kernels have the shapes of models.
A turn is a process of each build. Of its calls the one that took least processor time counts. The
table has the ratio new / old of the least turn, and of the medians over turns with its 95 per cent
bootstrap interval.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from corpus_parts.cases import Case  # noqa: E402
from corpus_parts.comparing import table  # noqa: E402
from corpus_parts.timing import interval, measure_turns, one_processor_a_core  # noqa: E402

# Functions with the range of their arguments, and elements of 4 bytes that are read and written.
BARE = {"exp": (-10, 10), "expm1": (-10, 10), "log1p": (-0.9, 10), "sin": (-10, 10), "cos": (-10, 10),
        "tanh": (-4, 4), "log": (0.01, 10)}  # fmt: skip
SIZES = {"in L2": 32768, "in L3": 1000000, "in memory": 16777216}

HIDDEN = "f32[1024,1536]"  # MiniLM's, of 8x128 words
GPT = "f32[128,3072]"
LLAMA = "f32[256,1376]"
HEADS = "f32[8,12,128,32]"
PLAIN = (-2.0, 2.0)

# Name -> types of the inputs, then type and text of each operation. %a, %b, ... are the inputs, %0, %1, ...
# the results; the last one is the graph's.
KERNELS: dict[str, tuple[list[str], list[tuple[str, str]]]] = {
    "softmax, 12288x128": (["f32[12288,128]"], [("f32[12288,128]", "_softmax(%a, -1, false)")]),
    "log_softmax of 154x30522": (["f32[154,30522]"], [("f32[154,30522]", "_log_softmax(%a, -1, false)")]),
    "bias, gelu by erf, MiniLM": ([HIDDEN, "f32[1536]"], [(HIDDEN, "add(%a, %b)"), (HIDDEN, "gelu(%0)")]),
    "backward of gelu by erf, MiniLM": ([HIDDEN, HIDDEN], [(HIDDEN, "gelu_backward(%a, %b)")]),
    "bias, gelu by tanh, gpt2": (
        [GPT, "f32[3072]"], [(GPT, "add(%a, %b)"), (GPT, 'gelu(%0, "tanh")')]),
    "backward of gelu by tanh, gpt2": ([GPT, GPT], [(GPT, 'gelu_backward(%a, %b, "tanh")')]),
    "silu times gate, llama": ([LLAMA, LLAMA], [(LLAMA, "silu(%a)"), (LLAMA, "mul(%0, %b)")]),
    "sigmoid times x, 4x96x28x28": (
        ["f32[4,96,28,28]"], [("f32[4,96,28,28]", "sigmoid(%a)"), ("f32[4,96,28,28]", "mul(%0, %a)")]),
    "layer norm, gelu by erf, 1024x384": (
        ["f32[1024,384]", "f32[384]", "f32[384]"],
        [("f32[1024,384]", "layer_norm(%a, [384], %b, %c, 1e-05)"), ("f32[1024,384]", "gelu(%0)")]),
    "mish, 4x64x56x56": (["f32[4,64,56,56]"], [("f32[4,64,56,56]", "mish(%a)")]),
    "softplus, 256x1536": (["f32[256,1536]"], [("f32[256,1536]", "softplus(%a)")]),
    "elu, 256x1536": (["f32[256,1536]"], [("f32[256,1536]", "elu(%a)")]),
    "rotary, 8 heads of 256x64": (
        ["f32[256,64]", "f32[1,8,256,64]", "f32[1,8,256,64]"],
        [("f32[256,64]", "cos(%a)"), ("f32[256,64]", "sin(%a)"), ("f32[1,8,256,64]", "mul(%b, %0)"),
         ("f32[1,8,256,64]", "mul(%c, %1)"), ("f32[1,8,256,64]", "add(%2, %3)")]),
    "sinusoidal embedding, 1024x256": (
        ["f32[1024,1]", "f32[256]"],
        [("f32[1024,256]", "mul(%a, %b)"), ("f32[1024,256]", "sin(%0)"), ("f32[1024,256]", "cos(%0)"),
         ("f32[1024,512]", "cat([%1, %2], 1)")]),
    "attention of MiniLM, 8x12x128x32": ([HEADS] * 3, [(HEADS, "sdpa(%a, %b, %c)")]),
}  # fmt: skip


def _case(name: str, inputs: list[str], lines: list[tuple[str, str]], limits: tuple[float, float]) -> Case:
    arguments = ", ".join(f"%{letter}: {type_}" for letter, type_ in zip("abc", inputs))
    body = "".join(f"  %{i}: {type_} = {text}\n" for i, (type_, text) in enumerate(lines))
    text = f"graph @graph({arguments}) -> {lines[-1][0]} {{\n{body}  return %{len(lines) - 1}\n}}\n"
    return Case(name.replace(" ", "_"), text, (), [limits] * len(inputs))


def cases() -> list[Case]:
    found = []
    for function, limits in BARE.items():
        for place, elements in SIZES.items():
            type_ = f"f32[{elements}]"
            found.append(_case(f"{function} {place}", [type_], [(type_, f"{function}(%a)")], limits))
    return found + [_case(name, inputs, lines, PLAIN) for name, (inputs, lines) in KERNELS.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--cases", default="")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a case in a turn")
    parser.add_argument("--isa", choices=("avx2", "avx512"), default="avx2")
    parser.add_argument("--core", type=int, default=one_processor_a_core(os.sched_getaffinity(0))[0])
    arguments = parser.parse_args()
    os.environ["INKLE_ISA"] = arguments.isa
    wanted = [c for c in cases() if arguments.cases in c.name.replace("_", " ")]
    times = measure_turns((arguments.old, arguments.new), wanted, arguments.turns, arguments.seconds, 1,
                          "least", arguments.core)  # fmt: skip
    rows = []
    for case in wanted:
        name = case.name.replace("_", " ")
        if case.name in times.failed:
            rows.append([name, "-", "-", times.failed[case.name], "", ""])
            continue
        old, new = times.of[case.name]
        low, ratio, high = interval(new, old)
        rows.append([name, f"{min(old):.1f}", f"{min(new):.1f}", f"{min(new) / min(old):.2f}", f"{ratio:.2f}",
                     f"{low:.2f} to {high:.2f}"])  # fmt: skip
    print(table(["kernel", "old us", "new us", "new / old, least", "median", "95 per cent"], rows))
    return 1 if times.failed else 0


if __name__ == "__main__":
    sys.exit(main())
