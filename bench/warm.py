"""Times first calls in fresh processes whose caches an earlier process has filled.

    python bench/warm.py                                   all; prints the tables
    python bench/warm.py --write docs/benchmarks.md        and writes them into the page
    python bench/warm.py --models minilm,gpt2 --turns 3

Each case is one of the eight models (evaluation, f32) or a forward and backward of resnet50. The
ways take turns in an order that rotates, each call in a process of its own: Inkle with empty caches,
Inkle with filled ones, Inkle with filled ones and without AOTAutograd's cache (its own cache of
whole graphs alone), TorchInductor with filled ones. The clock starts when modules are imported
(TorchInductor's, too) and the model and its inputs are made. With ``--forked`` the processes are
forked from one that has imported the modules and done nothing else, which saves most of the time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any

import common
import eight

BEGIN, END = "<!-- warm:begin -->", "<!-- warm:end -->"
STEP = "resnet50-step"
WAYS = ("cold", "warm", "own", "inductor")
AHEAD = ("ahead", "inductor-ahead")  # of ahead.py: without Dynamo's tracing
TITLES = {"cold": "Inkle, cold", "warm": "Inkle, warm", "inductor": "Inductor, warm",
          "own": "Inkle, warm, AOTAutograd's cache off"}  # fmt: skip
# Dynamo's own phases. What its backends do lies inside of the first, and is taken off.
FRAME, BACKEND = "_compile.compile_inner", "OutputGraph.call_user_compiler"
PHASES = ("bytecode_tracing", "build_guards")
OWN_LIMIT, RATIO_LIMIT = 50.0, 0.5

# --- One first call, in its own process -----------------------------------------------------------


def _case(name: str) -> tuple[Any, tuple[Any, ...]]:
    import torch

    if name != STEP:
        case = eight.make(name)
        return case.model, case.inputs
    model = eight.make("resnet50").model.train()
    generator = torch.Generator().manual_seed(0)
    return model, (torch.randn(2, 3, 224, 224, generator=generator),)


def _dynamo() -> dict[str, float]:
    """Milliseconds of Dynamo: as a whole, without its backend, and its phases."""
    from torch._dynamo.utils import compilation_time_metrics as metrics

    ms = {k: 1e3 * sum(v) for k, v in metrics.items()}
    found = {"all": ms.get(FRAME, 0.0) - ms.get(BACKEND, 0.0)}
    found["backend"] = ms.get(BACKEND, 0.0)
    return found | {p: ms.get(p, 0.0) for p in PHASES} | {"metrics": ms}


def imports() -> None:
    """What is no part of a first call."""
    import timm  # noqa: F401
    import torch._inductor.compile_fx  # noqa: F401
    import transformers  # noqa: F401

    import inkle  # noqa: F401


def first_call(arguments: argparse.Namespace) -> dict[str, Any]:
    imports()
    import torch

    import inkle

    torch.set_num_threads(arguments.threads)
    torch._functorch.config.enable_autograd_cache = arguments.way != "own"
    torch._dynamo.config.caching_precompile = arguments.way in AHEAD
    backend = "inductor" if arguments.way.startswith("inductor") else "inkle"
    model, inputs = _case(arguments.models[0])
    start = time.perf_counter()
    compiled = torch.compile(model, backend=backend)
    if arguments.models[0] == STEP:
        compiled(*inputs).square().mean().backward()
    else:
        with torch.no_grad():
            compiled(*inputs)
    result: dict[str, Any] = {"first": time.perf_counter() - start, "dynamo": _dynamo()}
    if backend == "inkle":
        reports = inkle.reports()
        result["own"] = 1e3 * sum(r.seconds for r in reports)
        result["stages"] = {}
        for report in reports:
            for stage, seconds in [("frontend", report.frontend_seconds), *report.stages]:
                result["stages"][stage] = result["stages"].get(stage, 0.0) + seconds * 1e3
        result["fallbacks"] = [r.reason for r in reports if not r.compiled]
    if arguments.way in AHEAD:
        torch.compiler.save_cache_artifacts()
    return result


# --- Parent ---------------------------------------------------------------------------------------


def child(arguments: argparse.Namespace, model: str, way: str, folder: str,
          is_forked: bool) -> dict[str, Any]:  # fmt: skip
    """A first call with the caches of ``folder``; {"error": ...} where it failed."""
    answer, log = os.path.join(folder, "answer.json"), os.path.join(folder, "log")
    caches = {"INKLE_CACHE_DIR": os.path.join(folder, "inkle"),
              "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "torch")}  # fmt: skip
    if os.path.exists(answer):
        os.remove(answer)
    with open(log, "w") as output:
        if is_forked:
            code = _forked(arguments, model, way, answer, caches, output.fileno())
        else:
            code = _started(arguments, model, way, answer, caches, output)
    if code != 0 or not os.path.exists(answer):
        with open(log) as file:
            lines = file.read().strip().splitlines() or [""]
        return {"error": f"exit {code}: {lines[-1]}"}
    with open(answer) as file:
        return json.load(file)


def _started(arguments: argparse.Namespace, model: str, way: str, answer: str,
             caches: dict[str, str], output: Any) -> int:  # fmt: skip
    command = [sys.executable, os.path.abspath(__file__), "--models", model, "--way", way,
               "--threads", str(arguments.threads), "--answer", answer]  # fmt: skip
    environment = dict(os.environ, **caches)
    environment.pop("TORCHINDUCTOR_COMPILE_THREADS", None)
    try:
        return subprocess.run(command, env=environment, stdout=output, stderr=output,
                              timeout=arguments.timeout).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


def _forked(arguments: argparse.Namespace, model: str, way: str, answer: str,
            caches: dict[str, str], output: int) -> int:  # fmt: skip
    imports()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            signal.alarm(int(arguments.timeout))
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ.update(caches)
            arguments.models, arguments.way = [model], way
            write_answer(arguments, answer)
            code = 0
        except BaseException:  # noqa: BLE001: nothing may return into the parent's code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def write_answer(arguments: argparse.Namespace, path: str) -> None:
    result = first_call(arguments)
    with open(path, "w") as file:
        json.dump(result, file)


def measure(arguments: argparse.Namespace, model: str, progress: common.Progress) -> dict[str, Any]:
    """All first calls of one model, by way."""
    found: dict[str, Any] = {"name": model, **{way: [] for way in WAYS}}
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        for way in WAYS[1:]:
            os.mkdir(os.path.join(folder, way))
            progress.step(f"{model}: fills {way}")
            # A forked TorchInductor has one thread to compile on, which takes minutes.
            filled = child(arguments, model, way, os.path.join(folder, way),
                           arguments.forked and way != "inductor")  # fmt: skip
            found[f"filled_{way}"] = filled
        for turn in range(arguments.turns):
            for i in range(len(WAYS)):
                way = WAYS[(turn + i) % len(WAYS)]
                progress.step(f"{model}: turn {turn + 1}, {way}")
                if way == "cold":
                    with tempfile.TemporaryDirectory(prefix="warm-") as empty:
                        one = child(arguments, model, way, empty, arguments.forked)
                else:
                    one = child(arguments, model, way, os.path.join(folder, way), arguments.forked)
                if "error" in found.get(f"filled_{way}", {}):
                    one = {"error": f"not filled: {found[f'filled_{way}']['error']}"}
                found[way].append(one)
    return found


def _values(result: dict[str, Any], way: str, key: str) -> list[float]:
    return [x[key] for x in result[way] if key in x]


def _dynamo_of(result: dict[str, Any], way: str, phase: str = "all") -> str:
    values = [x["dynamo"][phase] for x in result[way] if "dynamo" in x]
    return f"{statistics.median(values):.0f}" if values else "-"


def _rest(result: dict[str, Any], way: str) -> str:
    """What of the first call is neither Dynamo nor its backend."""
    values = [1e3 * x["first"] - x["dynamo"]["all"] - x["dynamo"]["backend"]
              for x in result[way] if "dynamo" in x]  # fmt: skip
    return f"{statistics.median(values):.0f}" if values else "-"


def _pair(values: list[float], digits: int) -> str:
    return (f"{statistics.median(values):.{digits}f} / {min(values):.{digits}f}"
            if values else "-")  # fmt: skip


def _ratio(result: dict[str, Any], way: str = "warm") -> float | None:
    """How much of TorchInductor's first call Inkle's takes: the median of the turns' ratios."""
    turns = [a["first"] / b["first"] for a, b in zip(result[way], result["inductor"])
             if "first" in a and "first" in b]  # fmt: skip
    return statistics.median(turns) if turns else None


