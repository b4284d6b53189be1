"""Times first calls that skip Dynamo's tracing, in fresh processes whose caches an earlier one has filled.

    python bench/ahead.py --turns 3 --write docs/benchmarks.md

Torch's ``caching_precompile`` keeps Dynamo's code and guards, and the programs of the backend, Inkle
or TorchInductor, by function and line. Beside the two stands TorchInductor's warm first call with
tracing. Models, clock and ways of running are those of ``warm.py``, the clock also over the call of
``torch.compile``, which reads the files.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from typing import Any

import common
import eight
import warm

BEGIN, END = "<!-- ahead:begin -->", "<!-- ahead:end -->"
OURS, THEIRS = warm.AHEAD
TRACED = "inductor"
WAYS = (OURS, THEIRS, TRACED)


def measure(arguments: argparse.Namespace, model: str, progress: common.Progress) -> dict[str, Any]:
    found: dict[str, Any] = {"name": model, **{way: [] for way in WAYS}}
    with tempfile.TemporaryDirectory(prefix="ahead-") as root:
        folders = {way: os.path.join(root, way) for way in WAYS}
        for way, folder in folders.items():
            os.mkdir(folder)
            progress.step(f"{model}: fills {way}")
            is_forked = arguments.forked and way == OURS
            found[f"filled_{way}"] = warm.child(arguments, model, way, folder, is_forked)
        for turn in range(arguments.turns):
            for i in range(len(WAYS)):
                way = WAYS[(turn + i) % len(WAYS)]
                progress.step(f"{model}: turn {turn + 1}, {way}")
                found[way].append(warm.child(arguments, model, way, folders[way], arguments.forked))
    return found


def _ratio(result: dict[str, Any], other: str) -> float | None:
    """The median of the turns' ratios of Inkle's first call to that of another way."""
    turns = [a["first"] / b["first"] for a, b in zip(result[OURS], result[other])
             if "first" in a and "first" in b]  # fmt: skip
    return statistics.median(turns) if turns else None


def render(results: list[dict[str, Any]]) -> str:
    rows = []
    for r in results:
        ratios = ["-" if (x := _ratio(r, other)) is None else f"{x:.2f}" for other in WAYS[1:]]
        rows.append([r["name"], *(warm._pair(warm._values(r, w, "first"), 2) for w in WAYS), *ratios,
                     warm._own_share(r, OURS), warm._dynamo_of(r, OURS), warm._dynamo_of(r, THEIRS)])  # fmt: skip
    text = ["First call in seconds and Inkle's own share in ms, median / least; Dynamo's time in ms, "
            "median; ratios are the medians of those of the turns:\n"]  # fmt: skip
    text.append(common.table(
        ["case", "Inkle, not traced", "Inductor, not traced", "Inductor, traced",
         "Inkle over Inductor", "over Inductor, traced", "own share", "Dynamo, Inkle",
         "Dynamo, Inductor"], rows))  # fmt: skip
    text.append("")
    for other, what in ((TRACED, "warm one"), (THEIRS, "without tracing")):
        means = [x for r in results if r["name"] != warm.STEP and (x := _ratio(r, other))]
        if means:
            mean = warm._geomean(means)
            verdict = "met" if mean <= warm.RATIO_LIMIT else "NOT met"
            text.append(f"- First call at most {warm.RATIO_LIMIT} of TorchInductor's {what}, geometric "
                        f"mean of {len(means)} models: {mean:.2f}, {verdict}.")  # fmt: skip
    errors = {f"- {r['name']}, {w}: {x['error'][:200]}"
              for r in results for w in WAYS for x in r[w] if "error" in x}  # fmt: skip
    errors |= {f"- {r['name']}, {w}: a graph ran in eager: {reason}"
               for r in results for w in WAYS for x in r[w] for reason in x.get("fallbacks", [])}  # fmt: skip
    return "\n".join([*text, *sorted(errors)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*eight.names(), warm.STEP]
    parser.add_argument("--models", default=",".join(names))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process")
    parser.add_argument("--forked", action="store_true", help="fork instead of starting Python")
    common.add_options_of_parts(parser)
    arguments = parser.parse_args()
    models = arguments.models.split(",")
    if wrong := [x for x in models if x not in names]:
        parser.error(f"--models: {', '.join(wrong)!r}; choose from {', '.join(names)}")
    warm.set_environment(arguments)
    progress = common.Progress(len(WAYS) * len(models) * (arguments.turns + 1), "ahead")
    results = common.Results(arguments, names)
    for model in models:
        results.add(measure(arguments, model, progress))
        text = warm.header(arguments, results.command("ahead.py")) + "\n" + render(results.all)
        if arguments.write:  # what there is, should a later model end the run
            common.update_docs(arguments.write, BEGIN, END, text)
    progress.end()
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
