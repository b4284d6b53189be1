"""Tries families of transformers and timm as a new user would: eager against Inkle.

    python bench/families.py --seed 1 --count 30            inference
    python bench/families.py --seed 1 --count 30 --train    gradients of a scalar of all outputs
    python bench/families.py --only bert,timm/test_vit --time --json out.json
    python bench/families.py --device cuda --dtype bf16 --graphs --shard 0/14

For each family: values by the accuracy rule of bench/common.py, dtypes, strides, number of graphs
and graph breaks, and for every op of the graphs whether it was native, decomposed, a library call or
eager. Families run in a worker process that is restarted after a crash or a timeout. In bf16 a model
is of that type in inference and runs under autocast in training. With recorded graphs the last of four
calls counts, two of which are replays. In training, a family whose misses an eager model with weights
disturbed in their last bit has, too, is "near".
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import dataclasses
import json
import os
import sys
import time
import traceback
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A model that cannot run in f64 is compared with eager itself, to this part of the scale.
FLOOR_ALONE = 2e-6
BF16_FLOOR, BF16_FLOOR_ALONE = 1e-3, 3e-2

# Of a recorded graph: the usual call, the recording, and replays.
GRAPH_CALLS = 4

# --- Worker: one family -----------------------------------------------------------------------------


def _placed(built: Any, arguments: argparse.Namespace) -> Any:
    """The family on the device, its model of the type of inference."""
    import torch
    from torch.utils import _pytree as pytree

    dtype = torch.bfloat16 if arguments.dtype == "bf16" and not arguments.train else None

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(arguments.device, dtype if value.is_floating_point() else None)

    def call(model: Any, inputs: Any) -> Any:
        double = torch.get_default_dtype() == torch.float64
        is_cast = arguments.train and arguments.dtype == "bf16" and not double
        cast = torch.autocast(arguments.device, torch.bfloat16)
        with cast if is_cast else contextlib.nullcontext():
            return built.call(model, inputs)

    model = built.model.to(arguments.device, dtype)
    floors = (BF16_FLOOR, BF16_FLOOR_ALONE) if arguments.dtype == "bf16" else (None, FLOOR_ALONE)
    return Placed(model, lambda seed: pytree.tree_map(place, built.inputs(seed)), call, *floors,
                  _poison if arguments.poison else lambda: None)  # fmt: skip


def _poison() -> None:
    """Makes NaN of the free memory that torch's allocator of the GPU has, of all sizes."""
    import torch

    torch.cuda.empty_cache()
    sizes = [1 << 9] * 4096 + [1 << 16] * 512 + [1 << 20] * 256 + [1 << 27] * 8  # elements
    made = [torch.empty(n, dtype=torch.bfloat16, device="cuda") for n in sizes]
    torch._foreach_add_(made, float("nan"))
    del made


@dataclasses.dataclass
class Placed:
    """zoo.Built on a device, how to call one of its models, what errors count from (of f32's or
    bf16's type where a f64 model tells eager's own error, and where there is none), and what is done
    before Inkle's turn."""

    model: Any
    inputs: Any
    call: Any
    floor: float | None
    floor_alone: float
    before: Any


def _run_inference(built: Any, compiled: Any, double: Any, calls: int) -> dict[str, Any]:
    import common
    import torch

    pooled: Any = None
    with torch.no_grad():
        for seed in range(5):
            inputs = built.inputs(seed)
            torch.manual_seed(seed)
            eager = built.call(built.model, inputs)
            for _ in range(calls):
                torch.manual_seed(seed)
                built.before()
                got = built.call(compiled, inputs)
            reference = _reference(built, double, inputs, seed, eager)
            without = reference is None
            one = common.compare(got, eager, common.to_double(eager) if without else reference,
                                 built.floor_alone if without else built.floor)  # fmt: skip
            pooled = one if pooled is None else _pool(pooled, one)
            # Few numbers make a noisy ratio: a first miss is judged over five inputs together.
            if pooled.ok or pooled.bad:
                break
    return {"ok": pooled.ok, "accuracy": str(pooled) + (" (no f64)" if without else "")}


def _pool(a: Any, b: Any) -> Any:
    if a.bad or b.bad:
        return a if a.bad else b
    a.floor = max(a.floor, b.floor)
    a.count += b.count
    a.squares += b.squares
    a.eager_squares += b.eager_squares
    a.scale = max(a.scale, b.scale)
    a.largest = max(a.largest, b.largest)
    a.eager_largest = max(a.eager_largest, b.eager_largest)
    return a


def _reference(built: Any, double: Any, inputs: Any, seed: int, eager: Any) -> Any:
    """The f64 model's result; None where the model insists on its dtype."""
    import common
    import torch

    torch.manual_seed(seed)
    try:
        torch.set_default_dtype(torch.float64)
        reference = built.call(double, common.to_double(inputs))
    except Exception:  # noqa: BLE001: whatever the model's own code objects to
        return None
    finally:
        torch.set_default_dtype(torch.float32)
    shapes = [[t.shape for t in common.tensors_of(v)] for v in (reference, eager)]
    return reference if shapes[0] == shapes[1] else None


