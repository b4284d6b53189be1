"""Every entry of torch's op_db through torch.compile(backend="inkle"), against eager.

    python bench/opdb.py                               f32, forward and in place
    python bench/opdb.py --grad                        f32, gradients
    python bench/opdb.py --dtypes i64,bool,bf16,f16,f64
    python bench/opdb.py --only softmax,cat --samples 100 --verbose
    python bench/opdb.py --device cuda --workers 16    on a GPU
    python bench/opdb.py --shard 0/4 --out shard0.json
    python bench/opdb.py --out all.json --resume --seconds 100    the next ones, for 100 s
    python bench/opdb.py --merge shard*.json           the table of docs/coverage.md

A case is an entry in one dtype. Some samples of it are compiled as a whole graph, and value, dtype,
sizes, strides, the arguments afterwards and the gradients are compared with eager's. What
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
from typing import Any, Callable

DTYPES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16",
          "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8",
          "bool": "bool", "c64": "complex64"}  # fmt: skip

# Values are whatever was in memory.
UNINITIALISED = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
                 "new_empty_strided")  # fmt: skip

# From worst to best: what a case is called is the worst that one of its ops was.
WAYS = ("eager", "library", "decomposed", "native", "view")
# Results are written to the file each time so many have come.
SAVED_EVERY = 20
OUTCOMES = ("right", "wrong", "crash", "fault", "torch", "untraced", "no graph", "no sample")

# --- Worker ---------------------------------------------------------------------------------------


class Wrong(Exception):
    """A difference between compiled and eager."""


class Case:
    """One entry in one dtype; compares its samples."""

    def __init__(self, entry: Any, dtype: Any, with_grad: bool, limit: int, device: str):
        self.entry, self.dtype, self.with_grad, self.limit = entry, dtype, with_grad, limit
        self.device = device

    def samples(self) -> list[Any]:
        import torch

        torch.manual_seed(0)
        random.seed(0)
        found = self.entry.sample_inputs(self.device, self.dtype, requires_grad=self.with_grad)
        every = [s for _, s in zip(range(200), found)]
        if len(every) <= self.limit:
            return every
        # The first, the last, and some between.
        step = (len(every) - 1) / (self.limit - 1) if self.limit > 1 else 1
        return [every[round(i * step)] for i in range(self.limit)]

    def check(self, sample: Any, backend: str) -> None:
        """Raises Wrong, or what tracing or running raises."""
        self._check_call(self.entry.get_op(), sample, backend, in_place=False)
        if self.entry.inplace_variant is not None and not self.with_grad:
            if not sample.broadcasts_input:
                self._check_call(self.entry.inplace_variant, sample, backend, in_place=True)

    def _check_call(self, op: Callable[..., Any], sample: Any, backend: str, in_place: bool) -> None:
        import torch

        def run(first: Any, args: Any, kwargs: Any) -> Any:
            return op(first, *args, **kwargs)

        wanted_arguments, found_arguments = _copied(sample), _copied(sample)
        torch.manual_seed(1)
        try:
            wanted = run(*wanted_arguments)
        except (RuntimeError, TypeError, ValueError):
            if in_place:  # a dtype that the result does not fit into
                return
            raise
        torch.manual_seed(1)
        torch._dynamo.reset()
        compiled = torch.compile(run, backend=backend, fullgraph=True)
        found = compiled(*found_arguments)
        place = " in place" if in_place else ""
        is_random = self.entry.name in UNINITIALISED
        _same(found, wanted, f"result{place}", is_random, self._reference(op, sample))
        _same(found_arguments, wanted_arguments, f"argument{place} afterwards", is_random,
              self._reference(op, sample, afterwards=True))  # fmt: skip
        if _aliases(found, found_arguments) != _aliases(wanted, wanted_arguments):
            raise Wrong(f"{'in place ' if in_place else ''}results alias arguments otherwise")
        if self.with_grad:
            self._check_gradients(op, sample, (found, found_arguments), (wanted, wanted_arguments))

    def _reference(
        self, op: Callable[..., Any], sample: Any, afterwards: bool = False
    ) -> Callable[[], Any] | None:
        """The result in f64, or the arguments ``afterwards``, for floats."""
        import torch

        if not self.dtype.is_floating_point or self.dtype == torch.float64:
            return None

        def compute() -> Any:
            first, args, kwargs = _copied(sample, self.dtype)
            torch.manual_seed(1)
            result = op(first, *args, **kwargs)
            return (first, args, kwargs) if afterwards else result

        return compute

    def _check_gradients(self, op: Callable[..., Any], sample: Any, found: Any, wanted: Any) -> None:
        import torch

        processed = sample.output_process_fn_grad
        reference_arguments = _copied(sample, self.dtype)

        def reference() -> Any:
            torch.manual_seed(1)
            first, args, kwargs = reference_arguments
            return _gradients(processed(op(first, *args, **kwargs)), reference_arguments)

        a = _gradients(processed(found[0]), found[1])
        b = _gradients(processed(wanted[0]), wanted[1])
        _same(a, b, "gradient", False, reference if self.dtype != torch.float64 else None)


def _copied(sample: Any, narrow: Any = None) -> tuple[Any, Any, Any]:
    """Argument tensors of its own, with the same strides; those of dtype ``narrow`` in f64."""
    import torch
    from torch.utils import _pytree as pytree

    def copy(leaf: Any) -> Any:
        if leaf is narrow and isinstance(leaf, torch.dtype):
            return torch.float64
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = leaf.detach()
        if made.layout == torch.strided and made.numel() > 0:
            base = torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype,
                                       device=leaf.device)  # fmt: skip
            overlaps = any(s == 0 and n > 1 for s, n in zip(leaf.stride(), leaf.size()))
            made = made.clone() if overlaps else base.copy_(made)
        else:
            made = made.clone()
        if narrow is not None and made.dtype == narrow:
            made = made.double()
        if leaf.requires_grad:
            made.requires_grad_()
        return made

    return pytree.tree_map(copy, (sample.input, sample.args, sample.kwargs))


def _leaves(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [t for t in pytree.tree_leaves(value) if isinstance(t, (torch.Tensor, int, float))]


def _aliases(results: Any, arguments: Any) -> list[tuple[int, int]]:
    """Which results share storage with which arguments."""
    import torch

    def storage(t: Any) -> int:
        plain = isinstance(t, torch.Tensor) and t.layout == torch.strided and t.numel() > 0
        return t.untyped_storage().data_ptr() if plain else 0

    a, b = [storage(t) for t in _leaves(results)], [storage(t) for t in _leaves(arguments)]
    return [(i, j) for i, x in enumerate(a) for j, y in enumerate(b) if x == y != 0]


def _gradients(outputs: Any, arguments: Any) -> list[Any]:
    import torch

    outputs = [t for t in _leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in _leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not inputs:
        return []
    generator = torch.Generator().manual_seed(7)
    seeds = []
    for t in outputs:
        kind = torch.complex64 if t.is_complex() else torch.float32
        seeds.append(torch.randn(t.shape, generator=generator, dtype=kind).to(t.device, t.dtype))
    made = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    return [t.new_zeros(()) if g is None else g for g, t in zip(made, inputs)]


def _same(found: Any, wanted: Any, what: str, layout_only: bool, reference: Any) -> None:
    import common
    import torch

    a, b = _leaves(found), _leaves(wanted)
    if len(a) != len(b):
        raise Wrong(f"{what}: {len(a)} values, {len(b)} in eager")
    exact = None
    for i, (x, y) in enumerate(zip(a, b)):
        name = f"{what} {i}"
        if isinstance(x, torch.Tensor) != isinstance(y, torch.Tensor):
            raise Wrong(f"{name}: {type(x).__name__}, {type(y).__name__} in eager")
        if not isinstance(x, torch.Tensor):
            if x != y and x == x:
                raise Wrong(f"{name}: {x}, {y} in eager")
            continue
        if y.layout == torch.strided and (difference := common.layout_difference(x, y)):
            raise Wrong(f"{name}: {difference}")
        if layout_only:
            continue
        x, y = x.detach(), y.detach()
        try:
            torch.testing.assert_close(x, y, equal_nan=True)
        except AssertionError as error:
            message = " ".join(str(error).split())[:200]
        else:
            continue
        # Not within torch's own tolerance: then by the error against f64.
        if reference is None or not y.is_floating_point() or y.layout != torch.strided:
            raise Wrong(f"{name}: {message}")
        if exact is None:
            exact = _exact(reference)
        if i >= len(exact) or exact[i].shape != y.shape:
            raise Wrong(f"{name}: {message}")
        judged = common.Accuracy(common.FLOORS[y.dtype])
        judged.add(x, y, exact[i])
        if not judged.ok:
            raise Wrong(f"{name}: {judged}")


def _exact(reference: Callable[[], Any]) -> list[Any]:
    import torch

    try:
        return [t.detach() if hasattr(t, "detach") else torch.tensor(t) for t in _leaves(reference())]
    except Exception:  # noqa: BLE001: an op that has no f64
        return []


def _message(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:300]


def run_case(case: Case) -> dict[str, Any]:
    """What becomes of one case: an outcome, a message, and how its ops ran."""
    import counted
    import inkle
    import torch

    result: dict[str, Any] = {"outcome": "no sample", "message": "", "graphs": 0}
    found = counted.Counted()
    try:
        samples = case.samples()
        for number, sample in enumerate(samples):
            inkle.reset()
            outcome, message = _outcome(case, sample)
            reports = inkle.reports()
            result["graphs"] += len(reports)
            if outcome == "right" and any(r.fault for r in reports):
                outcome, message = "fault", next(r.fault for r in reports if r.fault)
            worse = OUTCOMES.index(outcome) if result["outcome"] != "no sample" else -1
            order = ("wrong", "fault", "torch", "untraced", "right", "no sample")
            if worse == -1 or order.index(outcome) < order.index(result["outcome"]):
                result["outcome"] = outcome
                result["message"] = f"sample {number}: {message}" if message else ""
    finally:
        found.remove()
        torch._dynamo.reset()
    ways = found.ways
    result["way"] = next((w for w in WAYS if ways.get(w)), "view")
    result["eager"] = sorted(found.in_eager)
    result["why"] = {k: v for k, v in found.why.items()}
    result["fallbacks"] = sorted(set(found.fallbacks))
    if result["outcome"] == "right" and result["graphs"] == 0:
        result["outcome"] = "no graph"
    return result


def _outcome(case: Case, sample: Any) -> tuple[str, str]:
    try:
        case.check(sample, "inkle")
        return "right", ""
    except Exception as error:  # noqa: BLE001: judged below
        mine = error
    try:
        case.check(sample, "aot_eager")
    except Exception as error:  # noqa: BLE001: torch itself does not do it
        kind = "torch" if isinstance(error, Wrong) else "untraced"
        return kind, _message(error)
    return ("wrong" if isinstance(mine, Wrong) else "fault"), _message(mine)


def worker(arguments: argparse.Namespace) -> None:
    """Reads "number dtype grad" from standard input, writes one JSON line each."""
    import faulthandler

    if arguments.faults:
        faulthandler.enable(open(arguments.faults, "w"), all_threads=False)  # noqa: SIM115
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    import inkle  # noqa: F401: registers the backend

    logging.getLogger("inkle").setLevel(logging.ERROR)
    for name in ("torch._dynamo", "torch._functorch"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    torch.set_num_threads(arguments.threads)
    entries = every_entry()
    for line in sys.stdin:
        number, dtype, mode = line.split()
        case = Case(entries[int(number)], getattr(torch, DTYPES[dtype]), mode == "grad",
                    arguments.samples, arguments.device)  # fmt: skip
        try:
            result = run_case(case)
        except Exception as error:  # noqa: BLE001: its samples cannot be made
            result = {"outcome": "no sample", "message": _message(error)}
        answers.write(json.dumps(result) + "\n")
        answers.flush()


def every_entry() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


# --- Parent ---------------------------------------------------------------------------------------


def entry_name(entry: Any) -> str:
    return entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")


def cases_of(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """(line for a worker, name) of what was asked for."""
    import torch

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
            if answer["outcome"] in ("wrong", "crash", "fault"):
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
    bad = [r for r in results if r["outcome"] in ("wrong", "crash", "fault")]
    if arguments.merge or arguments.resume:
        for r in bad:
            print(f"{r['outcome']:6} {r['name']:<50} {r['message']}")
    print(f"\n{summary(results)}\n\nleft to eager:\n{in_eager(results)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
