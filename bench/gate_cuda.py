"""Times the CUDA kernels of two builds in turns on a GPU.

    scripts/corpus make OLD --tool OLDTOOL --targets sm_90a --groups classes     # and NEW
    python bench/gate_cuda.py prepare OLD NEW --old OLDTOOL --new NEWTOOL FOLDER  # no GPU needed
    python bench/gate_cuda.py run FOLDER                                          # torch and a GPU

`prepare` takes the kernels whose code differs, of cases at the sizes of a GPU (`--all`: of any size) without
symbolic sizes, and compiles them. `run` launches each pair on the same random buffers, the L2 cache
overwritten before each launch, and prints minima in us, their ratio, that of medians, and whether all results
are equal.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import pathlib
import re
import shutil
import statistics
import subprocess

TURNS = 14
WARM = 2
BUFFER = re.compile(r"(\w+)(?:: | = \w+ )([a-z]+\d*)\[([\d,]*)\]")
WORKSPACE = re.compile(r"\* (counters|workspace)\b")
LAUNCH = re.compile(r"launch \w+ \(([^)]*)\) over (\d+)\s*$", re.M)


def cases_of(folder: pathlib.Path) -> dict[str, dict]:
    lines = (folder / "sm_90a" / "cases.jsonl").read_text().splitlines()
    return {c["case"]: c for c in map(json.loads, lines) if c["status"] == "ok"}


def launches(folder: pathlib.Path, case: dict) -> list[dict]:
    """The case's launches; none if some are not understood."""
    plan = (folder / "sm_90a" / "text" / (case["plan"] + ".txt")).read_text()
    shapes = {m[1]: (m[2], [int(n) for n in m[3].split(",") if n]) for m in BUFFER.finditer(plan)}
    found = [([a.strip() for a in m[1].split(",")], int(m[2])) for m in LAUNCH.finditer(plan)]
    steps = [s for s in case["steps"] if s["kind"] == "kernel"]
    if len(found) != len(steps):
        return []
    return [
        {"code": s["code"], "threads": s["threads"], "arguments": arguments, "blocks": blocks,
         "buffers": {a: shapes[a] for a in arguments if a in shapes}}
        for s, (arguments, blocks) in zip(steps, found)
    ]  # fmt: skip


def outputs(text: str, arguments: list[str]) -> list[str] | None:
    """The arguments that the kernel writes; None if it takes more than pointers, a workspace and a status."""
    parameters = re.search(r" kernel\((.*?)u32\* status", text, re.S)
    if parameters is None or "struct Table" in text or "i64 n0" in text:
        return None
    names = [p.strip() for p in parameters[1].split(",") if p.strip() and not WORKSPACE.search(p)]
    if len(names) != len(arguments):
        return None
    return [a for a, p in zip(arguments, names) if not p.startswith("const")]


def prepare(a: argparse.Namespace) -> None:
    before, after = cases_of(a.before), cases_of(a.after)
    pairs = []
    for name in before.keys() & after.keys():
        if not (a.all or "-gpu" in name or "/tile/" in name or "/walk/" in name):
            continue
        old, new = launches(a.before, before[name]), launches(a.after, after[name])
        for i, (x, y) in enumerate(zip(old, new)):
            if x["code"] == y["code"] or len(x["buffers"]) != len(set(x["arguments"])):
                continue
            text = (a.before / "sm_90a" / "code" / (x["code"] + ".cu")).read_text()
            written = outputs(text, x["arguments"])
            if written is not None and len(old) == len(new):
                pairs.append({"name": f"{name} {i}", "outputs": written, "old": x, "new": y,
                              "has_workspace": WORKSPACE.search(text) is not None})  # fmt: skip
    for side, folder, tool in (("old", a.before, a.old), ("new", a.after, a.new)):
        to = a.folder / side
        to.mkdir(parents=True, exist_ok=True)
        for code in {p[side]["code"] for p in pairs}:
            shutil.copy(folder / "sm_90a" / "code" / (code + ".cu"), to)
        subprocess.run([tool, "corpus", "assemble", to], check=True, stdout=subprocess.DEVNULL)
    pairs.sort(key=lambda p: p["name"])
    (a.folder / "pairs.json").write_text(json.dumps(pairs))
    print(f"{len(pairs)} pairs of kernels")


