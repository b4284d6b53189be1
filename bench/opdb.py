"""Every entry of torch's op_db through torch.compile(backend="inkle"), against eager.

    python bench/opdb.py                               f32, forward and in place
    python bench/opdb.py --grad                        f32, gradients
    python bench/opdb.py --dtypes i64,bool,bf16,f16,f64
    python bench/opdb.py --only softmax,cat --samples 100 --verbose
    python bench/opdb.py --device cuda --workers 16    on a GPU
    python bench/opdb.py --numerics bitwise            eager's bits, as docs/numerics.md promises them
    python bench/opdb.py --shard 0/4 --out shard0.json
    python bench/opdb.py --out all.json --resume --seconds 100    the next ones, for 100 s
    python bench/opdb.py --merge shard*.json           the table of docs/coverage.md

A case is an entry in one dtype. Some samples of it are compiled as a whole graph, and value, dtype,
sizes, strides, the arguments afterwards and the gradients are compared with eager's (opdb_case.py). What
TorchDynamo cannot trace, or AOTAutograd alone changes (backend "aot_eager" shows it), is counted
apart. Cases run in worker processes, so that a crash is the result of one case.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import logging
import os
import queue
import random
import sys
import threading
import time
import warnings
from typing import Any

# A program that is kept no longer says which ops it left to eager.
os.environ.setdefault("INKLE_CACHE_DIR", "")

DTYPES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16",
          "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8",
          "bool": "bool", "c64": "complex64"}  # fmt: skip

# Results are written to the file each time so many have come.
SAVED_EVERY = 20

# --- Worker ----------------------------------------------------------------------------------------


def worker(arguments: argparse.Namespace) -> None:
    """Reads "number dtype grad" from standard input, writes one JSON line each."""
    import faulthandler

    if arguments.faults:
        faulthandler.enable(open(arguments.faults, "w"), all_threads=False)  # noqa: SIM115
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    from hurry import hurry
    from opdb_case import Case, every_entry, message_of, run_case

    logging.getLogger("inkle").setLevel(logging.ERROR)
    for name in ("torch._dynamo", "torch._functorch"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    torch.set_num_threads(arguments.threads)
    entries = every_entry()
    hurry()
    for line in sys.stdin:
        number, dtype, mode = line.split()
        case = Case(entries[int(number)], getattr(torch, DTYPES[dtype]), mode == "grad",
                    arguments.samples, arguments.device, arguments.numerics)  # fmt: skip
        try:
            result = run_case(case)
        except Exception as error:  # noqa: BLE001: its samples cannot be made
            result = {"outcome": "no sample", "message": message_of(error)}
        answers.write(json.dumps(result) + "\n")
        answers.flush()


# --- Parent ---------------------------------------------------------------------------------------


def entry_name(entry: Any) -> str:
    return entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")


def cases_of(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """(line for a worker, name) of what was asked for."""
    import torch
    from opdb_case import every_entry

    chosen = []
    only = [o for o in arguments.only.split(",") if o]
    for number, entry in enumerate(every_entry()):
        if only and not (entry_name(entry) in only or entry.name in only):
            continue
        for dtype in arguments.dtypes.split(","):
            kind = getattr(torch, DTYPES[dtype])
            given = entry.supported_backward_dtypes(arguments.device) if arguments.grad else \
                entry.supported_dtypes(arguments.device)  # fmt: skip
            if kind not in given or (arguments.grad and not entry.supports_autograd):
                continue
            mode = "grad" if arguments.grad else "forward"
            chosen.append((f"{number} {dtype} {mode}", f"{entry_name(entry)} {dtype} {mode}"))
    if arguments.count:
        chosen = random.Random(arguments.seed).sample(chosen, min(arguments.count, len(chosen)))
    if arguments.shard:
        part, parts = map(int, arguments.shard.split("/"))
        chosen = chosen[part::parts]
    return chosen


def summary(results: list[dict[str, Any]]) -> str:
    """A table by mode and dtype."""
    import common
    from opdb_case import OUTCOMES

    groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for r in results:
        groups[" ".join(r["name"].split()[1:][::-1])].append(r)
    head = ["what", "cases", *OUTCOMES, "|", "native or view", "decomposed", "library", "eager"]
    rows = []
    for name, group in groups.items():
        outcomes = collections.Counter(r["outcome"] for r in group)
        ways = collections.Counter(r.get("way") for r in group if r["outcome"] == "right")
        rows.append([name, len(group), *(outcomes[o] for o in OUTCOMES), "",
                     ways["native"] + ways["view"], ways["decomposed"], ways["library"],
                     ways["eager"]])  # fmt: skip
    head.remove("|")
    rows = [[c for c in row if c != ""] for row in rows]
    return common.table(head, rows)


def in_eager(results: list[dict[str, Any]]) -> str:
    """Ops left to eager and graphs left to eager, by the number of cases."""
    causes: dict[str, set[str]] = collections.defaultdict(set)
    for r in results:
        for op in r.get("eager", []):
            why = r["why"].get(op, r["why"].get(op.removesuffix(".default"), ""))
            causes[f"{op}: {why}"[:160]].add(r["name"].split()[0])
        for reason in r.get("fallbacks", []):
            causes[f"graph: {reason}"[:160]].add(r["name"].split()[0])
    lines = [f"{len(who):4} {cause}   [{' '.join(sorted(who)[:4])}]"
             for cause, who in sorted(causes.items(), key=lambda c: (-len(c[1]), c[0]))]  # fmt: skip
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtypes", default="f32")
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--numerics", default="eager", help="option of Inkle; bitwise compares bits")
    parser.add_argument("--samples", type=int, default=3, help="of each case")
    parser.add_argument("--only", default="", help="entries, with commas")
    parser.add_argument("--count", type=int, default=0, help="cases to pick by the seed; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", default="", help="i/n: each n-th case from the i-th")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a case")
    parser.add_argument("--seconds", type=float, default=0.0,
                        help="starts no case after this time; 0: all cases")  # fmt: skip
    parser.add_argument("--out", default="", help="JSON file of all results")
    parser.add_argument("--resume", action="store_true",
                        help="keeps what --out has, runs the cases that it lacks")  # fmt: skip
    parser.add_argument("--merge", nargs="+", help="JSON files: print their table, run nothing")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--faults", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_all(
    arguments: argparse.Namespace, cases: list[tuple[str, str]], known: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Results ``known`` and those of ``cases``, in this order; kept in --out as they come."""
    from workers import Workers

    waiting: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    end = time.monotonic() + arguments.seconds if arguments.seconds else float("inf")

    made: list[dict[str, Any]] = []
    lock = threading.Lock()

    def run_part(_: int) -> None:
        pool = Workers(__file__, arguments.timeout, arguments.threads, arguments.verbose)
        while time.monotonic() < end:
            try:
                line, name = waiting.get_nowait()
            except queue.Empty:
                break
            began = time.monotonic()
            answer = pool.run(line)
            if "outcome" not in answer:  # died or took too long
                answer = {"outcome": "crash", "message": answer["error"]}
            answer["name"] = name
            answer["seconds"] = round(time.monotonic() - began, 2)
            with lock:
                made.append(answer)
                if arguments.out and len(made) % SAVED_EVERY == 0:
                    write_results(arguments.out, known + made)
            if answer["outcome"] in ("near", "wrong", "crash", "fault"):
                print(f"{answer['outcome'].upper():6} {name:<50} {answer['message']}", flush=True)
        pool.close()

    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as threads:
        list(threads.map(run_part, range(arguments.workers)))
    order = {name: i for i, (_, name) in enumerate(cases)}
    return known + sorted(made, key=lambda r: order[r["name"]])


