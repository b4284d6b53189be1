"""Graphs that exist as text: those of the golden tests and of the driver's tests, and families of
kernels at the sizes of a GPU."""

from __future__ import annotations

import math
import re
from typing import Iterator

from corpus_parts.cases import ROOT, Case

# More elements in one tensor are not computed with on the CPU.
_MOST_ELEMENTS = 1 << 23
_GRAPH = re.compile(r"^(?:.*R\"\()?(graph @.*?^\})", re.S | re.M)
_RUN = re.compile(r"^// run: (.*)$", re.M)
_WHOLE = {"i64", "i32", "i16", "i8", "u8"}


def input_types(graph: str) -> list[tuple[str, str]]:
    """dtype and sizes of each tensor input of a graph's text."""
    depth, start = 0, graph.index("(")
    for at in range(start, len(graph)):
        depth += {"(": 1, ")": -1}.get(graph[at], 0)
        if depth == 0:
            break
    header = graph[start + 1 : at]
    return re.findall(r"%[\w.]+: (\w+)\[([^\]]*)\]", header)


def elements(sizes: str) -> int:
    """Symbols count as one."""
    return math.prod(int(s) for s in sizes.split(",") if s.strip().isdigit())


def case_of(name: str, text: str, options: tuple[str, ...] = ()) -> Case:
    """Real inputs in [-2, 2], whole ones in 0 to 3."""
    types = input_types(text)
    if any(elements(sizes) > _MOST_ELEMENTS for _, sizes in types):
        options = (*options, "no-run")
    ranges = [(0.0, 1.0) if d == "bool" else (0.0, 3.0) if d in _WHOLE else (-2.0, 2.0)
              for d, _ in types]  # fmt: skip
    return Case(name, text.rstrip("\n") + "\n", options, ranges)


def golden() -> Iterator[Case]:
    """The graphs in tests/, with the options of the command that a golden test runs."""
    folder = ROOT / "tests"
    files = sorted([*folder.glob("**/*.test"), *folder.glob("driver/*.cpp")])
    for path in files:
        text = path.read_text()
        name = path.relative_to(folder).with_suffix("").as_posix().replace("/", ".")
        runs = [(m.start(), m[1].split()) for m in _RUN.finditer(text)]
        for number, match in enumerate(_GRAPH.finditer(text)):
            flags = [f for at, f in runs if at < match.start()][-1:] or [[]]
            options = tuple(o for o in ("training", "deterministic") if f"--{o}" in flags[0])
            yield case_of(f"golden/{name}/{number}", match[1], options)


def _layer_norm(rows: str, columns: int, dtype: str, moments: str) -> str:
    x, m, w = f"{dtype}[{rows},{columns}]", f"{moments}[{rows},1]", f"{dtype}[{columns}]"
    return (
        f"graph @norm(%d: {x}, %x: {x}, %m: {m}, %r: {m}, %w: {w}, %b: {w}) -> {x}, {w}, {w} {{\n"
        f"  %0: {x}, %1: {w}, %2: {w} = native_layer_norm_backward(%d, %x, [{columns}], %m, %r, %w, "
        f"%b, [true, true, true])\n  return %0, %1, %2\n}}\n"
    )


def _rms_norm(rows: str, columns: int, dtype: str) -> str:
    x, r, w = f"{dtype}[{rows},{columns}]", f"f32[{rows},1]", f"{dtype}[{columns}]"
    return (
        f"graph @norm(%d: {x}, %x: {x}, %r: {r}, %w: {w}) -> {x}, {w} {{\n"
        f"  %0: {x}, %1: {w} = _fused_rms_norm_backward(%d, %x, [{columns}], %r, %w, [true, true])\n"
        f"  return %0, %1\n}}\n"
    )


def _transposed(rows: int, columns: int, x: str, y: str, result: str) -> str:
    return (
        f"graph @sum(%x: {x}[{columns},{rows}], %y: {y}[{rows},{columns}]) -> {result}[{rows},{columns}]"
        f" {{\n  %t: {x}[{rows},{columns}] = t(%x)\n  %0: {result}[{rows},{columns}] = add(%t, %y)\n"
        f"  return %0\n}}\n"
    )


def families() -> Iterator[Case]:
    """Backwards of norms (sequential accumulation across rows) and transposes (tiles)."""
    for columns in (256, 264, 768, 1024, 2048, 8192):
        walks = {
            "layer-norm-bf16": _layer_norm("8192", columns, "bf16", "f32"),
            "layer-norm-f32": _layer_norm("8,512", columns, "f32", "f32"),
            "layer-norm-f16": _layer_norm("128,197", columns, "f16", "f32"),
            "rms-norm-bf16": _rms_norm("16384", columns, "bf16"),
            "rms-norm-f32": _rms_norm("4,2048", columns, "f32"),
            "small-layer-norm-f32": _layer_norm("64", columns, "f32", "f32"),
            "small-rms-norm-bf16": _rms_norm("64", columns, "bf16"),
        }
        for name, text in walks.items():
            yield case_of(f"classes/walk/{name}-{columns}", text, ("training",))
    for rows, columns, x, y, result in (
        (8192, 8192, "bf16", "bf16", "bf16"), (4096, 8192, "f32", "f32", "f32"),
        (5000, 8008, "bf16", "bf16", "bf16"), (8192, 8192, "u8", "u8", "u8"),
        (4096, 4096, "i64", "i64", "i64"), (8192, 8192, "u8", "f32", "f32"),
        (512, 1024, "bf16", "bf16", "bf16"), (250, 700, "f32", "f32", "f32"),
        (1000, 999, "f64", "f64", "f64"), (1024, 1024, "f16", "f32", "f32"),
    ):  # fmt: skip
        name = f"classes/tile/{rows}x{columns}-{x}-{y}"
        yield case_of(name, _transposed(rows, columns, x, y, result))


def unlike(cases: list[Case]) -> list[Case]:
    """The first of cases with the same options and graph."""
    seen: set[tuple[str, ...]] = set()
    result = []
    for case in cases:
        key = (*(o for o in case.options if o != "no-run"), case.text)
        if key not in seen:
            seen.add(key)
            result.append(case)
    return result


