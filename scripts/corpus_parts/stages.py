"""Instructions of compiling a case, by stage: callgrind, which counts the same in every run."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import tempfile
from typing import Callable, Sequence

from corpus_parts.cases import Case
from corpus_parts.comparing import table

WHOLE = "inkle::driver::Compiler::compile("
# Functions whose instructions, with those of what they call, are a stage; none calls another.
STAGES = {
    "passes": "inkle::passes::run_passes(",
    "lower": "inkle::lower::lower(",
    "schedule": "inkle::schedule::schedule(",
    "LLVM IR": "inkle::codegen::cpu::emit_kernel(",
    "LLVM": "inkle::codegen::cpu::CpuCompiler::Impl::finish(",
    "CUDA text": "inkle::codegen::cuda::write_kernel(",
    "plan": "inkle::driver::assemble(",
}
_LINE = re.compile(r"^\s*([\d,]+) \(\s*[\d.]+%\)\s+(.*)$")


def inclusive(annotated: str) -> dict[str, int]:
    """Instructions by stage, and of the whole as "all", from `callgrind_annotate --inclusive=yes`.
    Raises ValueError where the whole is missing."""
    found: dict[str, int] = {}
    for line in annotated.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        count, where = int(match[1].replace(",", "")), match[2]
        name = where.split(":", 1)[1] if ":" in where.split("(", 1)[0] else where
        for stage, function in [("all", WHOLE), *STAGES.items()]:
            if function in name.split(" [")[0] and f"'{2}" not in name:
                found[stage] = max(found.get(stage, 0), count)
    if "all" not in found:
        raise ValueError(f"callgrind has not seen {WHOLE})")
    return found


def count(tool: pathlib.Path, case: Case, device: str) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        folder = pathlib.Path(temporary)
        (folder / "cases").write_text(str(case))
        out = folder / "callgrind.out"
        subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
             f"--toggle-collect={WHOLE}*", "--quiet", str(tool), "corpus", "make",
             str(folder / "cases"), "-o", str(folder / "made"), "--no-run", "--threads", "1",
             "--device", device],
            check=True,
            # What an earlier process compiled is compiled again.
            env={**os.environ, "OMP_NUM_THREADS": "1", "INKLE_CACHE_DIR": ""},
        )  # fmt: skip
        done = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100",
                               "--show=Ir", str(out)],
                              check=True, capture_output=True, text=True)  # fmt: skip
    return inclusive(done.stdout)


def run(
    tools: Sequence[pathlib.Path], cases: Sequence[Case], device: str,
    say: Callable[[str], None] = print,
) -> int:  # fmt: skip
    """Prints a row for each case and stage: millions of instructions and share with each build."""
    rows = []
    for case in cases:
        counts = [count(tool, case, device) for tool in tools]
        for stage in ("all", *STAGES, "rest"):
            cells = []
            for found in counts:
                known = sum(found.get(s, 0) for s in STAGES)
                number = found["all"] - known if stage == "rest" else found.get(stage, 0)
                cells += [f"{number / 1e6:.1f}", f"{100 * number / found['all']:.1f}%"]
            if any(c != "0.0" for c in cells[::2]):
                rows.append([case.name, stage, *cells])
    head = ["case", "stage"]
    for i in range(len(tools)):
        name = ("old ", "new ")[i] if len(tools) == 2 else ""
        head += [f"{name}M instructions", "share"]
    say(table(head, rows))
    return 0
