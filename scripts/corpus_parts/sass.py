"""Machine code of CUDA kernels: what it uses, and whether new code is as good as old by that."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Iterable, Sequence

# Of opcodes, by the part before the first dot; what is in none counts in the total alone.
INSTRUCTIONS = {
    "global": "LDG STG LD ST LDGSTS UBLKCP UBLKPF CCTL",
    "shared": "LDS STS LDSM STSM ATOMS LDSLK UTMALDG UTMASTG",
    "local": "LDL STL",
    "constant": "LDC",
    "atomic": "ATOM ATOMG RED REDG UBLKRED UTMAREDG",
    "barrier": "BAR UCGABAR_ARV UCGABAR_WAIT MEMBAR FENCE ERRBAR DEPBAR LDGDEPBAR SYNCS WARPSYNC ACQBULK",
    "shuffle": "SHFL VOTE VOTEU MATCH REDUX CREDUX",
    "special": "MUFU",
}
_CLASS = {op: which for which, ops in INSTRUCTIONS.items() for op in ops.split()}
MOST_INSTRUCTIONS = 1.02  # of the old


@dataclasses.dataclass
class Metrics:
    registers: int
    spill_bytes: int  # stack and local memory of a thread
    shared_bytes: int  # static
    counts: dict[str, int]  # by class
    instructions: int
    hash: str  # of the instructions

    def blocks(self, threads: int, dynamic_bytes: int = 0) -> int:
        return resident_blocks(self.registers, self.shared_bytes + dynamic_bytes, threads)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Of a multiprocessor of compute capability 9.0 (CUDA C++ Programming Guide, technical
    specifications)."""

    registers: int = 65536
    register_unit: int = 256  # of a warp
    warps: int = 64
    blocks: int = 32
    shared_bytes: int = 228 << 10
    shared_unit: int = 128
    reserved_bytes: int = 1 << 10  # of shared memory, for each block


