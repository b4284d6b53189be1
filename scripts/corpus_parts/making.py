"""Runs one build of the command over the cases, for each target."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Sequence

from corpus_parts.cases import Case

# A case that takes longer has hung.
SECONDS_A_CASE = 300


@dataclasses.dataclass(frozen=True)
class Target:
    """A device of the command, and the variables that make the machine one of its kind."""

    name: str
    device: str
    instruction_set: str = ""  # of the CPUs that it stands for, as --device names it
    needs: tuple[str, ...] = ()  # flags of /proc/cpuinfo
    variables: tuple[tuple[str, str], ...] = ()
    leaves_out: str = "^$"  # names of cases

    @property
    def on_any_processor(self) -> str:
        """Its device, whose instructions are written down and not run."""
        return f"{self.device}:{self.instruction_set}" if self.instruction_set else self.device

    def takes(self, case: Case) -> bool:
        return re.search(self.leaves_out, case.name) is None


def _cpu(name: str, level: str, isa: str, library: str, *needs: str, leaves_out: str = "^$") -> Target:
    variables = (("INKLE_ISA", isa), ("ONEDNN_MAX_CPU_ISA", library))
    return Target(name, "cpu", f"x86-64-{level}", needs, variables, leaves_out)


# Generated code is the same with AMX as without: what differs there are library calls, which the
# samples of single ops hardly have.
TARGETS = {
    t.name: t
    for t in (
        # The library has no fast products of bf16 there: a training step takes minutes.
        _cpu("avx2", "v3", "avx2", "AVX2", "avx2", "fma", leaves_out=r"^(models|training)/.*/bf16"),
        _cpu("avx512", "v4", "avx512", "AVX512_CORE_BF16", "avx512f", "avx512bw"),
        _cpu("amx", "v4+amx", "avx512", "AVX512_CORE_AMX", "amx_tile",
             leaves_out="^samples/"),
        Target("sm_90a", "null:sm_90a"),
    )
}  # fmt: skip


def processor_flags() -> set[str]:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def available() -> list[str]:
    flags = processor_flags()
    return [t.name for t in TARGETS.values() if flags.issuperset(t.needs)]


def _environment(target: Target, threads: int) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("INKLE_", "ONEDNN_", "DNNL_"))}
    # Threads that wait leave the processor to others: nothing is timed here.
    settings = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    return {**kept, **dict(target.variables), **settings}


def _lines(folder: pathlib.Path) -> list[bytes]:
    path = folder / "cases.jsonl"
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def _wait(process: subprocess.Popen[bytes], folder: pathlib.Path) -> str:
    """Waits to the end; what went wrong, or ""."""
    done, since = -1, time.monotonic()
    while True:
        try:
            code = process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            path = folder / "cases.jsonl"
            now = path.stat().st_size if path.exists() else 0
            if now != done:
                done, since = now, time.monotonic()
            elif time.monotonic() - since > SECONDS_A_CASE:
                process.kill()
                process.wait()
                return f"hung for {SECONDS_A_CASE} s"
            continue
        return "" if code == 0 else f"crashed: exit status {code}"


def make_target(
    tool: pathlib.Path, target: Target, cases: Sequence[Case], folder: pathlib.Path,
    threads: int, run: bool,
) -> None:  # fmt: skip
    """A case that ends the process is written down as one, and the next process goes on behind it.
    What does not run is made on any processor.

    Raises RuntimeError where the command does not even begin.
    """
    is_here = run or processor_flags().issuperset(target.needs)
    device = target.device if is_here else target.on_any_processor
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "cases.jsonl").exists():  # of an earlier corpus
        for made in ("text", "code", "values"):
            shutil.rmtree(folder / made, ignore_errors=True)
        (folder / "cases.jsonl").unlink()
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        file = pathlib.Path(temporary) / "cases"
        file.write_text("".join(map(str, cases)))
        before = -1
        while (done := len(_lines(folder))) < len(cases):
            if done == before:
                raise RuntimeError(f"{tool} makes nothing of {cases[done].name}: {wrong}")
            before = done
            command = [str(tool), "corpus", "make", str(file), "-o", str(folder), "--skip",
                       str(done), "--device", device, "--threads", str(threads)]  # fmt: skip
            process = subprocess.Popen(command + ([] if run else ["--no-run"]),
                                       env=_environment(target, threads))  # fmt: skip
            wrong = _wait(process, folder)
            if not wrong or not (folder / "target.json").exists():
                continue
            lines = [line for line in _lines(folder) if line.endswith(b"\n")]
            if len(lines) < len(cases):
                line = {"case": cases[len(lines)].name, "status": wrong}
                lines.append(json.dumps(line).encode() + b"\n")
            (folder / "cases.jsonl").write_bytes(b"".join(lines))


def make(
    tool: pathlib.Path, cases: Sequence[Case], out: pathlib.Path, targets: Sequence[str],
    threads: int = 2, run: bool = True,
) -> None:  # fmt: skip
    for name in targets:
        target = TARGETS[name]
        taken = [c for c in cases if target.takes(c)]
        start = time.monotonic()
        make_target(tool, target, taken, out / name, threads, run)
        # Two builds that both fail are equal.
        made = map(json.loads, _lines(out / name))
        failed = [line["case"] for line in made if not line["status"].startswith(("ok", "not supported"))]
        print(f"{name}: {len(taken)} cases, {len(failed)} failed, {time.monotonic() - start:.0f} s",
              *failed[:10], sep="\n    ", file=sys.stderr)  # fmt: skip


def interpret(tool: pathlib.Path, cases: Sequence[Case], name: str) -> int:
    """Every different kernel of a target under the interpreter; the exit status. Any processor will do."""
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
        file = pathlib.Path(temporary) / "cases"
        file.write_text("".join(str(c) for c in cases if target.takes(c)))
        print(f"{name}:", flush=True)
        command = [str(tool), "corpus", "interpret", str(file), "--device", target.on_any_processor]
        return subprocess.run(command, env=_environment(target, 2), check=False).returncode
