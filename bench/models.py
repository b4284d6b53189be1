"""Times the eight models in every system: eager, TorchInductor as it is, with ``freezing`` and with
``max_autotune`` besides, ONNX Runtime, OpenVINO, Inkle.

    python bench/models.py                                  all, and writes docs/benchmarks.md
    python bench/models.py --models gpt2,llama --systems eager,inkle --rounds 5 --no-write

Each model has a process of its own with a time limit. In it the systems take turns, a block of
calls each, for ``--rounds`` rounds; the table gives min and median. Cold compile is measured in
fresh processes with empty caches. A system that cannot take a model is "-", with the reason below.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Sequence

import common
import eight
import gpu_models
from common import INDUCTORS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SYSTEMS = ("eager", *INDUCTORS, "onnxruntime", "openvino", "inkle")
BEGIN, END = "<!-- models:begin -->", "<!-- models:end -->"

# --- One model, in its own process ----------------------------------------------------------------


def _to_torch(system: str, case: Any) -> Callable[[], Any]:
    import torch

    model = case.model
    if system in INDUCTORS:
        model = torch.compile(model, options=dict(INDUCTORS[system]) or None)
    if system == "inkle":
        import inkle  # noqa: F401: registers the backend

        model = torch.compile(model, backend="inkle")

    def call() -> Any:
        with torch.no_grad():
            return model(*case.inputs)

    return call


def _export(case: Any, folder: str) -> str:
    """An ONNX file of the f32 model; raises what the exporter raises."""
    import torch

    path = os.path.join(folder, "model.onnx")
    with torch.no_grad():
        torch.onnx.export(case.model, case.inputs, path, dynamo=True, external_data=True,
                          verbose=False)  # fmt: skip
    return path


def _to_onnxruntime(path: str, case: Any, threads: int) -> Callable[[], Any]:
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Its threads must not spin into the next system's turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), case.inputs)}
    return lambda: torch.from_numpy(session.run(None, feed)[0])


def _to_openvino(path: str, case: Any, threads: int, precision: str) -> Callable[[], Any]:
    import openvino
    import torch

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision, "NUM_STREAMS": "1",
    })  # fmt: skip
    request = compiled.create_infer_request()
    feed = [x.numpy() for x in case.inputs]
    return lambda: torch.from_numpy(request.infer(feed)[0])


def _prepare(arguments: argparse.Namespace, case: Any, folder: str) -> tuple[dict, dict]:
    """Warm calls by system, and why the others are missing."""
    import torch

    is_bf16 = arguments.dtype == "bf16"
    typed = case.to(torch.bfloat16) if is_bf16 else case
    calls: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    path = ""
    for system in arguments.systems:
        common.say(f"  {case.name}: preparing {system}")
        try:
            if system in ("eager", "inkle") or system in INDUCTORS:
                call = _to_torch(system, typed)
            elif system == "onnxruntime" and is_bf16:
                raise RuntimeError("its CPU provider has no bf16 kernels")
            else:
                path = path or _export(case, folder)
                if system == "onnxruntime":
                    call = _to_onnxruntime(path, case, arguments.threads)
                else:
                    call = _to_openvino(path, case, arguments.threads, arguments.dtype)
            for _ in range(3):
                call()
            calls[system] = call
        except Exception as error:  # noqa: BLE001: reported as missing
            missing[system] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return calls, missing


def _time(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each call, in turns: a block of about 150 ms of every system each round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(0.02)  # spinning threads of the last system go to sleep
            call()
            start = time.perf_counter()
            while time.perf_counter() - start < 0.15:
                begin = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - begin) * 1e3)
    return times


def _accuracy(calls: dict[str, Any], case: Any, dtype: str) -> dict[str, Any]:
    """Errors against f64 of every system, over the same input."""
    import torch

    doubled = case.to(torch.float64)
    with torch.no_grad():
        reference = doubled.model(*doubled.inputs)
    del doubled
    eager = calls["eager"]() if "eager" in calls else None
    result: dict[str, Any] = {}
    for name, call in calls.items():
        found = common.Accuracy(common.FLOORS[torch.bfloat16 if dtype == "bf16" else torch.float32])
        got = common.tensors_of(call())[0]
        found.add(got, got if eager is None else common.tensors_of(eager)[0],
                  common.tensors_of(reference)[0])  # fmt: skip
        result[name] = {"rms": found.rms, "largest": found.largest, "scale": found.scale,
                        "ok": found.ok, "bad": found.bad}  # fmt: skip
    return result


# --- What the reports tell ------------------------------------------------------------------------

def _of_reports() -> dict[str, Any]:
    import inkle

    reports = inkle.reports()
    result: dict[str, Any] = {
        "graphs": len(reports),
        "kernels": sum(r.kernels for r in reports),
        "launches": sum(r.launches for r in reports),
        "library_calls": sum(r.library_calls for r in reports),
        "eager": [op for r in reports for op, _, _ in r.eager],
        "fallbacks": [r.reason for r in reports if not r.compiled],
        "seconds": sum(r.seconds for r in reports),
        "stages": {},
    }
    for report in reports:
        stages = [("frontend", report.frontend_seconds), *report.stages]
        for stage, seconds in stages:
            result["stages"][stage] = result["stages"].get(stage, 0.0) + seconds
    compiled = [r.callable for r in reports if r.compiled]
    result["bytes"] = sum(r.bytes_moved for r in reports)
    result["bound"] = sum(r.bytes_lower_bound for r in reports)
    result["memory"] = {k: sum(c.memory[k] for c in compiled)
                        for k in ("arena", "scratch", "packed_weights")}  # fmt: skip
    return result


def run_one(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(arguments.threads)
    name = arguments.models[0]
    case = eight.make(name, small=arguments.small, weights=arguments.weights)
    result: dict[str, Any] = {"name": case.name, "shape": case.shape}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        calls, missing = _prepare(arguments, case, folder)
        result["missing"] = missing
        if "inkle" in calls:
            result["inkle"] = _of_reports()
        common.say(f"  {case.name}: {arguments.rounds} rounds")
        times = _time(calls, arguments.rounds)
        result["ms"] = {k: [min(v), statistics.median(v), len(v)] for k, v in times.items()}
        result["peak"] = {k: common.peak_bytes_of(call) for k, call in calls.items()}
        result["accuracy"] = _accuracy(calls, case, arguments.dtype)
    return result


def run_cold(arguments: argparse.Namespace) -> dict[str, Any]:
    """The first call of one system in this fresh process, with an empty cache."""
    import torch

    torch.set_num_threads(arguments.threads)
    case = eight.make(arguments.models[0], small=arguments.small)
    if arguments.dtype == "bf16":
        case = case.to(torch.bfloat16)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["INKLE_CACHE_DIR"] = os.path.join(folder, "inkle")
        call = _to_torch(arguments.cold, case)
        start = time.perf_counter()
        call()
        result: dict[str, Any] = {"first_call": time.perf_counter() - start}
        if arguments.cold == "inkle":
            found = _of_reports()
            result |= {"seconds": found["seconds"], "stages": found["stages"]}
    return result


# --- Parent ---------------------------------------------------------------------------------------


def child(arguments: argparse.Namespace, model: str, extra: list[str]) -> dict[str, Any]:
    """Runs this file for one model; {"error": ...} where it crashed or took too long."""
    command = [sys.executable, os.path.abspath(__file__), "--models", model,
               "--systems", ",".join(arguments.systems), "--rounds", str(arguments.rounds),
               "--threads", str(arguments.threads), "--dtype", arguments.dtype]  # fmt: skip
    command += ["--small"] * arguments.small + ["--weights"] * arguments.weights + extra
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        answer, log = os.path.join(folder, "answer"), os.path.join(folder, "log")
        with open(log, "w") as output:
            process = subprocess.Popen([*command, "--answer", answer], env=environment,
                                       stdout=output, stderr=output)  # fmt: skip
            try:
                process.wait(timeout=arguments.timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return {"name": model, "error": f"over {arguments.timeout:.0f} s"}
        if process.returncode != 0 or not os.path.exists(answer):
            with open(log) as file:
                lines = file.read().strip().splitlines() or [""]
            return {"name": model, "error": f"exit {process.returncode}: {lines[-1][:200]}"}
        with open(answer) as file:
            return json.load(file)


def _ms(result: dict[str, Any], system: str) -> str:
    found = result.get("ms", {}).get(system)
    return f"{found[0]:.1f} / {found[1]:.1f}" if found else "-"


def _ratio(result: dict[str, Any], systems: Sequence[str]) -> str:
    """Inkle over the fastest of ``systems``."""
    ms = result.get("ms", {})
    least = min((ms[s][0] for s in systems if s in ms), default=None)
    return f"{least / ms['inkle'][0]:.2f}x" if least and "inkle" in ms else "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mib(value: float | None) -> str:
    return "-" if value is None else f"{value / 2**20:.1f}"


def render(results: list[dict[str, Any]], systems: list[str]) -> str:
    """The tables of docs/benchmarks.md."""
    heads = {"eager": "eager", "inductor": "TorchInductor", "inductor-freezing": "Inductor, freezing",
             "inductor-max-autotune": "Inductor, freezing and max_autotune",
             "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "inkle": "Inkle"}  # fmt: skip
    parts = ["Milliseconds a call, min / median:\n"]
    parts.append(common.table(
        ["model", "input", *(heads[s] for s in systems), "Inkle over Inductor (min)",
         "over the best of Inductor (min)"],
        [[r["name"], r.get("shape", "-"), *(_ms(r, s) for s in systems),
          _ratio(r, ["inductor"]), _ratio(r, list(INDUCTORS))] for r in results]))  # fmt: skip
    parts.append("\nCold compile, seconds, fresh process and empty cache:\n")
    stages = list(dict.fromkeys(s for r in results for s in r.get("cold", {}).get("stages", {})))
    rows = []
    for r in results:
        cold, other = r.get("cold", {}), r.get("cold_inductor", {})
        first, theirs, own = (cold.get("first_call"), other.get("first_call"), cold.get("seconds"))
        rows.append([r["name"], _seconds(theirs), _seconds(first), _seconds(own),
                     f"1/{theirs / first:.1f}" if first and theirs else "-",
                     *(_seconds(cold.get("stages", {}).get(s)) for s in stages)])  # fmt: skip
    parts.append(common.table(["model", "Inductor, first call", "Inkle, first call", "Inkle's own",
                               "ratio", *stages], rows))  # fmt: skip
    parts.append("\nWhat Inkle runs, and memory beyond the weights in a warm call:\n")
    rows = []
    for r in results:
        i, peak = r.get("inkle", {}), r.get("peak", {})
        moved = f"{i['bytes'] / max(i['bound'], 1):.2f}" if i.get("bound") else "-"
        rows.append([r["name"], i.get("kernels", "-"), i.get("launches", "-"),
                     i.get("library_calls", "-"), len(i.get("eager", [])) if i else "-", moved,
                     _mib(peak.get("eager")), _mib(peak.get("inductor")), _mib(peak.get("inkle")),
                     _mib(i.get("memory", {}).get("packed_weights"))])  # fmt: skip
    parts.append(common.table(["model", "distinct kernels", "launches", "library calls",
                               "ops in eager", "bytes moved / lower bound", "peak MiB, eager",
                               "Inductor", "Inkle", "packed weights MiB"], rows))  # fmt: skip
    parts.append("\nError against f64, RMS / largest, as parts of the largest magnitude:\n")
    rows = []
    for r in results:
        a = r.get("accuracy", {})

        def error(system: str, a: dict[str, Any] = a) -> str:
            x = a.get(system)
            if not x or not x["scale"]:
                return "-"
            return x["bad"] or f"{x['rms'] / x['scale']:.1e} / {x['largest'] / x['scale']:.1e}"

        verdict = {True: "met", False: "NOT met"}.get(a.get("inkle", {}).get("ok"), "-")
        rows.append([r["name"], error("eager"), error("inductor"), error("inkle"), verdict])
    parts.append(common.table(["model", "eager", "TorchInductor", "Inkle", "rule"], rows))
    notes = [f"- {r['name']}: {s}: {why}" for r in results for s, why in r.get("missing", {}).items()]
    notes += [f"- {r['name']}: {r['error']}" for r in results if "error" in r]
    for r in results:
        i = r.get("inkle", {})
        if i.get("eager"):
            notes.append(f"- {r['name']}: in eager: {', '.join(sorted(set(i['eager'])))}")
        notes += [f"- {r['name']}: a graph ran in eager: {reason}" for reason in i.get("fallbacks", [])]
        notes += [f"- {r['name']}: cold compile of {s}: {r[key]['error']}"
                  for key, s in (("cold", "Inkle"), ("cold_inductor", "TorchInductor"))
                  if "error" in r.get(key, {})]  # fmt: skip
    if notes:
        parts.append("\nMissing or noteworthy:\n\n" + "\n".join(notes))
    return "\n".join(parts)


def write_page(text: str, path: str) -> None:
    """Replaces what stands between the markers of the page."""
    with open(path) as file:
        page = file.read()
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{path} lacks the markers {BEGIN} and {END}")
    head, rest = page.split(BEGIN, 1)
    with open(path, "w") as file:
        file.write(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


def header(arguments: argparse.Namespace) -> str:
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA")
    command = (f"ONEDNN_MAX_CPU_ISA={isa} " if isa else "") + common.command("models.py", ["--json"])
    packages = common.versions(["torch", "transformers", "timm", "onnxruntime", "openvino"])
    return (f"Machine: {common.machine()}; {arguments.threads} threads, {arguments.dtype}, "
            f"{arguments.rounds} rounds in turns.\n\nVersions: {packages}.\n\n"
            f"Command: `{command}`\n")  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="")
    parser.add_argument("--systems", default="")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="cuda: the models of gpu_models.py in bf16, with systems of their own")
    parser.add_argument("--weights", action="store_true", help="MiniLM's real weights")
    parser.add_argument("--small", action="store_true", help="small variants, to try the script")
    parser.add_argument("--no-cold", action="store_true", help="leave cold compile out")
    parser.add_argument("--no-write", action="store_true", help="do not touch the page")
    parser.add_argument("--page", default=os.path.join(ROOT, "docs", "benchmarks.md"))
    parser.add_argument("--json", default="", help="file for all that was measured")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process")
    parser.add_argument("--answer", default="", help=argparse.SUPPRESS)
    parser.add_argument("--cold", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names, systems = eight.names(), SYSTEMS
    if arguments.device == "cuda":
        names, systems = gpu_models.NAMES, gpu_models.SYSTEMS
    for option, known in (("models", names), ("systems", systems)):
        chosen = [x for x in getattr(arguments, option).split(",") if x] or list(known)
        wrong = [x for x in chosen if x not in known]
        if wrong or not chosen:
            parser.error(f"--{option}: {', '.join(wrong)!r}; choose from {', '.join(known)}")
        setattr(arguments, option, chosen)
    return arguments


def main() -> int:
    arguments = parse()
    if arguments.device == "cuda":
        gpu_models.run(arguments.models, arguments.systems, not arguments.no_write)
        return 0
    if arguments.answer:
        result = run_cold(arguments) if arguments.cold else run_one(arguments)
        with open(arguments.answer, "w") as file:
            json.dump(result, file)
        return 0
    cold = [s for s in ("inkle", "inductor") if s in arguments.systems and not arguments.no_cold]
    progress = common.Progress(len(arguments.models) * (1 + len(cold)), "models")
    results = []
    for model in arguments.models:
        progress.step(model)
        result = child(arguments, model, [])
        for system in cold:
            progress.step(f"{model}: cold compile of {system}")
            key = "cold" if system == "inkle" else "cold_inductor"
            result[key] = child(arguments, model, ["--cold", system])
        results.append(result)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(results, file, indent=1)
    progress.end()
    text = header(arguments) + "\n" + render(results, arguments.systems)
    print(text)
    if not arguments.no_write:
        write_page(text, arguments.page)
    is_right = all(r.get("accuracy", {}).get("inkle", {}).get("ok", "inkle" not in arguments.systems)
                   for r in results)  # fmt: skip
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
