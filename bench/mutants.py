"""Kernels made wrong in one place, on a GPU under compute-sanitizer: does it say what the interpreter
says? Runs what `INKLE_RECORD_DIR=folder test_driver --gtest_filter=CudaMutants.Record` wrote:

    python bench/mutants.py folder [--count N] [--jobs N]

The verdicts are compared by rules that stand before the run:

    the interpreter finds          the tools must find
    a race in shared memory, also  racecheck: a hazard, unless the lanes of one warp store at once,
      where a read comes before      which it does not look at
      all writes
    an access outside of a         memcheck: an error
      parameter's memory
    threads apart at a barrier     synccheck: an error
    nothing                        memcheck, racecheck and synccheck: nothing; and the results are
                                   those of the right kernel bit for bit, or not, as it computes

Findings that no tool looks for (races in global memory, reads of uninitialised shared memory, broken
promises) and kernels that wait for what never comes are not run. Of each kernel's mutants every so
many-th is taken, those with a race, an access outside or a barrier first. The right kernels run too.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import json
import os
import shutil
import subprocess
import sys

TOOLS = ("memcheck", "racecheck", "synccheck")


# --- One case, in a process of its own ------------------------------------------------------------


def replay(folder, number):
    """Launches the case once; prints a hash of what it wrote."""
    import hashlib

    from driver_api import check, cuda

    case = json.load(open(os.path.join(folder, "cases.json")))[number]
    context, device = ctypes.c_void_p(), ctypes.c_int()
    check(cuda.cuInit(0), "init")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "device")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
    check(cuda.cuCtxSetCurrent(context), "context")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    code = open(os.path.join(folder, f"image{case['image']}.cubin"), "rb").read()
    check(cuda.cuModuleLoadData(ctypes.byref(module), code), "load")
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, case["entry"].encode()), "entry")
    data = open(os.path.join(folder, "data.bin"), "rb")

    def allocate(raw):
        at = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(len(raw))), "allocate")
        check(cuda.cuMemcpyHtoD_v2(at, raw, ctypes.c_size_t(len(raw))), "copy")
        return at

    places = []
    for p in case["parameters"]:
        begin, size = p["place"]
        data.seek(begin)
        places.append((allocate(data.read(size)), size, p["written"]))
    status = allocate(bytes(4))
    values = [at for at, _, _ in places] + [ctypes.c_int64(s) for s in case["sizes"]] + [status]
    pointers = (ctypes.c_void_p * len(values))(
        *[ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values])
    check(cuda.cuLaunchKernel(function, case["blocks"], 1, 1, case["threads"], 1, 1, 0, None,
                              pointers, None), "launch")
    check(cuda.cuCtxSynchronize(), "run")
    digest = hashlib.sha256()
    for at, size, written in places:
        if written:
            raw = ctypes.create_string_buffer(size)
            check(cuda.cuMemcpyDtoH_v2(raw, at, ctypes.c_size_t(size)), "copy")
            digest.update(raw.raw)
    print("result", digest.hexdigest()[:16])


# --- All of them ----------------------------------------------------------------------------------


def expected(case):
    """The tool that must object, "" for none; None where no tool looks for what was found."""
    kinds = {(f["kind"], f["space"]) for f in case["findings"]}
    if any(f["at_once"] for f in case["findings"]):
        return None
    if not kinds:
        return ""
    if any(kind == "divergence" for kind, _ in kinds):
        return "synccheck"
    if ("race", "shared") in kinds and kinds <= {("race", "shared"), ("uninitialised", "shared")}:
        return "racecheck"
    if kinds == {("outside", "global")}:
        return "memcheck"
    return None


def chosen(cases, count):
    """So many mutants, as evenly as can be of each kernel and verdict, and every right kernel."""
    groups = collections.defaultdict(list)
    for number, case in enumerate(cases):
        if case["mutation"] != "none" and expected(case) is not None:
            groups[case["kernel"], expected(case)].append(number)
    picked = []
    order = sorted(groups, key=lambda g: (g[1] == "", g))
    while len(picked) < count and any(groups.values()):
        for group in order:
            if groups[group] and len(picked) < count:
                picked.append(groups[group].pop(len(groups[group]) // 2))
    right = [n for n, case in enumerate(cases) if case["mutation"] == "none"]
    return right + sorted(picked)


def run(folder, number, tool):
    command = [sys.executable, os.path.abspath(__file__), folder, "--case", str(number)]
    if tool:
        sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        # Without padding the byte behind an allocation may be another's.
        padding = ["--padding", "512"] if tool == "memcheck" else []
        command = [sanitizer, "--tool", tool, *padding, "--print-limit", "3", "--error-exitcode",
                   "9", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    result = [line.split()[1] for line in text.splitlines() if line.startswith("result ")]
    return done.returncode, result[0] if result else None, text


def judge(folder, cases, number, right):
    """Whether the tools say what the interpreter says; why not, else."""
    case = cases[number]
    want = expected(case)
    said = {}
    for tool in TOOLS:
        code, _, text = run(folder, number, tool)
        if code not in (0, 9) and "ERROR SUMMARY" not in text and "RACECHECK SUMMARY" not in text:
            return False, f"{tool} failed: {text[-300:]}"
        said[tool] = code != 0
    objects = [tool for tool in TOOLS if said[tool]]
    if want:
        return said[want], f"interpreter: {want}, tools: {', '.join(objects) or 'nothing'}"
    if objects:
        return False, f"interpreter: nothing, tools: {', '.join(objects)}"
    _, result, _ = run(folder, number, None)
    differs = result != right[case["kernel"]]
    return True, "clean, " + ("another result" if differs else "the same result")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--case", type=int)
    options = parser.parse_args()
    if options.case is not None:
        return replay(options.folder, options.case)
    cases = json.load(open(os.path.join(options.folder, "cases.json")))
    numbers = chosen(cases, options.count)
    right = {}
    for n in numbers:
        if cases[n]["mutation"] == "none":
            _, right[cases[n]["kernel"]], _ = run(options.folder, n, None)
    agree = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        judged = pool.map(lambda n: judge(options.folder, cases, n, right), numbers)
        for n, (same, why) in zip(numbers, judged):
            agree += same
            mark = "agree   " if same else "DISAGREE"
            print(f"{mark} @{cases[n]['kernel']} {cases[n]['mutation']}: {why}", flush=True)
    print(f"{len(numbers)} kernels, {agree} verdicts agree")
    return 0 if agree == len(numbers) else 1


if __name__ == "__main__":
    sys.exit(main())