def _dynamo_share(result: dict[str, Any]) -> float | None:
    """Dynamo's own part of Inkle's warm call in TorchInductor's: the ratio if backends took no time."""
    turns = [a["dynamo"]["all"] / 1e3 / b["first"] for a, b in zip(result["warm"], result["inductor"])
             if "dynamo" in a and "first" in b]  # fmt: skip
    return statistics.median(turns) if turns else None


def _geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _own_share(result: dict[str, Any], way: str) -> str:
    return _pair(_values(result, way, "own"), 1)


def _limits(results: list[dict[str, Any]]) -> list[str]:
    """A line for each target: what was found, and whether it is met."""
    lines = []
    for way in ("warm", "own"):
        shares = {r["name"]: statistics.median(v) for r in results if (v := _values(r, way, "own"))}
        over = [f"{name} {ms:.0f} ms" for name, ms in shares.items() if ms > OWN_LIMIT]
        verdict = "NOT met: " + ", ".join(over) if over else "met"
        lines.append(f"- Own share at most {OWN_LIMIT:.0f} ms ({TITLES[way]}): {verdict}.")
        ratios = [x for r in results if r["name"] != STEP and (x := _ratio(r, way))]
        if ratios:
            mean = _geomean(ratios)
            verdict = "met" if mean <= RATIO_LIMIT else "NOT met"
            lines.append(f"- First call at most {RATIO_LIMIT} of TorchInductor's warm one, geometric "
                         f"mean of {len(ratios)} models ({TITLES[way]}): {mean:.2f}, {verdict}.")  # fmt: skip
    if bounds := [x for r in results if r["name"] != STEP and (x := _dynamo_share(r))]:
        lines.append(f"- Dynamo's own part of Inkle's warm call, which no backend shortens, is "
                     f"{_geomean(bounds):.2f} of TorchInductor's first call in that mean.")  # fmt: skip
    return lines


