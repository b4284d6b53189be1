"""Times of calls with two builds, in turns."""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
from typing import Callable, Sequence

from corpus_parts.cases import Case
from corpus_parts.comparing import table

SLOWER = 0.99  # the interval begins below: the new build may be slower
_RESAMPLES = 2000


def interval(old: Sequence[float], new: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """The ratio old / new of medians, and its 95 per cent bootstrap interval: (low, ratio, high).

    Turns are drawn as pairs: what slows the machine down for a while slows both.
    """
    pairs = list(zip(old, new, strict=True))
    generator = random.Random(seed)

    def ratio(drawn: Sequence[tuple[float, float]]) -> float:
        return statistics.median(a for a, _ in drawn) / statistics.median(b for _, b in drawn)

    found = sorted(ratio(generator.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    low, high = found[math.floor(0.025 * _RESAMPLES)], found[math.ceil(0.975 * _RESAMPLES) - 1]
    return low, ratio(pairs), high


def _times(
    tool: pathlib.Path, file: pathlib.Path, seconds: float, threads: int, measure: str
) -> dict[str, float]:
    command = [str(tool), "corpus", "time", str(file), "--seconds", str(seconds), "--threads", str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": str(threads)})  # fmt: skip
    lines = map(json.loads, done.stdout.splitlines())
    return {line["case"]: line[measure] for line in lines}


def run(
    old: pathlib.Path, new: pathlib.Path, cases: Sequence[Case], turns: int, seconds: float,
    threads: int, measure: str = "microseconds", say: Callable[[str], None] = print,
) -> int:  # fmt: skip
    """Prints a table. The exit status: 1 if a case may be slower. `measure`: of the calls of a turn,
    "microseconds" is the median time, "least" the least processor time, which other programs on the
    machine disturb less.

    Raises CalledProcessError where a build does not run a case.
    """
    times: dict[str, tuple[list[float], list[float]]] = {c.name: ([], []) for c in cases}
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        file = pathlib.Path(temporary) / "cases"
        file.write_text("".join(map(str, cases)))
        for turn in range(turns):
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            for which in order:
                for name, took in _times((old, new)[which], file, seconds, threads, measure).items():
                    times[name][which].append(took)
            print(f"turn {turn + 1} of {turns}", file=sys.stderr)
    rows, slower = [], []
    for name, (a, b) in times.items():
        low, ratio, high = interval(a, b)
        if low < SLOWER:
            slower.append(name)
        rows.append([name, f"{statistics.median(a):.1f}", f"{statistics.median(b):.1f}", f"{ratio:.3f}",
                     f"{low:.3f} to {high:.3f}", "may be slower" if low < SLOWER else ""])  # fmt: skip
    say(table(("case", "old us", "new us", "old/new", "95%", ""), rows))
    say(f"\n{len(slower)} of {len(rows)} cases may be slower: the interval begins below {SLOWER}")
    return 1 if slower else 0
