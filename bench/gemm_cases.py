"""Graphs of the products of gemm_shapes.txt, as cases of `inkle corpus make`: what two builds make of them.

    python bench/gemm_cases.py > cases
    INKLE_GEMM=template INKLE_ISA=avx512 TOOL corpus make cases -o OUT --no-run --device cpu:x86-64-v4

In f32 and bf16, without an epilogue, with silu times another operand, and with gelu and the product kept.
A line of OUT/cases.jsonl has the hash of each kernel's machine code.
"""

from __future__ import annotations

import os

SHAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gemm_shapes.txt")
EPILOGUES = ("none", "gate", "two")


def case(name: str, sizes: tuple[int, int, int, int], layout: str, dtype: str, epilogue: str) -> str:
    batch, rows, columns, terms = sizes

    def type_of(first: int, second: int) -> str:
        return f"{dtype}[{f'{batch},' if batch > 1 else ''}{first},{second}]"

    made = type_of(rows, columns)
    is_transposed = layout == "nk"
    weight = type_of(columns, terms) if is_transposed else type_of(terms, columns)
    lines = []
    if is_transposed:
        order = "[0, 2, 1]" if batch > 1 else "[1, 0]"
        lines.append(f"%b: {type_of(terms, columns)} = permute(%w, {order})")
    operation = "bmm" if batch > 1 else "mm"
    lines.append(f"%y: {made} = {operation}(%a, {'%b' if is_transposed else '%w'})")
    results = ["%y"]
    if epilogue == "gate":
        lines += [f"%s: {made} = silu(%y)", f"%g: {made} = mul(%s, %other)"]
        results = ["%g"]
    elif epilogue == "two":
        lines.append(f"%g: {made} = gelu(%y)")
        results = ["%g", "%y"]
    shape = "x".join(map(str, sizes))
    return "\n".join(
        [f"case gemm/{name}-{shape}-{layout}/{dtype}/{epilogue}", *["input -1 1"] * 3,
         f"graph @gemm(%a: {type_of(rows, terms)}, %w: {weight} param, %other: {made})"
         f" -> {', '.join([made] * len(results))} {{",
         *(f"  {line}" for line in lines), f"  return {', '.join(results)}", "}", ""]
    )  # fmt: skip


def main() -> None:
    with open(SHAPES) as file:
        rows = [line.split() for line in file if not line.startswith("#")]
    for name, *sizes, layout in rows:
        batch, m, n, k = map(int, sizes)
        for dtype in ("f32", "bf16"):
            for epilogue in EPILOGUES:
                print(case(name, (batch, m, n, k), layout, dtype, epilogue), end="")


if __name__ == "__main__":
    main()
