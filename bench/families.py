"""Tries families of transformers and timm as a new user would: eager against Inkle.

    python bench/families.py --seed 1 --count 30            inference
    python bench/families.py --seed 1 --count 30 --train    gradients of a scalar of all outputs
    python bench/families.py --only bert,timm/test_vit --time --json out.json
    python bench/families.py --device cuda --dtype bf16 --graphs --shard 0/14

For each family: values by the accuracy rule of bench/common.py, dtypes, strides, number of graphs
and graph breaks, and for every op of the graphs whether it was native, decomposed, a library call or
eager. Families run in a worker process that is restarted after a crash or a timeout. In bf16 a model
is of that type in inference and runs under autocast in training. The second call counts, with recorded
graphs the fourth, which is a replay. In training, a family whose misses an eager model with weights
disturbed in their last bit has, too, is "near": it fails the run unless near.txt lists it.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import math
import os
import sys
import time
import traceback
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Families with equal graphs are each compiled, so that their ops are counted.
os.environ.setdefault("INKLE_CACHE_DIR", "")

# --- Worker: one family -----------------------------------------------------------------------------


def _milliseconds(call: Any, budget_seconds: float = 1.0) -> float:
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < budget_seconds:
        t = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - t)
    return best * 1e3


def _time(built: Any, compiled: Any) -> dict[str, float]:
    """Eager, Inductor's modes and Inkle in turns: the smallest of each, milliseconds."""
    import common
    import torch

    torch._dynamo.reset()
    inputs = built.inputs(0)
    modes = {name: torch.compile(built.model, options=dict(options) or None)
             for name, options in common.INDUCTORS.items()}  # fmt: skip
    systems = {"eager": built.model, **modes, "inkle": torch.compile(built.model, backend="inkle")}
    best = dict.fromkeys(systems, float("inf"))
    with torch.no_grad():
        for model in systems.values():
            built.call(model, inputs)
        for _ in range(5):
            for name, model in systems.items():
                took = _milliseconds(lambda m=model: built.call(m, inputs), 0.2)
                best[name] = min(best[name], took)
    return {f"{k}_ms": v for k, v in best.items()}


def _peaks(built: Any, compiled: Any) -> dict[str, int]:
    """Bytes of the GPU that a warm call in inference takes beyond what is held before, its results included."""
    import torch

    inputs = built.inputs(0)
    found = {}
    with torch.no_grad():
        for system, model in (("eager", built.model), ("inkle", compiled)):
            for _ in range(2):
                before = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()
                result = built.call(model, inputs)
                torch.cuda.synchronize()
                found[system] = torch.cuda.max_memory_allocated() - before
                del result
    return found


