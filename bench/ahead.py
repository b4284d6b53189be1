"""Times first calls that skip Dynamo's tracing, in fresh processes whose caches an earlier one has filled.

    python bench/ahead.py --turns 3 --write docs/benchmarks.md

Torch's ``caching_precompile`` keeps Dynamo's code and guards, and the programs of the backend, Inkle
or TorchInductor, by function and line. Models, clock and ways of running are those of ``warm.py``,
the clock also over the call of ``torch.compile``, which reads the files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any

import common
import eight
import warm

BEGIN, END = "<!-- ahead:begin -->", "<!-- ahead:end -->"
OURS, THEIRS = warm.AHEAD


def measure(arguments: argparse.Namespace, model: str, progress: common.Progress) -> dict[str, Any]:
    found: dict[str, Any] = {"name": model, OURS: [], THEIRS: []}
    with tempfile.TemporaryDirectory(prefix="ahead-") as root:
        for turn in range(-1, arguments.turns):  # the first fills the caches
            for way in warm.AHEAD if turn % 2 else reversed(warm.AHEAD):
                folder = os.path.join(root, way)
                os.makedirs(folder, exist_ok=True)
                progress.step(f"{model}: turn {turn + 1}, {way}")
                one = warm.child(arguments, model, way, folder, False)
                if turn >= 0:
                    found[way].append(one)
    return found


def _ratios(result: dict[str, Any]) -> list[float]:
    return [a["first"] / b["first"] for a, b in zip(result[OURS], result[THEIRS])
            if "first" in a and "first" in b]  # fmt: skip


def render(results: list[dict[str, Any]]) -> str:
    rows, means = [], []
    for r in results:
        ratios = sorted(_ratios(r))
        ratio = ratios[len(ratios) // 2] if ratios else None
        if ratio and r["name"] != warm.STEP:
            means.append(ratio)
        rows.append([r["name"], *(warm._pair(warm._values(r, w, "first"), 2) for w in warm.AHEAD),
                     "-" if ratio is None else f"{ratio:.2f}",
                     warm._own_share(r, OURS), warm._dynamo_of(r, OURS), warm._dynamo_of(r, THEIRS)])  # fmt: skip
    text = ["First call in seconds and Inkle's own share in ms, median / least; Dynamo's time in ms, median:\n"]
    text.append(common.table(["case", "Inkle", "Inductor", "Inkle over Inductor", "own share",
                              "Dynamo, Inkle", "Dynamo, Inductor"], rows))  # fmt: skip
    if means:
        mean = warm._geomean(means)
        verdict = "met" if mean <= warm.RATIO_LIMIT else "NOT met"
        text.append(f"\n- First call at most {warm.RATIO_LIMIT} of TorchInductor's, both without tracing, "
                    f"geometric mean of {len(means)} models: {mean:.2f}, {verdict}.")  # fmt: skip
    errors = {f"- {r['name']}, {w}: {x['error'][:200]}"
              for r in results for w in warm.AHEAD for x in r[w] if "error" in x}  # fmt: skip
    return "\n".join([*text, *sorted(errors)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join([*eight.names(), warm.STEP]))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process")
    parser.add_argument("--json", default="", help="file for all that was measured")
    parser.add_argument("--write", default="", help="the page whose tables are replaced")
    arguments = parser.parse_args()
    models = arguments.models.split(",")
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    progress = common.Progress(2 * len(models) * (arguments.turns + 1), "ahead")
    results = []
    for model in models:
        results.append(measure(arguments, model, progress))
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(results, file, indent=1)
    progress.end()
    command = common.command("ahead.py") + " --write docs/benchmarks.md"
    text = (f"Machine: {common.machine()}; {arguments.threads} threads, f32, {arguments.turns} turns. "
            f"{common.versions(['torch', 'transformers', 'timm'])}.\n\nCommand: `{command}`\n\n{render(results)}")  # fmt: skip
    if arguments.write:
        common.update_docs(arguments.write, BEGIN, END, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
