"""Packages of the eight models: built, checked, run, compared with torch.compile, and timed.

    python bench/packages.py                               all; prints the tables
    python bench/packages.py --write docs/benchmarks.md    and writes them into the page
    python bench/packages.py --models minilm,gpt2 --turns 3

Each model is exported twice: with sizes that vary (batch, and length of the transformers), and with
those of the call. Both packages are compared with ``torch.compile(backend="inkle")``, bit for bit; that
of image models with sizes that vary also at twice the batch, where no product has one row (docs/package.md).
Load, first result, call and memory are those of fresh processes that read the package (or the ONNX
file of the same export, for ONNX Runtime and OpenVINO) from a warm page cache, in turns.
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
from typing import Any, Callable

import common
import eight
import package_facts
import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- packages:begin -->", "<!-- packages:end -->"
SYSTEMS = {"inkle": "Inkle", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
# Longest text that a transformer has positions for.
LENGTHS = {"minilm": 512, "bert-base": 512, "gpt2": 1024, "llama": 2048}

# --- One model's files, in its own process --------------------------------------------------------


def _dynamic(name: str, case: Any) -> tuple[Any, Any]:
    """Example inputs and sizes of an export whose sizes vary."""
    import torch

    batch = torch.export.Dim("batch", min=1, max=256)
    if name not in LENGTHS:
        return tuple(x.repeat(3, 1, 1, 1) for x in case.inputs), ({0: batch},)
    sizes = {0: batch, 1: torch.export.Dim("length", min=2, max=LENGTHS[name])}
    example = tuple(x[:1, :24].repeat(3, 1).contiguous() for x in case.inputs)
    return example, tuple(sizes for _ in example)


def make_files(arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    """The exports, the inputs and what torch.compile makes of them."""
    import torch

    import inkle  # noqa: F401: registers the backend

    torch.set_num_threads(arguments.threads)
    name = arguments.models[0]
    case = eight.make(name, small=arguments.small)
    result: dict[str, Any] = {"shape": case.shape, "missing": {}}
    for i, x in enumerate(case.inputs):
        numpy.save(os.path.join(folder, f"input{i}.npy"), x.numpy())
    with torch.no_grad():
        compiled = torch.compile(case.model, backend="inkle", dynamic=False)
        numpy.save(os.path.join(folder, "expected.npy"), common.tensors_of(compiled(*case.inputs))[0].numpy())
        if name not in LENGTHS:
            doubled = [torch.cat((x, x.flip(-1))) for x in case.inputs]
            for i, x in enumerate(doubled):
                numpy.save(os.path.join(folder, f"doubled{i}.npy"), x.numpy())
            numpy.save(os.path.join(folder, "expected_doubled.npy"),
                       common.tensors_of(compiled(*doubled))[0].numpy())  # fmt: skip
        numpy.save(os.path.join(folder, "eager.npy"), common.tensors_of(case.model(*case.inputs))[0].numpy())
        torch.export.save(torch.export.export(case.model, case.inputs),
                          os.path.join(folder, "static.pt2"))  # fmt: skip
        example, sizes = _dynamic(name, case)
        program = torch.export.export(case.model, example, dynamic_shapes=sizes)
        torch.export.save(program, os.path.join(folder, "dynamic.pt2"))
        try:
            torch.onnx.export(program, (), os.path.join(folder, "model.onnx"), dynamo=True,
                              external_data=True, verbose=False)  # fmt: skip
        except Exception as error:  # noqa: BLE001: reported as missing
            result["missing"]["onnx"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return result


# --- One system's use of them, in a fresh process -------------------------------------------------


def _inkle(folder: str, feed: list[numpy.ndarray], threads: int) -> Callable[[], Any]:
    import inkle

    program = inkle.load(os.path.join(folder, "dynamic.inkle"))
    return lambda: program(*feed)


def _onnxruntime(folder: str, feed: list[numpy.ndarray], threads: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options,
                                           providers=["CPUExecutionProvider"])  # fmt: skip
    named = {i.name: x for i, x in zip(session.get_inputs(), feed)}
    return lambda: session.run(None, named)[0]


def _openvino(folder: str, feed: list[numpy.ndarray], threads: int) -> Callable[[], Any]:
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(os.path.join(folder, "model.onnx")), "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": "1"})  # fmt: skip
    request = compiled.create_infer_request()
    return lambda: request.infer(feed)[0]


LOADERS = {"inkle": _inkle, "onnxruntime": _onnxruntime, "openvino": _openvino}


def _arrays(folder: str, name: str) -> list[numpy.ndarray]:
    found: list[numpy.ndarray] = []
    while os.path.exists(path := os.path.join(folder, f"{name}{len(found)}.npy")):
        found.append(numpy.load(path))
    return found


def use(arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Times in milliseconds and private memory in MiB of one system."""
    feed = _arrays(folder, "input")
    __import__(arguments.system)  # the import is not a part of the load
    held = package_facts.private_mib()
    start = time.perf_counter()
    call = LOADERS[arguments.system](folder, feed, arguments.threads)
    load = time.perf_counter() - start
    loaded = package_facts.private_mib()
    call()
    first = time.perf_counter() - start
    result = {"load": load * 1e3, "first": first * 1e3, "load_mib": loaded - held,
              "mib": package_facts.private_mib() - held}  # fmt: skip
    times = []
    end = time.perf_counter() + arguments.seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return result | {"call": min(times)}


