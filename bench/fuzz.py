"""Random small Python functions through torch.compile(backend="inkle"), against eager.

    python bench/fuzz.py --seconds 60                       in one process
    python bench/fuzz.py --seed 100000 --count 20000 --jobs 16 --out some.jsonl
    python bench/fuzz.py --merge some.jsonl others.jsonl    one line for each, and what differs in them
    python bench/fuzz.py --seed 1234 --count 1 --show       one, and what it is
    python bench/fuzz.py --seeds 1234,7,99                  these
    python bench/fuzz.py --numerics bitwise                 eager's bits
    python bench/fuzz.py --device cuda --jobs 15            on a GPU

A function (fuzz_draw.py) has views, results that share memory, writes in place, graph breaks with writes
behind them, branches and loops on data, torch.cond, random numbers, integers, complex numbers and
gradients. It is compiled once and called twice with other ints, with ``dynamic`` a third time with other
sizes, too, and compared with eager (fuzz_judge.py). One that differs is reduced and printed. Each of ``--jobs``
processes has one thread; one that dies or hangs is replaced, and its function counted. ``--out`` has a line of
JSON a function, as they end. Exits with 1 if any differs, dies or takes too long.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import os
import sys
import threading
import time
from typing import Any, Iterator

from fuzz_ints import FIRST
from workers import Workers

# What may become of a function, and what the summary calls it. "torch": AOTAutograd alone does so, too.
_OUTCOMES = {"right": "right", "differs": "differ", "crash": "end their process", "late": "take too long",
             "torch": "AOTAutograd's own", "refused": "that eager refuses"}  # fmt: skip
_BAD = ("differs", "crash", "late")

# So many functions are compiled before Dynamo forgets them, and before a new process, so that it stays small.
_RESET_EVERY = 64
_A_PROCESS = 1000

# Functions that have begun may end so many seconds after the time limit.
_GRACE = 10.0

# --- Worker ---------------------------------------------------------------------------------------


def _worker(arguments: argparse.Namespace) -> None:
    """Reads seeds from standard input, answers each with a line of JSON; "start" with torch's version."""
    import faulthandler
    import logging
    import warnings

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if arguments.faults:
        faulthandler.enable(open(arguments.faults, "w"), all_threads=False)  # noqa: SIM115
    os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"
    import fuzz_judge
    import torch
    from hurry import hurry

    logging.getLogger("inkle").setLevel(logging.CRITICAL)
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore")
    torch._functorch.config.enable_autograd_cache = False
    torch._dynamo.config.recompile_limit = 16
    torch.set_num_threads(1)
    if arguments.device != "cpu":
        torch.set_default_device(arguments.device)
    fuzz_judge.numerics = arguments.numerics
    hurry()
    for number, line in enumerate(sys.stdin):
        made = {"torch": torch.__version__} if line == "start\n" else _judged(int(line), number, arguments)
        answers.write(json.dumps(made) + "\n")
        answers.flush()


def _judged(seed: int, number: int, arguments: argparse.Namespace) -> dict[str, Any]:
    import fuzz_draw
    import fuzz_judge
    import fuzz_reduce
    import inkle
    import torch

    # On a CPU always: a statement that a GPU cannot run would end the process.
    with torch.device("cpu") if arguments.device != "cpu" else contextlib.nullcontext():
        program = fuzz_draw.draw(seed)
    if arguments.show:
        print(program, flush=True)

    def tried(one: Any) -> tuple[str, str]:
        return fuzz_judge.tried(one, arguments.timeout)

    def differs_alone(one: Any) -> bool:
        torch._dynamo.reset()
        return tried(one)[0] == "differs"

    outcome, text = tried(program)
    made = {"outcome": outcome}
    if outcome in ("torch", *_BAD):
        made |= {"text": text, "program": str(program)}
    if outcome == "differs":
        made["reduced"] = str(fuzz_reduce.reduced(program, differs_alone, arguments.reduce))
    if number % _RESET_EVERY == 0 or outcome != "right":
        torch._dynamo.reset()
        inkle.reset()
    return made


# --- Parent ---------------------------------------------------------------------------------------