def resident_blocks(registers: int, shared_bytes: int, threads: int, m: Limits = Limits()) -> int:
    """How many blocks a multiprocessor holds at once."""
    warps = -(-threads // 32)
    of_warp = -(-max(registers, 1) * 32 // m.register_unit) * m.register_unit
    # Four partitions, each with its own registers: what they hold of a block is whole warps.
    by_registers = m.registers // 4 // of_warp * 4 // warps
    used = -(-(shared_bytes + m.reserved_bytes) // m.shared_unit) * m.shared_unit
    return min(m.blocks, m.warps // warps, by_registers, m.shared_bytes // used)


# --- From machine code ----------------------------------------------------------------------------


def find_program(name: str) -> str:
    """NVIDIA's tool: INKLE_CUDA_TOOLS, the path, the toolkit's usual folder, or the copy that triton
    has. Raises FileNotFoundError."""
    folders = [os.environ.get("INKLE_CUDA_TOOLS"), None, "/usr/local/cuda/bin"]
    venv = os.environ.get("INKLE_VENV")
    for root in [*sys.path, *map(str, pathlib.Path(venv).glob("lib/python*/site-packages") if venv else ())]:
        folders.append(os.path.join(root, "triton", "backends", "nvidia", "bin"))
    for folder in folders:
        if (found := shutil.which(name, path=folder)) is not None:
            return found
    raise FileNotFoundError(f"no {name}: INKLE_CUDA_TOOLS may name its folder")


_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?P<text>(?:@!?U?P\w+\s+)?(?P<op>[A-Z][A-Z0-9_]*)[^;]*;)")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def parse_sass(sass: str, usage: str) -> Metrics:
    """Of the only function of a program: what `cuobjdump -sass` and `-res-usage` print of it.

    Raises ValueError for texts without instructions or without a line of usage.
    """
    lines = [(m["op"], " ".join(m["text"].split())) for m in _INSTRUCTION.finditer(sass)]
    used = _USAGE.findall(usage)
    if not lines or len(used) != 1:
        raise ValueError(f"{len(lines)} instructions, {len(used)} lines of usage")
    # Behind the last of them come a branch to itself and padding.
    while lines and lines[-1][0] == "NOP":
        lines.pop()
    counts = collections.Counter(_CLASS[op] for op, _ in lines if op in _CLASS)
    registers, stack, shared, local = map(int, used[0])
    digest = hashlib.sha256("\n".join(text for _, text in lines).encode()).hexdigest()
    return Metrics(registers, stack + local, shared, {c: counts[c] for c in INSTRUCTIONS}, len(lines), digest)


def measure(cubin: pathlib.Path) -> Metrics:
    """Raises ValueError as parse_sass does, CalledProcessError where the tool fails."""
    program = find_program("cuobjdump")
    # It finds its disassembler on the path.
    path = os.pathsep.join([os.path.dirname(program), os.environ.get("PATH", "")])
    texts = [
        subprocess.run([program, what, str(cubin)], check=True, capture_output=True, text=True,
                       env={**os.environ, "PATH": path}).stdout
        for what in ("-sass", "-res-usage")
    ]  # fmt: skip
    return parse_sass(*texts)


def assemble(tool: pathlib.Path, texts: dict[str, str], folder: pathlib.Path, arch: str) -> None:
    """Leaves NAME.cubin, or NAME.error, of each text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / (name + ".cu")).write_text(text)
    subprocess.run([str(tool), "corpus", "assemble", str(folder), "--arch", arch], check=True)


# --- The gate -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Kernel:
    """How a program launches a kernel's code."""

    code: str
    threads: int
    shared_bytes: int = 0  # dynamic


def worse(old: Metrics, new: Metrics, a: Kernel, b: Kernel) -> list[str]:
    """In what the new code is worse than the old; empty: it passes."""
    if old.hash == new.hash and old.registers == new.registers and a.threads == b.threads:
        return []
    found = []
    before, after = old.blocks(a.threads, a.shared_bytes), new.blocks(b.threads, b.shared_bytes)
    if after * b.threads < before * a.threads or (a.threads == b.threads and after < before):
        found.append(f"resident blocks {before} of {a.threads} threads -> {after} of {b.threads}")
    if new.spill_bytes > old.spill_bytes:
        found.append(f"spilled bytes {old.spill_bytes} -> {new.spill_bytes}")
    for which, count in new.counts.items():
        if count > old.counts[which]:
            found.append(f"{which} instructions {old.counts[which]} -> {count}")
    if new.instructions > old.instructions * MOST_INSTRUCTIONS:
        found.append(f"instructions {old.instructions} -> {new.instructions}")
    return found


def launched(case: dict[str, Any]) -> list[Kernel]:
    return [Kernel(s["code"], s["threads"], s.get("shared", 0)) for s in case.get("steps", []) if "code" in s]


def pairs_of(
    old: Iterable[tuple[str, list[Kernel]]], new: dict[str, list[Kernel]]
) -> tuple[dict[tuple[Kernel, Kernel], str], list[str]]:
    """Kernels that stand in for each other, with the first case that has them; and the cases whose
    numbers of kernels are not the same."""
    pairs: dict[tuple[Kernel, Kernel], str] = {}
    unpaired = []
    for case, kernels in old:
        others = new.get(case)
        if others is None or len(others) != len(kernels):
            unpaired.append(f"{case}: {len(kernels)} kernels -> {'no case' if others is None else len(others)}")
            continue
        for number, pair in enumerate(zip(kernels, others)):
            pairs.setdefault(pair, f"{case}, kernel {number}")
    return pairs, unpaired


def measure_all(folder: pathlib.Path, names: Sequence[str]) -> dict[str, Metrics | str]:
    """By name; a text where there is no machine code: why."""

    def one(name: str) -> Metrics | str:
        error = folder / (name + ".error")
        return error.read_text() if error.exists() else measure(folder / (name + ".cubin"))

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(one, names)))
