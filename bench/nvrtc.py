"""NVRTC's part of a first call on a GPU, and what is left of it in a later process. Needs no GPU.

    python bench/nvrtc.py --write docs/benchmarks.md
    python bench/nvrtc.py --cases 'resnet50/bf16' --turns 3

Graphs with an op that only PyTorch has, as forwards that draw dropout, or attention of the libraries, cannot be run by the command.

The recorded graphs of training steps (tests/corpus, forward and backward) are compiled for sm_90a and
called once on the null device, which runs no kernels: NVRTC compiles as for a card. The first process
of a graph finds an empty cache folder, the later ones what it has left there. Those could not start
NVRTC, so one that needs it fails. Seconds are those of the compiler's stages, of which "cache" is the
only one in a later process.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts"))

import common
from corpus_parts import cases

BEGIN, END = "<!-- nvrtc:begin -->", "<!-- nvrtc:end -->"
ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = "sm_90a"


def _stages(tool: str, graph: pathlib.Path, options: list[str], folder: str, **environment: str) -> dict[str, float]:
    """Seconds by stage, of a process that compiles the graph and calls it. Raises where it fails."""
    command = [tool, "run", str(graph), "--random", "--device", f"null:{TARGET}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env=os.environ | {"INKLE_CACHE_DIR": folder, "INKLE_LOG": "driver"} | environment)  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    found = re.findall(r"^inkle driver: (\w+): ([\d.]+) ms$", done.stderr, re.MULTILINE)
    return {stage: float(ms) / 1e3 for stage, ms in found}


def _row(tool: str, case: cases.Case, turns: int) -> list[str]:
    options = ["--training"] if "training" in case.options else []
    with tempfile.TemporaryDirectory() as scratch:
        graph = pathlib.Path(scratch, "graph.txt")
        graph.write_text(case.text)
        folder = os.path.join(scratch, "cache")
        cold = _stages(tool, graph, options, folder)
        later = [_stages(tool, graph, options, folder, INKLE_NVRTC="/nonexistent") for _ in range(turns)]
    if any(set(one) != {"cache"} for one in later):
        raise SystemExit(f"{case.name}: a later process compiled: {later}")
    took = [one["cache"] for one in later]
    return [case.name, f"{sum(cold.values()):.1f}", f"{cold['codegen']:.1f}",
            f"{statistics.median(took):.3f}", f"{min(took):.3f}"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default=str(ROOT / "build" / "inkle"), help="the command inkle")
    parser.add_argument("--cases", default=r"/(resnet50/bf16|vit-decomposed/bf16|minilm-decomposed/bf16.1)", help="pattern of names")
    parser.add_argument("--turns", type=int, default=3, help="later processes a graph")
    parser.add_argument("--write", default="", help="the page whose table is replaced")
    arguments = parser.parse_args()
    chosen = cases.select(cases.FOLDER, ["training"], arguments.cases)
    progress = common.Progress(len(chosen), "nvrtc")
    rows = []
    for case in chosen:
        progress.step(case.name)
        rows.append(_row(arguments.tool, case, arguments.turns))
    progress.end()
    head = ["graph", "empty cache, s", "of it codegen and NVRTC", "later process, s, median", "least"]
    text = f"Machine: {common.machine()}.\n\nCommand: `{common.command('nvrtc.py')}`\n\n"
    text += common.table(head, rows)
    if arguments.write:
        common.update_docs(arguments.write, BEGIN, END, text)
    print(text)


if __name__ == "__main__":
    main()