class _Run:
    """Gives seeds to processes and keeps what became of them."""

    def __init__(self, arguments: argparse.Namespace):
        self._arguments = arguments
        self._seeds = _seeds(arguments)
        self._lock = threading.Lock()
        self._begun: set[int] = set()
        self._pools: list[Workers] = []
        self._out = open(arguments.out, "w") if arguments.out else None  # noqa: SIM115
        self._is_over = False
        self._why_not = ""
        self._start = time.monotonic()
        self.results: list[dict[str, Any]] = []
        self.seconds = 0.0

    def run(self) -> None:
        arguments = self._arguments
        limit = arguments.seconds or float("inf")
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(arguments.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and self._took() < limit + _GRACE:
                thread.join(1.0)
                self._is_over = self._is_over or self._took() > limit
        with self._lock:
            self._is_over = True
            self.seconds = self._took()
            for pool in self._pools:
                pool.close()
            if self._out:
                self._out.close()
                self._out = None
        if self._why_not:
            raise SystemExit(self._why_not)

    def unfinished(self) -> list[int]:
        return sorted(self._begun)

    def _took(self) -> float:
        return time.monotonic() - self._start

    def _serve(self) -> None:
        arguments = self._arguments
        longest = 2 * arguments.timeout + arguments.reduce + 30  # drawing and one step of the reduction
        pool = Workers(__file__, longest, 1, arguments.show)
        with self._lock:
            self._pools.append(pool)
        started = pool.run("start")
        if "torch" not in started:
            self._why_not = f"a process does not start: {started['error']} (--show prints its errors)"
            self._is_over = True
            return
        for number in itertools.count(1):
            with self._lock:
                seed = None if self._is_over else next(self._seeds, None)
                if seed is None:
                    break
                self._begun.add(seed)
            began = time.monotonic()
            answer = pool.run(str(seed))
            if "outcome" not in answer:
                is_late = answer["error"].startswith("timeout")
                answer = {"outcome": "late" if is_late else "crash", "text": answer["error"]}
            self._take(seed, answer, time.monotonic() - began, started["torch"])
            if number % _A_PROCESS == 0:
                pool.close()
        pool.close()

    def _take(self, seed: int, answer: dict[str, Any], seconds: float, torch: str) -> None:
        made = {"seed": seed, **answer, "seconds": round(seconds, 2), "torch": torch}
        with self._lock:
            if self._is_over and answer["outcome"] == "crash":
                return  # ended by the time limit
            self._begun.discard(seed)
            self.results.append(made)
            if self._out:
                self._out.write(json.dumps(made) + "\n")
                self._out.flush()
            if made["outcome"] in ("torch", *_BAD):
                print(_told(made), flush=True)
            if len(self.results) % 1000 == 0:
                print(f"{len(self.results)} in {self._took():.0f} s: {_counted(self.results)}", flush=True)


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    if arguments.seeds:
        return iter([int(seed) for seed in arguments.seeds.split(",")])
    if not arguments.count:
        return itertools.count(arguments.seed)
    return iter(range(arguments.seed, arguments.seed + arguments.count))


def _told(result: dict[str, Any]) -> str:
    small = result.get("reduced", result.get("program", ""))
    return f"seed {result['seed']} {result['outcome']}: {result['text']}\n{small}"


def _counted(results: list[dict[str, Any]]) -> str:
    counts = collections.Counter(r["outcome"] for r in results)
    return ", ".join(f"{counts[outcome]} {text}" for outcome, text in _OUTCOMES.items())


def _summary(results: list[dict[str, Any]]) -> str:
    seeds = [r["seed"] for r in results]
    cores = sum(r["seconds"] for r in results)
    versions = ", ".join(sorted({r["torch"] for r in results}))
    return (f"seeds {min(seeds, default=0)} to {max(seeds, default=0)}: {len(seeds)} functions, {cores:.0f} s of "
            f"processes, torch {versions}: {_counted(results)}")  # fmt: skip


def _read(path: str) -> list[dict[str, Any]]:
    """Of a run that was killed, the last line may be a part."""
    made = []
    with open(path) as file:
        for line in file:
            if line.endswith("\n"):
                made.append(json.loads(line))
    return made


def _merge(paths: list[str]) -> list[dict[str, Any]]:
    """All results, each seed once; prints what is bad in them and a line for each file."""
    by_seed: dict[int, dict[str, Any]] = {}
    files = [_read(path) for path in paths]
    for results in files:
        by_seed |= {r["seed"]: r for r in results}
    made = [by_seed[seed] for seed in sorted(by_seed)]
    for one in made:
        if one["outcome"] in _BAD:
            print(_told(one))
    for path, results in zip(paths, files):
        print(f"{path}: {_summary(results)}")
    return made


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=FIRST, help="the first; those before 10000000 draw few ints")
    parser.add_argument("--count", type=int, default=0, help="of functions; 0: as --seconds says")
    parser.add_argument("--seeds", default="", help="these, with commas")
    parser.add_argument("--seconds", type=float, default=0.0, help="begins none after this time; 0: no limit")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a function")
    parser.add_argument("--reduce", type=float, default=120.0, help="seconds to reduce one that differs")
    parser.add_argument("--out", default="", help="file for a line of JSON a function")
    parser.add_argument("--merge", nargs="+", help="such files: prints what they have, runs nothing")
    parser.add_argument("--show", action="store_true", help="prints each function, and what processes print")
    parser.add_argument("--numerics", default="eager", help="option of Inkle; bitwise compares bits")
    parser.add_argument("--device", default="cpu", help="cpu or cuda: of all tensors")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--faults", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not (arguments.count or arguments.seconds or arguments.seeds):
        arguments.seconds = 60.0
    return arguments


def main() -> int:
    arguments = _parsed()
    if arguments.worker:
        _worker(arguments)
        return 0
    if arguments.merge:
        results = _merge(arguments.merge)
        print(_summary(results))
    else:
        run = _Run(arguments)
        run.run()
        results = run.results
        print(f"{_summary(results)}; took {run.seconds:.0f} s")
        bad = [f"{r['seed']} ({r['outcome']})" for r in results if r["outcome"] in _BAD]
        print(f"to look at: {', '.join(bad) or 'none'}")
        if run.unfinished():
            print(f"begun and not ended: {', '.join(map(str, run.unfinished()))}")
    return 1 if any(r["outcome"] in _BAD for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
