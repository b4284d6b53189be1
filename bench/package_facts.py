"""Single facts about packages: a call from C, a second process, several instruction sets."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CALL_LIMIT, MEMORY_LIMIT, LOAD_LIMIT = 5.0, 5.0, 10.0  # us, MB, ms
TINY = "graph @tiny(%x: f32[{n}]) -> f32[{n}]{where} {{\n  %0: f32[{n}] = neg(%x)\n  return %0\n}}\n"


def build_folder() -> str:
    """INKLE_BUILD, or `build` of the checkout: where the command and libinkle_runtime.so are."""
    return os.environ.get("INKLE_BUILD") or os.path.join(ROOT, "build")


def command(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([os.path.join(build_folder(), "inkle"), *words], capture_output=True,
                          text=True, check=False)  # fmt: skip


def private_mib(process: int | str = "self") -> float:
    """Private memory of a process."""
    with open(f"/proc/{process}/smaps_rollup") as file:
        return sum(int(x.split()[1]) for x in file if x.startswith("Private_")) / 1024


@functools.cache
def _program() -> str:
    """The C program, compiled."""
    folder = tempfile.mkdtemp(prefix="package-call-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = os.path.join(folder, "package_call")
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run(
        [compiler, "-O2", "-std=gnu11", "-I", os.path.join(ROOT, "src", "capi"),
         os.path.join(ROOT, "bench", "package_call.c"), "-L", build_folder(), "-linkle_runtime",
         f"-Wl,-rpath,{build_folder()}", "-o", program], check=True)  # fmt: skip
    return program


def _build(graph: str, package: str, *targets: str) -> subprocess.CompletedProcess:
    text = package + ".ir"
    with open(text, "w") as file:
        file.write(graph)
    return command("build", text, "-o", package, *(w for t in targets for w in ("--target", t)))


def _call_lines(folder: str) -> list[str]:
    lines = []
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    for what, n, where in (("fixed", "8", ""), ("one that varies", "s0", " where s0 in 2..64 hint 8")):
        package = os.path.join(folder, f"{n}.inkle")
        _build(TINY.format(n=n, where=where), package).check_returncode()
        done = subprocess.run([_program(), "overhead", package], capture_output=True, text=True,
                              env=environment, check=True)  # fmt: skip
        took = float(done.stdout)
        verdict = "met" if took <= CALL_LIMIT else "NOT met"
        lines.append(f"- A call from C of one kernel over 8 numbers, size {what}: {took:.2f} us with the "
                     f"kernel's few nanoseconds (limit {CALL_LIMIT:.0f} us: {verdict}).")  # fmt: skip
    return lines


def _loaded(package: str, isa: str) -> str:
    """The target that a fresh process takes, with INKLE_ISA, or why it takes none."""
    done = subprocess.run(
        [sys.executable, "-c", "import inkle, sys; print(inkle.load(sys.argv[1]).target)", package],
        capture_output=True, text=True, env={**os.environ, "INKLE_ISA": isa},
    )  # fmt: skip
    if done.returncode == 0:
        return done.stdout.strip()
    return f"refused ({done.stderr.strip().splitlines()[-1].split('.inkle: ')[-1]})"


def _target_lines(folder: str) -> list[str]:
    """Which code of a file for two instruction sets this processor takes, and a narrower one."""
    graph = TINY.format(n="8", where="")
    sets = {"both": ("x86-64-v4", "x86-64-v3"), "v3": ("x86-64-v3",), "v4": ("x86-64-v4",)}
    found = {}
    for name, targets in sets.items():
        package = os.path.join(folder, f"{name}.inkle")
        done = _build(graph, package, *targets)
        if done.returncode != 0:
            found[name] = f"not built ({done.stderr.strip().removeprefix('error: ')})"
            continue
        found[name] = f"{_loaded(package, '')}, with INKLE_ISA=avx2 {_loaded(package, 'avx2')}"
    return ["- What of a file runs here, by the instruction sets that it is for: "
            f"x86-64-v4 and x86-64-v3: {found['both']}; x86-64-v4: {found['v4']}; "
            f"x86-64-v3: {found['v3']}."]  # fmt: skip


def lines() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        return [*_call_lines(folder), *_target_lines(folder)]


def second_process(package: str, rows: int = 8, columns: int = 128) -> list[list[float]]:
    """Of a first process and of a second one beside it: KiB of private memory before the load, after
    it, after a call; microseconds of the load; KiB when both have run a call."""
    words = [_program(), "memory", package, str(rows), str(columns)]
    processes, found = [], []
    try:
        for _ in range(2):
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.append(process)
            found.append([float(x) for x in process.stdout.readline().split()])
        for process, one in zip(processes, found):  # while both hold the file
            one.append(private_mib(process.pid) * 1024)
    finally:
        for process in processes:
            process.communicate("\n")
    return found


def second_lines(found: list[list[float]], load_ms: str) -> list[str]:
    def mb(kib: float) -> float:
        return kib * 1024 / 1e6

    ms = [f[3] / 1e3 for f in found]
    first, second = (mb(f[4] - f[0]) for f in found)
    before, loaded = found[1][:2]
    over = second - first
    verdict = "met" if over <= MEMORY_LIMIT else "NOT met"
    fast = "met" if min(ms) <= LOAD_LIMIT else "NOT met"
    return [
        f"- MiniLM, load from C: {ms[0]:.1f} and {ms[1]:.1f} ms; from Python {load_ms} ms (limit "
        f"{LOAD_LIMIT:.0f} ms: {fast}).",
        f"- MiniLM, two processes that hold the package and have run 8x128: private memory is "
        f"{first:.1f} MB more than before the load in the first and {second:.1f} MB in the second, of "
        f"which {mb(loaded - before):.1f} MB came with the load; the second is {over:.1f} MB over the "
        f"first (limit {MEMORY_LIMIT:.0f} MB: {verdict}).",
    ]  # fmt: skip