def write_results(path: str, results: list[dict[str, Any]]) -> None:
    with open(path, "w") as file:
        json.dump(results, file, indent=1)


def read_results(paths: list[str]) -> list[dict[str, Any]]:
    results = []
    for path in paths:
        with open(path) as file:
            results += json.load(file)
    return results


def failures(results: list[dict[str, Any]], device: str) -> list[dict[str, Any]]:
    """What fails the run: what is wrong, and what is near without being listed in near.txt."""
    import near

    failed = []
    for r in results:
        name, dtype, mode = r["name"].split()
        is_listed = r["outcome"] == "near" and near.reason(
            "opdb", f"{device} {mode} {dtype}", name
        )
        if r["outcome"] in ("near", "wrong", "crash", "fault") and not is_listed:
            failed.append(r)
    return failed


def main() -> int:
    arguments = parse()
    if arguments.worker:
        worker(arguments)
        return 0
    if arguments.merge:
        results = read_results(arguments.merge)
    else:
        results = []
        if arguments.resume and os.path.exists(arguments.out):
            results = read_results([arguments.out])
        known = {r["name"] for r in results}
        cases = [c for c in cases_of(arguments) if c[1] not in known]
        results = run_all(arguments, cases, results)
    if arguments.out:
        write_results(arguments.out, results)
    bad = failures(results, arguments.device)
    if arguments.merge or arguments.resume:
        for r in bad:
            print(f"{r['outcome']:6} {r['name']:<50} {r['message']}")
    print(f"\n{summary(results)}\n\nleft to eager:\n{in_eager(results)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