def render(results: list[dict[str, Any]]) -> str:
    parts = ["First call in seconds, median / least; the ratio is the median of those of the turns:\n"]
    rows = []
    for r in results:
        ratios = [_ratio(r, way) for way in ("warm", "own")]
        rows.append([r["name"], *(_pair(_values(r, way, "first"), 2) for way in WAYS),
                     *("-" if x is None else f"{1 / x:.2f}x" for x in ratios)])  # fmt: skip
    parts.append(common.table(["case", *(TITLES[w] for w in WAYS), "Inductor over Inkle, warm",
                               "with AOTAutograd's cache off"], rows))  # fmt: skip
    parts.append("\nInkle's own share of it in ms, median / least:\n")
    rows = []
    for r in results:
        rows.append([r["name"], *(_own_share(r, w) for w in ("cold", "warm", "own"))])
    parts.append(common.table(
        ["case", "cold", "warm", "warm, AOTAutograd's cache off"], rows))  # fmt: skip
    parts.append("\nWhere a warm first call goes, ms, median. Tracing and guards are parts of Dynamo's own time. "
                 "\"backend\" is what Dynamo calls: AOTAutograd, its cache, Inkle or TorchInductor. \"rest\" is "
                 "the first run, the backward and imports on use.\n")  # fmt: skip
    rows = [[r["name"], TITLES[w], *(_dynamo_of(r, w, p) for p in ("all", *PHASES, "backend")),
             _rest(r, w)] for r in results for w in WAYS[1:]]  # fmt: skip
    parts.append(common.table(["case", "way", "Dynamo", "tracing", "guards", "backend", "rest"], rows))
    parts.append("\n" + "\n".join(_limits(results)))
    notes = {f"- {r['name']}, {TITLES[w]}: {x['error'][:200]}"
             for r in results for w in WAYS for x in r[w] if "error" in x}  # fmt: skip
    notes |= {f"- {r['name']}, {TITLES[w]}: a graph ran in eager: {reason}"
              for r in results for w in WAYS for x in r[w] for reason in x.get("fallbacks", [])}  # fmt: skip
    if notes:
        parts.append("\n" + "\n".join(sorted(notes)))
    return "\n".join(parts)


def header(arguments: argparse.Namespace, command: str) -> str:
    return (f"Machine: {common.machine()}; {arguments.threads} threads, f32, {arguments.turns} turns. "
            f"{common.versions(['torch', 'transformers', 'timm'])}.\n\nCommand: `{command}`\n")  # fmt: skip


def set_environment(arguments: argparse.Namespace) -> None:
    """Before modules are imported."""
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    if arguments.forked:
        # TorchInductor starts a pool of compilers when it is imported, whose threads a fork lacks.
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*eight.names(), STEP]
    parser.add_argument("--models", default=",".join(known))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process")
    common.add_options_of_parts(parser)
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    parser.add_argument("--forked", action="store_true", help="fork instead of starting Python")
    parser.add_argument("--way", choices=WAYS + AHEAD, default="warm", help=argparse.SUPPRESS)
    parser.add_argument("--answer", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.models = [x for x in arguments.models.split(",") if x]
    wrong = [x for x in arguments.models if x not in known]
    if wrong or not arguments.models or arguments.turns < 1:
        parser.error(f"--models: {', '.join(wrong)!r}; choose from {', '.join(known)}; --turns from 1 on")
    return arguments


def main() -> int:
    arguments = parse()
    if arguments.answer:
        write_answer(arguments, arguments.answer)
        return 0
    set_environment(arguments)
    count = len(arguments.models) * (len(WAYS) * (arguments.turns + 1) - 1)
    progress = common.Progress(count, "warm")
    results = common.Results(arguments, [*eight.names(), STEP])
    for model in arguments.models:
        results.add(measure(arguments, model, progress))
        text = header(arguments, results.command("warm.py")) + "\n" + render(results.all)
        if arguments.write:  # what there is, should a later model end the run
            common.update_docs(arguments.write, BEGIN, END, text)
    progress.end()
    print(text)
    is_missed = "NOT met" in text or any("error" in x for r in results.all for w in WAYS for x in r[w])
    return 1 if arguments.check and is_missed else 0


if __name__ == "__main__":
    sys.exit(main())