def _step(built: Any, model: Any, owner: Any, inputs: Any) -> tuple[list[Any], dict[str, Any]]:
    """One forward and backward; outputs and the gradients of the parameters of ``owner``."""
    import common
    import torch

    owner.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    outputs = [t for t in common.tensors_of(built.call(model, inputs)) if t.requires_grad]
    generator = torch.Generator().manual_seed(7)
    loss = sum(
        (t * torch.randn(t.shape, generator=generator).to(t)).sum() / t.numel() ** 0.5
        for t in outputs
    )
    loss.backward()
    gradients = {n: p.grad for n, p in owner.named_parameters() if p.grad is not None}
    return [t.detach() for t in outputs], gradients


def _run_training(built: Any, compile_model: Any, calls: int) -> dict[str, Any]:
    import common

    built.model.train()
    pooled = _pooled_training(built, compile_model, calls)
    if isinstance(pooled, str):
        return {"ok": False, "accuracy": pooled}
    worst, where = common.Accuracy(1e-7), "nothing"
    for name, one in pooled.items():
        if common.worse(worst, one) is one:
            worst, where = one, name
    misses = [f"{name}: {one}" for name, one in pooled.items() if not one.ok]
    result = {"ok": worst.ok, "accuracy": f"{where}: {worst}", "misses": misses}
    if not worst.ok and not worst.bad:
        disturbed = [_pooled_training(built, _disturbing(n), calls, False) for n in range(3)]
        result["by_chance"] = _is_by_chance(pooled, disturbed)
    return result


def _pooled_training(
    built: Any, made_of: Any, calls: int, ends_early: bool = True
) -> dict[str, Any] | str:
    """Accuracy over up to five inputs of what ``made_of`` makes of a copy of the model, by name."""
    models = [copy.deepcopy(built.model), copy.deepcopy(built.model)]
    models.append(copy.deepcopy(built.model).double())
    run = made_of(models[1])
    pooled: dict[str, Any] = {}
    for seed in range(5):
        inputs = built.inputs(seed)
        for _ in range(calls):  # each moves statistics on
            made = _train_once(built, models, run, inputs)
        if isinstance(made, str):
            return made
        for name, one in made.items():
            pooled[name] = _pool(pooled[name], one) if name in pooled else one
        # Few numbers make a noisy ratio: a first miss is judged over five inputs together.
        is_done = all(one.ok for one in pooled.values()) or any(one.bad for one in pooled.values())
        if ends_early and is_done:
            break
    return pooled


def _disturbing(seed: int) -> Any:
    """Gives a model, in eager, whose weights are off by up to a half of their last bit."""
    import torch

    def disturb(model: Any) -> Any:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in model.parameters():
                if p.is_floating_point():
                    noise = torch.rand(p.shape, generator=generator).to(p) - 0.5
                    p.mul_(1 + noise * torch.finfo(p.dtype).eps)
        return model

    return disturb


def _is_by_chance(found: dict[str, Any], disturbed: list[Any]) -> bool:
    """Whether what misses the rule meets it with the errors of eager models that are disturbed in the
    last bit: where statistics are of a few numbers, layer after layer makes much of rounding."""
    if any(isinstance(d, str) for d in disturbed):
        return False
    for name, one in found.items():
        if one.ok:
            continue
        probe = copy.copy(one)
        rms = max(one.eager_rms, *(d[name].rms for d in disturbed))
        probe.eager_squares = rms * rms * one.count
        probe.eager_largest = max(one.eager_largest, *(d[name].largest for d in disturbed))
        if not probe.ok:
            return False
    return True


def _train_once(built: Any, models: list[Any], run: Any, inputs: Any) -> dict[str, Any] | str:
    """Accuracy of outputs, gradients and updated statistics by name; or what is wrong at once.

    ``models``: eager's, Inkle's, and one in f64.
    """
    import common
    import torch

    eager, eager_gradients = _step(built, models[0], models[0], inputs)
    floor = built.floor
    has_reference = True
    try:
        torch.set_default_dtype(torch.float64)
        reference, gradients = _step(built, models[2], models[2], common.to_double(inputs))
        if [n for n in gradients] != [n for n in eager_gradients]:
            raise ValueError("other gradients in f64")
    except Exception:  # noqa: BLE001: whatever the model's own code objects to
        floor, has_reference = built.floor_alone, False
        reference = common.to_double(eager)
        gradients = {n: g.double() for n, g in eager_gradients.items()}
    finally:
        torch.set_default_dtype(torch.float32)
    built.before()
    got, got_gradients = _step(built, run, models[1], inputs)
    if len(got) != len(eager):
        return f"{len(got)} outputs, {len(eager)} in eager"
    if set(got_gradients) != set(eager_gradients):
        return f"gradients only on one side: {sorted(set(got_gradients) ^ set(eager_gradients))[:5]}"
    result = {}
    for number, (g, e, r) in enumerate(zip(got, eager, reference)):
        result[f"output {number}"] = common.compare(g, e, r, floor)
    # A gradient that is zero but for rounding is judged by the scale of all gradients.
    overall = max((g.abs().max().item() for g in gradients.values() if g.numel()), default=0.0)
    for name, gradient in gradients.items():
        one = common.compare(got_gradients[name], eager_gradients[name], gradient, floor)
        one.scale = max(one.scale, overall)
        result[f"gradient {name}"] = one
    # Statistics that the step has updated.
    exact = dict(models[2].named_buffers()) if has_reference else {}
    for (name, a), (_, b) in zip(models[0].named_buffers(), models[1].named_buffers()):
        result[f"buffer {name}"] = common.compare(b, a, exact.get(name, a.double()), floor)
    return result