def _family(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    import counted
    import inkle
    import judging
    import torch
    import zoo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    inkle.reset()
    result: dict[str, Any] = {"name": name, "ok": False}
    built = judging.placed(zoo.build(name), arguments)
    found = counted.Counted()
    options = {"random": "eager", "strict": arguments.strict, "graphs": arguments.graphs}
    calls = judging.GRAPH_CALLS if arguments.graphs else judging.CALLS

    def compile_model(model: Any) -> Any:
        return torch.compile(model, backend="inkle", dynamic=arguments.dynamic or None,
                             options=options)  # fmt: skip

    start = time.perf_counter()
    try:
        if arguments.train:
            result |= judging.run_training(built, compile_model, calls)
        else:
            double = copy.deepcopy(built.model).double()
            compiled = compile_model(built.model)
            result |= judging.run_inference(built, compiled, double, calls)
            if arguments.dynamic and result["ok"]:
                result |= judging.run_other_batch(built, compiled, double)
            if arguments.peak:
                result["peak"] = _peaks(built, compiled)
        result["seconds"] = time.perf_counter() - start
        if arguments.time and not arguments.train:
            result |= _time(built, None)
    except Exception as error:  # noqa: BLE001: reported, the next family runs
        frames = traceback.extract_tb(error.__traceback__)
        place = next((f for f in reversed(frames) if "inkle" in f.filename), frames[-1])
        result["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        result["place"] = f"{os.path.basename(place.filename)}:{place.lineno}"
    finally:
        found.remove()
    result["graphs"] = len(inkle.reports())
    result["breaks"] = sum(counters["graph_break"].values())
    result["ways"] = dict(found.ways)
    result["eager"] = dict(found.in_eager)
    result["why"] = found.why
    result["fallbacks"] = found.fallbacks
    result["inkle_seconds"] = found.inkle_seconds
    result["kernels"] = sum(r.kernels for r in inkle.reports())
    recorded = [r.callable.graphs for r in inkle.reports() if r.callable is not None]
    result["recorded"] = [list(g) for g in recorded if g is not None]
    return result


def worker(arguments: argparse.Namespace) -> None:
    """Reads names of families from standard input, writes one JSON line each."""
    import faulthandler
    import logging
    import warnings

    if arguments.faults:
        faulthandler.enable(open(arguments.faults, "w"), all_threads=False)  # noqa: SIM115
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    import transformers
    from left_to_eager import left_to_eager

    import inkle  # noqa: F401: registers the backend

    transformers.logging.set_verbosity_error()
    logging.getLogger("inkle").setLevel(logging.ERROR)
    torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.allow_tf32 = False  # eager picks other algorithms for other layouts
    for line in sys.stdin:
        try:
            with left_to_eager([part for part in arguments.eager.split(",") if part]):
                result = _family(line.strip(), arguments)
        except Exception as error:  # noqa: BLE001: the family itself could not be made
            result = {"name": line.strip(), "ok": False, "error": f"not built: {error}"}
        answers.write(json.dumps(result) + "\n")
        answers.flush()


# --- Parent: processes, table, summary -----------------------------------------------------------


def _over_inductor(r: dict[str, Any]) -> float:
    """Of Inductor's best mode."""
    import common

    return min(r[f"{mode}_ms"] for mode in common.INDUCTORS) / r["inkle_ms"]


def summary_line(r: dict[str, Any]) -> str:
    ways = r.get("ways", {})
    total = sum(ways.values())
    share = 100.0 * (total - ways.get("eager", 0)) / total if total else 0.0
    label = "ok  " if r["ok"] else "near" if r.get("by_chance") else "FAIL"
    text = f"{label} {r['name']:<38} graphs {r.get('graphs', 0):2} breaks "
    text += f"{r.get('breaks', 0):2} ops {total:4} ours {share:5.1f}%"
    if "inkle_ms" in r:
        timed = {name[:-3]: ms for name, ms in r.items() if name.endswith("_ms")}
        text += "".join(f" {name} {ms:.2f}" for name, ms in timed.items())
        text += f" ({_over_inductor(r):.2f}x)"
    if r.get("eager"):
        text += "  eager: " + ", ".join(f"{k} {v}" for k, v in r["eager"].items())
    if r.get("fallbacks"):
        text += f"  FALLBACK x{len(r['fallbacks'])}: {r['fallbacks'][0][:160]}"
    if r.get("new_graphs"):
        text += f" COMPILED {r['new_graphs']} graphs for another batch"
    if r.get("recorded"):
        text += f" recorded {sum(g[0] for g in r['recorded'])} replayed {sum(g[1] for g in r['recorded'])}"
        if reasons := sorted({g[2] for g in r["recorded"] if g[2]}):
            text += f" NOT: {'; '.join(reasons)[:160]}"
    if not r["ok"]:
        text += "  " + (r.get("error") or r.get("accuracy") or "")[:240]
    return text


def grouped(results: list[dict[str, Any]]) -> str:
    """Failures, whole-graph fallbacks and ops in eager, by cause, most frequent first."""
    causes: dict[str, set[str]] = collections.defaultdict(set)
    for r in results:
        for reason in r.get("fallbacks", []):
            causes["fallback: " + reason[:300]].add(r["name"])
        for op in r.get("eager", {}):
            causes[f"op in eager: {op}: {r['why'].get(op, '')}"[:300]].add(r["name"])
        if not r["ok"]:
            text = r.get("error")
            causes["error: " + text if text else "wrong: " + r["name"] + ": " +
                   r.get("accuracy", "")].add(r["name"])  # fmt: skip
    lines = []
    for cause, who in sorted(causes.items(), key=lambda c: (-len(c[1]), c[0])):
        lines.append(f"{len(who):4}  {cause}\n        {' '.join(sorted(who)[:12])}")
    return "\n".join(lines)


def totals(results: list[dict[str, Any]]) -> str:
    ways: collections.Counter[str] = collections.Counter()
    for r in results:
        ways.update(r.get("ways", {}))
    total = max(sum(ways.values()), 1)
    near = sum(r.get("by_chance", False) for r in results)
    lines = [f"{sum(r['ok'] for r in results)} of {len(results)} families right, {near} more but for what "
             "eager makes of a last bit; non-view ops: " +
             ", ".join(f"{k} {v} ({100 * v / total:.1f}%)" for k, v in ways.most_common())]  # fmt: skip
    ratios = [_over_inductor(r) for r in results if "inkle_ms" in r]
    if ratios:
        product = 1.0
        for ratio in ratios:
            product *= ratio ** (1.0 / len(ratios))
        lines.append(f"over Inductor's best mode: geomean {product:.2f}x, least {min(ratios):.2f}x")
    peaks = {r["name"]: r["peak"] for r in results if "peak" in r}
    if peaks:
        above = {n: p for n, p in peaks.items() if p["inkle"] > p["eager"]}
        logs = [math.log(max(p["inkle"], 1) / max(p["eager"], 1)) for p in peaks.values()]
        lines.append(f"peak memory over eager's, of {len(peaks)}: geomean {math.exp(sum(logs) / len(logs)):.3f}, "
                     f"{len(above)} above" + "".join(f"\n    {n}: {p['eager']} -> {p['inkle']}" for n, p in above.items()))  # fmt: skip
    return "\n".join(lines)


def setting_of(arguments: argparse.Namespace) -> str:
    """As near.txt names it."""
    mode = "train" if arguments.train else "inference"
    return f"{arguments.device} {arguments.dtype} {mode}"


def failures(results: list[dict[str, Any]], setting: str) -> list[str]:
    """Names of what is not right, but for what near.txt lets be near."""
    import near

    return [r["name"] for r in results
            if not r["ok"] and not (r.get("by_chance") and near.reason("families", setting, r["name"]))]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="families to pick; 0: all")
    parser.add_argument("--only", default="", help="names or parts of names, with commas")
    parser.add_argument("--library", choices=("transformers", "timm"), help="only these")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--graphs", action="store_true", help="as mode reduce-overhead does")
    parser.add_argument("--poison", action="store_true",
                        help="on a GPU, free memory is NaN before Inkle's turn")  # fmt: skip
    parser.add_argument("--shard", default="0/1", help="K/N: every Nth family from the Kth on")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--strict", action="store_true", help="no fallback to eager")
    parser.add_argument("--eager", default="", help="parts of ops' names, with commas, that eager runs")
    parser.add_argument("--time", action="store_true", help="also against TorchInductor's modes")
    parser.add_argument("--peak", action="store_true", help="also peak memory of a call on a GPU, beside eager's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds a family")
    parser.add_argument("--json", default="", help="file for all results")
    parser.add_argument("--report", default="", help="file for the causes, rewritten as they come")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--faults", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak and (arguments.device != "cuda" or arguments.train):
        parser.error("--peak is of inference on a GPU: it needs --device cuda, and not --train")
    return arguments


def main() -> int:
    arguments = parse()
    if arguments.worker:
        worker(arguments)
        return 0
    import common
    import zoo
    from workers import Workers

    chosen = zoo.pick(arguments.seed, arguments.count) if arguments.count else zoo.names()
    if arguments.only:
        parts = arguments.only.split(",")
        exact = {p for p in parts if p in zoo.names()}
        chosen = [n for n in zoo.names() if n in exact or n.split("/")[1] in parts]
    if arguments.library:
        chosen = [n for n in chosen if n.startswith(arguments.library)]
    first, step = (int(n) for n in arguments.shard.split("/"))
    chosen = chosen[first::step]
    results: list[dict[str, Any]] = []
    progress = common.Progress(len(chosen), "families")
    pool = Workers(__file__, arguments.timeout, arguments.threads, arguments.verbose)
    for name in chosen:
        progress.step(name)
        results.append(pool.run(name))
        progress.end()
        print(summary_line(results[-1]), flush=True)
        text = f"{totals(results)}\n\n{grouped(results)}\n"
        if arguments.report:
            with open(arguments.report, "w") as file:
                file.write(text)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(results, file, indent=1)
    pool.close()
    print("\n" + text if results else "no family of that name")
    failed = failures(results, setting_of(arguments))
    if failed:
        print(f"fails: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