class Gpu:
    def __init__(self, folder: pathlib.Path):
        import torch

        self.torch, self.folder, self.functions = torch, folder, {}
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        self.status = torch.zeros(64, dtype=torch.int32, device="cuda")
        self.workspace = torch.zeros(16 << 20, dtype=torch.uint8, device="cuda")  # kernels leave zeros
        self.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def check(self, result: int) -> None:
        if result != 0:
            raise RuntimeError(f"CUDA error {result}")

    def function(self, side: str, code: str) -> ctypes.c_void_p:
        if (side, code) not in self.functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            image = (self.folder / side / (code + ".cubin")).read_bytes()
            self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), image))
            self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, b"kernel"))
            self.functions[side, code] = function
        return self.functions[side, code]

    def buffer(self, dtype: str, sizes: list[int]):
        types = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
                 "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8",
                 "bool": "bool"}  # fmt: skip
        made, count = getattr(self.torch, types[dtype]), max(math.prod(sizes), 1)
        if not made.is_floating_point:
            return self.torch.zeros(count, dtype=made, device="cuda")
        return self.torch.randn(count, device="cuda").to(made)

    def time(self, pair: dict) -> tuple[dict[str, list[float]], bool]:
        torch, times, results = self.torch, {"old": [], "new": []}, {}
        buffers = {n: self.buffer(*shape) for n, shape in pair["old"]["buffers"].items()}
        start = {n: buffers[n].clone() for n in pair["outputs"]}
        pointers = [ctypes.c_void_p(buffers[a].data_ptr()) for a in pair["old"]["arguments"]]
        if pair["has_workspace"]:
            pointers.append(ctypes.c_void_p(self.workspace.data_ptr()))
        pointers.append(ctypes.c_void_p(self.status.data_ptr()))
        arguments = (ctypes.c_void_p * len(pointers))(
            *[ctypes.cast(ctypes.byref(p), ctypes.c_void_p) for p in pointers]
        )
        for turn in range(TURNS):
            for side in ("old", "new") if turn % 2 == 0 else ("new", "old"):
                how = pair[side]
                for name, value in start.items():
                    buffers[name].copy_(value)
                self.flush.zero_()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                function = self.function(side, how["code"])
                begin.record()
                self.check(self.cuda.cuLaunchKernel(
                    function, how["blocks"], 1, 1, how["threads"], 1, 1, 0, self.stream, arguments, None
                ))  # fmt: skip
                end.record()
                torch.cuda.synchronize()
                if turn >= WARM:
                    times[side].append(begin.elapsed_time(end) * 1e3)
                results.setdefault(side, [buffers[n].clone() for n in pair["outputs"]])
        if bool(self.workspace.any()) or bool(self.status.any()):
            raise RuntimeError(f"{pair['name']}: workspace or status is not 0 after the launches")
        equal = all(
            torch.equal(x.view(torch.uint8), y.view(torch.uint8))
            for x, y in zip(results["old"], results["new"])
        )
        return times, equal


def run(a: argparse.Namespace) -> None:
    pairs = json.loads((a.folder / "pairs.json").read_text())
    gpu = Gpu(a.folder)
    ratios, differ, slower = [], 0, 0
    for pair in pairs:
        times, equal = gpu.time(pair)
        old, new = min(times["old"]), min(times["new"])
        middle = statistics.median(times["old"]) / statistics.median(times["new"])
        ratios.append(old / new)
        differ += not equal
        slower += new > 1.02 * old
        print(f"{pair['name']:60s} {old:9.1f} {new:9.1f} us  min {old / new:.3f}  median {middle:.3f}"
              f"  {'equal' if equal else 'other results'}", flush=True)  # fmt: skip
    geomean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"{len(ratios)} kernels, old/new {geomean:.4f} in geomean, {slower} slower by more than 2 %, "
          f"{differ} with other results")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("prepare")
    for name in ("before", "after"):
        first.add_argument(name, type=pathlib.Path)
    for name in ("--old", "--new"):
        first.add_argument(name, type=pathlib.Path, required=True)
    first.add_argument("--all", action="store_true")
    first.set_defaults(do=prepare)
    second = commands.add_parser("run")
    second.set_defaults(do=run)
    for command in (first, second):
        command.add_argument("folder", type=pathlib.Path)
    a = parser.parse_args()
    a.do(a)


if __name__ == "__main__":
    main()