def _milliseconds(call: Any, budget_seconds: float = 1.0) -> float:
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < budget_seconds:
        t = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - t)
    return best * 1e3


def _time(built: Any, compiled: Any) -> dict[str, float]:
    """Eager, Inductor and Inkle in turns: the smallest of each, milliseconds."""
    import torch

    torch._dynamo.reset()
    inputs = built.inputs(0)
    systems = {
        "eager": built.model,
        "inductor": torch.compile(built.model),
        "inkle": torch.compile(built.model, backend="inkle"),
    }
    best = dict.fromkeys(systems, float("inf"))
    with torch.no_grad():
        for model in systems.values():
            built.call(model, inputs)
        for _ in range(5):
            for name, model in systems.items():
                took = _milliseconds(lambda m=model: built.call(m, inputs), 0.2)
                best[name] = min(best[name], took)
    return {f"{k}_ms": v for k, v in best.items()}


def _family(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    import counted
    import inkle
    import torch
    import zoo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    inkle.reset()
    result: dict[str, Any] = {"name": name, "ok": False}
    built = _placed(zoo.build(name), arguments)
    found = counted.Counted()
    options = {"random": "eager", "strict": arguments.strict, "graphs": arguments.graphs}
    calls = GRAPH_CALLS if arguments.graphs else 1

    def compile_model(model: Any) -> Any:
        return torch.compile(model, backend="inkle", dynamic=arguments.dynamic or None,
                             options=options)  # fmt: skip

    start = time.perf_counter()
    try:
        if arguments.train:
            result |= _run_training(built, compile_model, calls)
        else:
            double = copy.deepcopy(built.model).double()
            result |= _run_inference(built, compile_model(built.model), double, calls)
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

    import inkle  # noqa: F401: registers the backend

    transformers.logging.set_verbosity_error()
    logging.getLogger("inkle").setLevel(logging.ERROR)
    torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.allow_tf32 = False  # eager picks other algorithms for other layouts
    for line in sys.stdin:
        try:
            result = _family(line.strip(), arguments)
        except Exception as error:  # noqa: BLE001: the family itself could not be made
            result = {"name": line.strip(), "ok": False, "error": f"not built: {error}"}
        answers.write(json.dumps(result) + "\n")
        answers.flush()


# --- Parent: processes, table, summary -----------------------------------------------------------


def summary_line(r: dict[str, Any]) -> str:
    ways = r.get("ways", {})
    total = sum(ways.values())
    share = 100.0 * (total - ways.get("eager", 0)) / total if total else 0.0
    label = "ok  " if r["ok"] else "near" if r.get("by_chance") else "FAIL"
    text = f"{label} {r['name']:<38} graphs {r.get('graphs', 0):2} breaks "
    text += f"{r.get('breaks', 0):2} ops {total:4} ours {share:5.1f}%"
    if "inkle_ms" in r:
        text += f" eager {r['eager_ms']:.2f} inductor {r['inductor_ms']:.2f} inkle {r['inkle_ms']:.2f}"
        text += f" ({r['inductor_ms'] / r['inkle_ms']:.2f}x)"
    if r.get("eager"):
        text += "  eager: " + ", ".join(f"{k} {v}" for k, v in r["eager"].items())
    if r.get("fallbacks"):
        text += f"  FALLBACK x{len(r['fallbacks'])}: {r['fallbacks'][0][:160]}"
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
    ratios = [r["inductor_ms"] / r["inkle_ms"] for r in results if "inkle_ms" in r]
    if ratios:
        product = 1.0
        for ratio in ratios:
            product *= ratio ** (1.0 / len(ratios))
        lines.append(f"over Inductor: geomean {product:.2f}x, least {min(ratios):.2f}x")
    return "\n".join(lines)


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
    parser.add_argument("--time", action="store_true", help="also against TorchInductor")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds a family")
    parser.add_argument("--json", default="", help="file for all results")
    parser.add_argument("--report", default="", help="file for the causes, rewritten as they come")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--faults", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


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
    return 0 if all(r["ok"] or r.get("by_chance") for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