def compare(folder: str) -> dict[str, Any]:
    """What the two packages give beside torch.compile, as parts of the largest magnitude."""
    import inkle

    feed, doubled = _arrays(folder, "input"), _arrays(folder, "doubled")
    expected, eager = (numpy.load(os.path.join(folder, f"{x}.npy")) for x in ("expected", "eager"))
    scale = float(numpy.abs(expected).max())
    result: dict[str, Any] = {"eager": float(numpy.abs(expected - eager).max()) / scale}

    def judge(program: Any, given: list[numpy.ndarray], want: numpy.ndarray) -> dict[str, Any]:
        found = program(*given)
        found = found[0] if isinstance(found, tuple) else found
        is_same = found.shape == want.shape and found.tobytes() == want.tobytes()
        return {"same": is_same, "worst": float(numpy.abs(found - want).max() / numpy.abs(want).max())}

    for kind in ("dynamic", "static"):
        program = inkle.load(os.path.join(folder, f"{kind}.inkle"))
        result[kind] = judge(program, feed, expected)
        if doubled and kind == "dynamic":
            path = os.path.join(folder, "expected_doubled.npy")
            result["doubled"] = judge(program, doubled, numpy.load(path))
    result["target"] = program.target
    return result


# --- Parent ---------------------------------------------------------------------------------------


def child(arguments: argparse.Namespace, model: str, folder: str, *extra: str) -> dict[str, Any]:
    """What this file prints for one model; {"error": ...} where it failed."""
    command = [sys.executable, os.path.abspath(__file__), "--models", model, "--folder", folder,
               "--threads", str(arguments.threads), "--seconds", str(arguments.seconds),
               *["--small"] * arguments.small, *extra]  # fmt: skip
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads),
                       INKLE_CACHE_DIR="")  # fmt: skip
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=arguments.timeout)  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"over {arguments.timeout:.0f} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [""]
        return {"error": f"exit {done.returncode}: {lines[-1][:300]}"}
    return json.loads(done.stdout.splitlines()[-1])


def made(arguments: argparse.Namespace, model: str, folder: str,
         progress: common.Progress) -> dict[str, Any]:  # fmt: skip
    """The packages and the ONNX file in ``folder``, and how they compare."""
    progress.step(f"{model}: exports")
    result = {"name": model, **child(arguments, model, folder, "--step", "files")}
    if "error" in result:
        return result
    progress.step(f"{model}: builds")
    for kind in ("static", "dynamic"):
        package = os.path.join(folder, f"{kind}.inkle")
        start = time.perf_counter()
        done = package_facts.command("build", os.path.join(folder, f"{kind}.pt2"), "-o", package)
        result["build"] = time.perf_counter() - start
        if done.returncode == 0:
            done = package_facts.command("check", package)
        if done.returncode != 0:
            return result | {"error": f"{kind}: {done.stderr.strip()[:300]}"}
        os.remove(os.path.join(folder, f"{kind}.pt2"))
        result["bytes"] = os.path.getsize(package)
    return result | {"compared": child(arguments, model, folder, "--step", "compare")}


def measure(arguments: argparse.Namespace, model: str, folder: str,
            progress: common.Progress) -> dict[str, Any]:  # fmt: skip
    facts = os.path.join(folder, "made.json")
    if os.path.exists(facts):
        with open(facts) as file:
            result = json.load(file)
    else:
        result = made(arguments, model, folder, progress)
        with open(facts, "w") as file:
            json.dump(result, file)
    if "error" in result:
        return result
    names = list(SYSTEMS) if not result["missing"] else ["inkle"]
    result["used"] = {name: [] for name in names}
    for turn in range(arguments.turns):
        progress.step(f"{model}: turn {turn + 1}")
        for i in range(len(names)):
            system = names[(turn + i) % len(names)]
            result["used"][system].append(child(arguments, model, folder, "--step", "use",
                                                "--system", system))  # fmt: skip
    if model == "minilm" and arguments.turns > 0:
        result["second"] = package_facts.second_process(os.path.join(folder, "dynamic.inkle"))
    return result


