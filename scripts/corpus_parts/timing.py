"""Times of calls with two builds, in turns."""

from __future__ import annotations

import concurrent.futures
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
from typing import Any, Callable, Iterable, Sequence

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


# glibc gives the memory of a call's results to the next call. By default it may return it to the system
# in between, and such a call takes twice as long.
_KEPT_MEMORY = {
    "MALLOC_TOP_PAD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_MMAP_MAX_": "0",
}  # fmt: skip


class Times:
    """Of each case the times with both builds, a turn each; and of those without, why."""

    def __init__(self, names: Sequence[str]) -> None:
        self.of: dict[str, tuple[list[float], list[float]]] = {n: ([], []) for n in names}
        self.failed: dict[str, str] = {}

    def add(self, which: int, line: dict[str, Any], measure: str) -> None:
        name = line["case"]
        if "error" in line:
            self.failed[name] = f"{('old', 'new')[which]}: {line['error'].splitlines()[0]}"
        else:
            self.of[name][which].append(line[measure])

    def join(self, other: Times) -> None:
        self.of.update(other.of)
        self.failed.update(other.failed)


def _one_process(
    tool: pathlib.Path, cases: Sequence[Case], seconds: float, threads: int, core: int | None
) -> list[dict[str, Any]]:
    """A line for each case. Where the process dies, its case has that as its error, and another process goes on."""
    lines: list[dict[str, Any]] = []
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        file = pathlib.Path(temporary) / "cases"
        while len(lines) < len(cases):
            file.write_text("".join(map(str, cases[len(lines) :])))
            done = subprocess.run(
                [*pinned, str(tool), "corpus", "time", str(file), "--seconds", str(seconds), "--threads", str(threads)],
                capture_output=True, text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), **_KEPT_MEMORY},
            )  # fmt: skip
            lines += map(json.loads, done.stdout.splitlines())
            if len(lines) < len(cases):
                if done.returncode == 0:
                    raise RuntimeError(f"{tool} timed too few cases: {done.stderr.strip()}")
                why = f"exit status {done.returncode} {done.stderr.strip()}"
                lines.append({"case": cases[len(lines)].name, "error": why})
    return lines


def one_processor_a_core(
    allowed: Iterable[int], system: pathlib.Path = pathlib.Path("/sys/devices/system/cpu")
) -> list[int]:
    """The first logical processor of each core, of those allowed. What runs on another one of a core
    makes calls up to half as fast."""
    seen: set[str] = set()
    result = []
    for number in sorted(allowed):
        file = system / f"cpu{number}" / "topology" / "thread_siblings_list"
        core = file.read_text().strip() if file.exists() else str(number)
        if core not in seen:
            seen.add(core)
            result.append(number)
    return result


def measure_turns(
    tools: tuple[pathlib.Path, pathlib.Path], cases: Sequence[Case], turns: int, seconds: float,
    threads: int, measure: str, core: int | None = None,
) -> Times:  # fmt: skip
    """`core`: the processor that both builds run on; None: any."""
    times = Times([c.name for c in cases])
    for turn in range(turns):
        left = [c for c in cases if c.name not in times.failed]
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            for line in _one_process(tools[which], left, seconds, threads, core):
                times.add(which, line, measure)
        print(f"turn {turn + 1} of {turns}", file=sys.stderr)
    return times


def run(
    old: pathlib.Path, new: pathlib.Path, cases: Sequence[Case], turns: int, seconds: float,
    threads: int, measure: str = "microseconds", jobs: int = 1, say: Callable[[str], None] = print,
) -> int:  # fmt: skip
    """Prints a table. The exit status: 1 if a case may be slower, or has no time. `measure`: of the
    calls of a turn, "microseconds" is the median time, "least" the least processor time, which other
    programs on the machine disturb less. `jobs` cases are timed at once, each on a core of its own.
    """
    cores = one_processor_a_core(os.sched_getaffinity(0))
    if threads > 1 and jobs == 1:
        times = measure_turns((old, new), cases, turns, seconds, threads, measure)
    else:
        times = Times([])
        if threads > 1 or jobs > len(cores):
            raise ValueError(f"{jobs} jobs need --threads 1 and as many cores; there are {len(cores)}")
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for part in pool.map(lambda j: measure_turns((old, new), cases[j::jobs], turns, seconds, threads, measure,
                                                         cores[j]), range(jobs)):  # fmt: skip
                times.join(part)
    return report([c.name for c in cases], times, say)


def report(names: Sequence[str], times: Times, say: Callable[[str], None]) -> int:
    rows, slower, ratios = [], [], []
    for name in names:
        if name in times.failed:
            continue
        a, b = times.of[name]
        low, ratio, high = interval(a, b)
        ratios.append(ratio)
        if low < SLOWER:
            slower.append(name)
        rows.append([name, f"{statistics.median(a):.1f}", f"{statistics.median(b):.1f}", f"{ratio:.3f}",
                     f"{low:.3f} to {high:.3f}", "may be slower" if low < SLOWER else ""])  # fmt: skip
    say(table(("case", "old us", "new us", "old/new", "95%", ""), rows))
    for name, why in times.failed.items():
        say(f"no time: {name}: {why}")
    if ratios:
        say(f"\nold/new: geometric mean {statistics.geometric_mean(ratios):.3f}, median {statistics.median(ratios):.3f}")
    say(f"{len(slower)} of {len(rows)} cases may be slower: the interval begins below {SLOWER}")
    return 1 if slower or times.failed else 0
