"""Two corpora, or a corpus and the frozen hashes of one, class by class."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
import struct
import subprocess
from typing import Any, Callable, Iterable, Sequence

from corpus_parts.cuda_text import normalised

# What is compared of a case: status, graph after passes, loop nests, steps of the plan (kernels and
# library calls with their labels), text of kernels with schedules, plan, code, results.
CLASSES = ("status", "passes", "loops", "steps", "schedule", "plan", "code", "results")
Lines = dict[str, dict[str, Any]]


@dataclasses.dataclass
class Made:
    """What one build made for one target."""

    folder: pathlib.Path
    target: dict[str, Any]
    cases: Lines

    def text(self, kind: str, name: str) -> str:
        return (self.folder / kind / name).read_text()

    @property
    def prelude(self) -> str:
        path = self.folder / "prelude.cu"
        return path.read_text() if path.exists() else ""


def load(folder: pathlib.Path) -> Made:
    """Raises FileNotFoundError where nothing was made."""
    target = json.loads((folder / "target.json").read_text())
    lines = (folder / "cases.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    return Made(folder, target, {c["case"]: c for c in cases})


def targets_of(out: pathlib.Path) -> list[str]:
    return sorted(p.parent.name for p in out.glob("*/cases.jsonl"))


def _kernels(case: dict[str, Any], key: str) -> list[str]:
    return [s[key] for s in case.get("steps", []) if key in s]


class Parts:
    """The compared values of a case; CUDA text after normalising its names."""

    def __init__(self, made: Made, reserved: frozenset[str]):
        self._made, self._reserved = made, reserved
        self._known: dict[str, str] = {}

    def code(self, name: str) -> str:
        if not self._made.target.get("architecture"):
            return name
        if name not in self._known:
            text = normalised(self._made.text("code", name + ".cu"), self._reserved)
            self._known[name] = hashlib.sha256(text.encode()).hexdigest()
        return self._known[name]

    def of(self, case: dict[str, Any], which: str) -> Any:
        if which == "code":
            return [self.code(name) for name in _kernels(case, "code")]
        if which == "schedule":
            return _kernels(case, "kernel")
        if which == "steps":
            return [[s["kind"], s["label"]] for s in case.get("steps", [])]
        return case.get("outputs" if which == "results" else which)


def of_other_code(a: Made, b: Made) -> set[str]:
    """Names of the cases of both whose steps, or the machine code of one, differ."""
    def steps(case: dict[str, Any]) -> list[Any]:
        return [(s["kind"], s.get("code")) for s in case.get("steps", [])]

    return {name for name, case in a.cases.items() if name in b.cases and steps(case) != steps(b.cases[name])}


# --- How results differ ---------------------------------------------------------------------------

_FORMATS = {"f32": ("f", 4), "f64": ("d", 8), "f16": ("e", 2), "bf16": ("H", 2), "i64": ("q", 8),
            "i32": ("i", 4), "i16": ("h", 2), "i8": ("b", 1), "u8": ("B", 1), "bool": ("B", 1)}  # fmt: skip
_REAL = ("f32", "f64", "f16", "bf16")


def _values(data: bytes, dtype: str) -> list[float]:
    letter, width = _FORMATS[dtype]
    found = struct.unpack(f"<{len(data) // width}{letter}", data)
    if dtype != "bf16":
        return list(found)
    return [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in found]


def describe_output(a: dict[str, Any], b: dict[str, Any], old: bytes, new: bytes) -> str:
    """How far two results of one type are apart."""
    x, y = _values(old, a["dtype"]), _values(new, b["dtype"])
    off = [(p, q) for p, q in zip(x, y) if p != q and not (p != p and q != q)]
    text = f"{len(off)} of {len(x)} {a['dtype']} differ"
    if off and a["dtype"] in _REAL:
        distances = [abs(p - q) for p, q in off]
        scale = max((abs(p) for p in x if abs(p) < float("inf")), default=0.0)
        finite = [d for d in distances if d == d and d < float("inf")]
        if len(finite) < len(off):
            text += f", {len(off) - len(finite)} in being finite"
        if finite:
            text += f", by at most {max(finite):.3g} where the largest is {scale:.3g}"
    return text


def describe_results(a: Made, b: Made, one: Any, other: Any) -> str:
    """Of the first output that differs."""
    if isinstance(one, str) or isinstance(other, str) or one is None or other is None:
        return f"{_short(one)} -> {_short(other)}"
    if len(one) != len(other):
        return f"{len(one)} results -> {len(other)}"
    for i, (x, y) in enumerate(zip(one, other)):
        if x == y:
            continue
        if not all(isinstance(r, dict) and "hash" in r for r in (x, y)):
            return f"result {i}: {_short(x)} -> {_short(y)}"
        if (x["dtype"], x["sizes"]) != (y["dtype"], y["sizes"]):
            return f"result {i}: {x['dtype']}{x['sizes']} -> {y['dtype']}{y['sizes']}"
        files = [m.folder / "values" / (r["hash"] + ".bin") for m, r in ((a, x), (b, y))]
        if all(f.exists() for f in files) and x["dtype"] in _FORMATS:
            return f"result {i}: " + describe_output(x, y, *(f.read_bytes() for f in files))
        return f"result {i}: other bytes, {x['dtype']}{x['sizes']}"
    return "equal"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 160 else text[:157] + "..."


# --- Disassembly ----------------------------------------------------------------------------------


def disassembly(object_file: pathlib.Path) -> str:
    """Instructions of an object file without addresses; what is jumped to is numbered in order."""
    done = subprocess.run(["objdump", "-d", "-r", "--no-show-raw-insn", str(object_file)], check=True,
                          capture_output=True, text=True)  # fmt: skip
    return without_addresses(done.stdout)


def without_addresses(text: str) -> str:
    """Of what `objdump -d -r --no-show-raw-insn` prints."""
    lines = re.findall(r"^\s+([0-9a-f]+):\s+(.*?)\s*$", text, re.M)
    target = re.compile(r"\b([0-9a-f]+) <[^>]*>")
    jumps = {int(m, 16) for _, line in lines for m in target.findall(line) if "# " not in line}
    labels = {at: f"L{n}" for n, at in enumerate(sorted(jumps))}
    result = []
    for at, line in lines:
        if int(at, 16) in labels:
            result.append(labels[int(at, 16)] + ":")
        line = line.split(" #")[0].rstrip()
        result.append("  " + target.sub(lambda m: labels.get(int(m[1], 16), "?"), line))
    return "\n".join(result)


# --- Comparison -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Row:
    target: str
    which: str
    equal: int = 0
    differ: list[str] = dataclasses.field(default_factory=list)  # "case: how"
    missing: int = 0  # cases that only one of the two has


def compare_target(name: str, a: Made, b: Made, classes: Iterable[str]) -> list[Row]:
    from corpus_parts.cuda_text import reserved_words

    reserved = reserved_words(a.prelude, b.prelude)
    old, new = Parts(a, reserved), Parts(b, reserved)
    both = [c for c in a.cases if c in b.cases]
    missing = len(set(a.cases) ^ set(b.cases))
    rows = []
    for which in classes:
        row = Row(name, which, missing=missing)
        for case in both:
            one, other = old.of(a.cases[case], which), new.of(b.cases[case], which)
            if one == other:
                row.equal += 1
            else:
                row.differ.append(f"{case}: {_how(which, a, b, one, other)}")
        rows.append(row)
    if a.prelude != b.prelude and "code" in classes:
        rows.append(Row(name, "prelude", differ=["prelude.cu: other helpers of all kernels"]))
    return rows


def _how(which: str, a: Made, b: Made, one: Any, other: Any) -> str:
    if which == "results":
        return describe_results(a, b, one, other)
    if which in ("code", "schedule", "steps"):
        if len(one) != len(other):
            return f"{len(one)} -> {len(other)}"
        places = [i for i, (x, y) in enumerate(zip(one, other)) if x != y]
        return f"{len(places)} of {len(one)}, the first is number {places[0]}"
    if which == "status":
        return f"{_short(one)} -> {_short(other)}"
    return "other text"


def wrong_machine(a: Made, b: Made) -> str:
    """Why the two cannot be compared, or ""."""
    if a.target == b.target:
        return ""
    keys = [k for k in a.target if a.target[k] != b.target.get(k)]
    return ", ".join(f"{k} {a.target[k]} and {b.target.get(k)}" for k in keys)


def compare(
    a: pathlib.Path, b: pathlib.Path, classes: Sequence[str], targets: Sequence[str] = ()
) -> list[Row]:
    """Raises ValueError where the two were made for other targets or on other machines."""
    found = targets_of(a), targets_of(b)
    wanted = list(targets) or found[0]
    if not wanted or not set(wanted) <= set(found[0]) & set(found[1]):
        raise ValueError(f"targets are {found[0]} in {a} and {found[1]} in {b}")
    if not targets and found[0] != found[1]:
        raise ValueError(f"targets are {found[0]} in {a} and {found[1]} in {b}: choose some")
    rows = []
    for name in wanted:
        old, new = load(a / name), load(b / name)
        if why := wrong_machine(old, new):
            raise ValueError(f"{name} was made on two machines: {why}")
        rows += compare_target(name, old, new, classes)
    return rows


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [[str(c) for c in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells]
    return "\n".join(lines)


def report(rows: Sequence[Row], show: int, say: Callable[[str], None] = print) -> int:
    """Prints the table, and of each class the first cases that differ. The exit status: 1 if any
    does, or cases are missing."""
    head = ("target", "class", "identical", "different", "in one only")
    say(table(head, [(r.target, r.which, r.equal, len(r.differ), r.missing) for r in rows]))
    for row in rows:
        if row.differ:
            say(f"\n{row.target}, {row.which}: {len(row.differ)} different")
            for line in row.differ[:show]:
                say(f"  {line}")
            if len(row.differ) > show:
                say(f"  and {len(row.differ) - show} more (--show)")
    return 1 if any(r.differ or r.missing for r in rows) else 0


# --- Frozen hashes --------------------------------------------------------------------------------


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def frozen(out: pathlib.Path) -> str:
    """A line for each target with its machine, and for each of its cases a hash of steps, schedules
    and code, and one of status and results."""
    from corpus_parts.cuda_text import reserved_words

    text = []
    for name in targets_of(out):
        made = load(out / name)
        parts = Parts(made, reserved_words(made.prelude))
        text.append(f"target {name} {json.dumps(made.target, sort_keys=True)}")
        for case, line in made.cases.items():
            code = [parts.of(line, which) for which in ("steps", "schedule", "code")]
            result = [parts.of(line, which) for which in ("status", "results")]
            text.append(f"{case} {_digest(code)} {_digest(result)}")
    return "\n".join(text) + "\n"


def merged(old: str, new: str) -> str:
    """`new`, and from `old` the targets that `new` has none of, in the order of `old`."""
    sections: dict[str, list[str]] = {}
    for text in (old, new):
        name = ""
        for line in text.splitlines():
            if line.startswith("target "):
                name = line.split(" ", 2)[1]
                sections[name] = []
            sections[name].append(line)
    return "".join(f"{line}\n" for lines in sections.values() for line in lines)


def _parse_frozen(text: str) -> dict[str, tuple[str, dict[str, tuple[str, str]]]]:
    found: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("target "):
            _, name, machine = line.split(" ", 2)
            found[name] = machine, {}
        else:
            case, code, results = line.split()
            found[name][1][case] = code, results
    return found


def compare_frozen(baseline: str, out: pathlib.Path, say: Callable[[str], None] = print) -> list[Row]:
    """Cases that were not made are not compared: a sample is enough. Targets of another machine are
    left out, and named; ValueError if that leaves nothing."""
    old, new = _parse_frozen(baseline), _parse_frozen(frozen(out))
    rows = []
    for name, (machine, cases) in new.items():
        if name not in old or old[name][0] != machine:
            say(f"{name}: frozen on another machine, not compared")
            continue
        known = old[name][1]
        for at, which in enumerate(("code", "results")):
            row = Row(name, which, missing=len(set(cases) - set(known)))
            for case in cases.keys() & known.keys():
                if cases[case][at] == known[case][at]:
                    row.equal += 1
                else:
                    row.differ.append(f"{case}: other hash")
            row.differ.sort()
            rows.append(row)
    if not rows:
        raise ValueError("no target of the frozen hashes is one of this machine")
    return rows