def _median(result: dict[str, Any], system: str, key: str, digits: int = 1) -> str:
    values = [x[key] for x in result.get("used", {}).get(system, []) if key in x]
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def _verdict(compared: dict[str, Any], kind: str) -> str:
    found = compared.get(kind)
    if not found:
        return "-"
    return "the same" if found["same"] else f"{found['worst']:.1e}"


def render(results: list[dict[str, Any]]) -> str:
    rows = []
    for r in results:
        c = r.get("compared", {})
        rows.append([r["name"], r.get("shape", "-"), f"{r['bytes']:,}" if "bytes" in r else "-",
                     f"{r['build']:.1f}" if "build" in r else "-", _verdict(c, "dynamic"),
                     _verdict(c, "doubled"), _verdict(c, "static"),
                     f"{c['eager']:.1e}" if "eager" in c else "-"])  # fmt: skip
    parts = ["Results beside `torch.compile`: the same bits, or the largest difference as a part of the "
             "largest magnitude; beside it what `torch.compile` is away from eager:\n",
             common.table(["model", "input", "bytes", "build s", "sizes vary",
                           "twice the batch", "sizes fixed", "torch.compile and eager"], rows)]  # fmt: skip
    parts.append("\nFresh processes, page cache warm, median of the turns; first result is load and "
                 "first call; a call is the least of each turn; memory is private, after the first "
                 "call less before the load:\n")  # fmt: skip
    rows = [[r["name"], title, *(_median(r, s, k, d) for k, d in
             (("load", 1), ("first", 1), ("call", 2), ("load_mib", 1), ("mib", 1)))]
            for r in results for s, title in SYSTEMS.items()]  # fmt: skip
    parts.append(common.table(["model", "system", "load ms", "first result ms", "call ms",
                               "MiB after the load", "MiB after a call"], rows))  # fmt: skip
    notes = [f"- {r['name']}: {r['error']}" for r in results if "error" in r]
    for r in results:
        notes += [f"- {r['name']}: {k}: {why}" for k, why in r.get("missing", {}).items()]
        notes += [f"- {r['name']}: comparison: {r['compared']['error']}"
                  for _ in [0] if "error" in r.get("compared", {})]  # fmt: skip
        notes += sorted({f"- {r['name']}: {s}: {x['error']}"
                         for s, xs in r.get("used", {}).items() for x in xs if "error" in x})  # fmt: skip
        if "second" in r:
            notes += package_facts.second_lines(r["second"], _median(r, "inkle", "load"))
    if notes:
        parts.append("\n" + "\n".join(notes))
    return "\n".join(parts)


def header(arguments: argparse.Namespace, command: str) -> str:
    return (f"Machine: {common.machine()}; {arguments.threads} threads, f32, {arguments.turns} turns. "
            f"{common.versions(['torch', 'transformers', 'timm', 'onnxruntime', 'openvino'])}.\n\n"
            f"Command: `{command}`\n")  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(eight.names()))
    parser.add_argument("--turns", type=int, default=5, help="0: no times")
    parser.add_argument("--keep", default="", help="folder for packages and ONNX files, which are used "
                        "again where they are there")  # fmt: skip
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="of warm calls, each turn")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process")
    parser.add_argument("--small", action="store_true", help="small variants, to try the script")
    common.add_options_of_parts(parser)
    parser.add_argument("--step", default="", help=argparse.SUPPRESS)
    parser.add_argument("--system", default="inkle", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.models = [x for x in arguments.models.split(",") if x]
    wrong = [x for x in arguments.models if x not in eight.names()]
    if wrong or not arguments.models or arguments.turns < 0:
        parser.error(f"--models: {', '.join(wrong)!r}; choose from {', '.join(eight.names())}")
    return arguments


def main() -> int:
    arguments = parse()
    if arguments.step:
        folder = arguments.folder
        steps = {"files": lambda: make_files(arguments, folder), "compare": lambda: compare(folder),
                 "use": lambda: use(arguments, folder)}  # fmt: skip
        print("\n" + json.dumps(steps[arguments.step]()))
        return 0
    progress = common.Progress(len(arguments.models) * (2 + arguments.turns) + 1, "packages")
    progress.step("a call from C, targets")
    facts = "\n".join(package_facts.lines())
    results = common.Results(arguments, eight.names())
    for model in arguments.models:
        with tempfile.TemporaryDirectory(prefix="packages-") as folder:
            if arguments.keep:
                folder = os.path.join(arguments.keep, model)
                os.makedirs(folder, exist_ok=True)
            results.add(measure(arguments, model, folder, progress))
        text = "\n".join([header(arguments, results.command("packages.py")), render(results.all), "", facts])
        if arguments.write:  # what there is, should a later model end the run
            common.update_docs(arguments.write, BEGIN, END, text)
    progress.end()
    print(text)
    return 1 if any("error" in r for r in results.all) else 0


if __name__ == "__main__":
    sys.exit(main())
