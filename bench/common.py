"""What all benchmarks share: the accuracy rule, the machine's name, progress, peak memory."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import sys
import threading
import time
from typing import Any, Callable, Sequence

import torch
from torch.utils import _pytree as pytree

# Floors of the accuracy rule, relative to the largest magnitude of the output.
FLOORS = {torch.float32: 1e-7, torch.float64: 1e-15, torch.bfloat16: 1e-3, torch.float16: 1e-4,
          torch.complex64: 1e-7, torch.complex128: 1e-15, torch.complex32: 1e-4}  # fmt: skip
RMS_FACTOR = 1.5
MAX_FACTOR = 3.0

# Ways of TorchInductor and their options: Inkle packs weights unless told otherwise, which Inductor does
# with ``freezing`` alone; its templates of products on a CPU, which ``max_autotune`` measures, take
# frozen weights alone.
INDUCTORS: dict[str, dict[str, bool]] = {
    "inductor": {},
    "inductor-freezing": {"freezing": True},
    "inductor-max-autotune": {"freezing": True, "max_autotune": True},
}

# The most runs of eager, disturbed in the last bit, that tell how much chance there is in its own
# errors. A gate behind a batch norm of two numbers is off by ten times the usual in every second.
DISTURBED = 8


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors of a nested result, in order."""
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


@dataclasses.dataclass
class Accuracy:
    """Errors of two systems against one reference, pooled over outputs and inputs.

    ``add`` sums squares, so that several inputs make one sample. ``ok`` is the rule: the RMS error
    at most 1.5 times that of eager plus the floor, the largest at most 3 times plus the same.
    """

    floor: float
    count: int = 0
    scale: float = 0.0
    squares: float = 0.0
    eager_squares: float = 0.0
    largest: float = 0.0
    eager_largest: float = 0.0
    bad: str = ""

    def add(self, got: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor) -> None:
        got, eager, reference = (_parts(t, eager.is_complex()) for t in (got, eager, reference))
        finite = torch.isfinite(eager)
        ours = torch.isfinite(got)
        if not torch.equal(finite, ours):
            counts = [int((~f).sum()) for f in (ours, finite)]
            self.bad = f"{counts[0]} NaN or infinite, in other places than {counts[1]} in eager"
            return
        if not torch.equal(got[~finite].nan_to_num(), eager[~finite].nan_to_num()):
            self.bad = "other infinities than eager"
            return
        finite = finite & torch.isfinite(reference)
        if not finite.any():
            return
        reference = reference[finite]
        error, eager_error = got[finite] - reference, eager[finite] - reference
        self.count += reference.numel()
        self.scale = max(self.scale, reference.abs().max().item())
        self.squares += error.square().sum().item()
        self.eager_squares += eager_error.square().sum().item()
        self.largest = max(self.largest, error.abs().max().item())
        self.eager_largest = max(self.eager_largest, eager_error.abs().max().item())

    def pool(self, other: Accuracy) -> Accuracy:
        """Takes in the sample of ``other``; gives itself."""
        self.bad = self.bad or other.bad
        self.floor = max(self.floor, other.floor)
        self.count += other.count
        self.scale = max(self.scale, other.scale)
        self.squares += other.squares
        self.eager_squares += other.eager_squares
        self.largest = max(self.largest, other.largest)
        self.eager_largest = max(self.eager_largest, other.eager_largest)
        return self

    @property
    def rms(self) -> float:
        return (self.squares / max(self.count, 1)) ** 0.5

    @property
    def eager_rms(self) -> float:
        return (self.eager_squares / max(self.count, 1)) ** 0.5

    @property
    def ok(self) -> bool:
        floor = self.floor * self.scale
        return (
            not self.bad
            and self.rms <= RMS_FACTOR * self.eager_rms + floor
            and self.largest <= MAX_FACTOR * self.eager_largest + floor
        )

    def ok_beside(self, disturbed: Sequence[Accuracy]) -> bool:
        """The rule with the largest of eager's errors and those of eager runs that are disturbed in
        their last bit: where cancellation makes much of rounding, what misses it by chance meets it."""
        probe = dataclasses.replace(self)
        rms = max([self.eager_rms, *(d.rms for d in disturbed)])
        probe.eager_squares = rms * rms * self.count
        probe.eager_largest = max([self.eager_largest, *(d.largest for d in disturbed)])
        return probe.ok

    def __str__(self) -> str:
        if self.bad:
            return self.bad
        return (
            f"rms {self.rms:.2e} (eager {self.eager_rms:.2e}), largest {self.largest:.2e} "
            f"(eager {self.eager_largest:.2e}), scale {self.scale:.2e}"
        )


def _parts(tensor: torch.Tensor, is_complex: bool) -> torch.Tensor:
    """In f64; of complex numbers both parts, each a number of its own."""
    tensor = tensor.detach().resolve_conj()
    return torch.view_as_real(tensor.to(torch.complex128)) if is_complex else tensor.double()


def compare(got: Any, eager: Any, reference: Any, floor: float | None = None) -> Accuracy:
    """The accuracy of all floating and complex outputs; others must be equal. ``bad`` tells other
    differences."""
    result = Accuracy(floor or 0.0)
    lists = [tensors_of(v) for v in (got, eager, reference)]
    if len({len(x) for x in lists}) != 1:
        result.bad = f"{len(lists[0])} outputs, {len(lists[1])} in eager"
        return result
    for index, (g, e, r) in enumerate(zip(*lists)):
        difference = layout_difference(g, e)
        if difference:
            result.bad = f"output {index}: {difference}"
            return result
        if not e.is_floating_point() and not e.is_complex():
            if not torch.equal(g, e):
                result.bad = f"output {index}: {e.dtype} values differ"
            continue
        one = Accuracy(floor or FLOORS[e.dtype])
        one.add(g, e, r)
        result = worse(result, one)
    return result


def worse(a: Accuracy, b: Accuracy) -> Accuracy:
    """Of two, the one that breaks the rule, or comes nearer to it."""
    if a.bad or b.bad:
        return a if a.bad else b

    def badness(x: Accuracy) -> float:
        floor = x.floor * x.scale + 1e-300
        return max(
            x.rms / (RMS_FACTOR * x.eager_rms + floor),
            x.largest / (MAX_FACTOR * x.eager_largest + floor),
        )

    return a if badness(a) >= badness(b) else b


def layout_difference(got: torch.Tensor, eager: torch.Tensor) -> str:
    """What dtype, sizes or strides differ in, or ""; strides of dimensions of size 1 do not count."""
    if got.dtype != eager.dtype:
        return f"dtype {got.dtype}, {eager.dtype} in eager"
    if got.shape != eager.shape:
        return f"sizes {list(got.shape)}, {list(eager.shape)} in eager"
    if eager.numel() == 0:
        return ""
    pairs = [(a, b) for a, b, n in zip(got.stride(), eager.stride(), eager.shape) if n > 1]
    if any(a != b for a, b in pairs):
        return f"strides {list(got.stride())}, {list(eager.stride())} in eager"
    return ""


def unequal_bits(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one dtype and shape have other bits; one NaN is as good as another."""
    def whole(t: torch.Tensor) -> torch.Tensor:
        t = t.detach().resolve_conj().resolve_neg()
        return torch.view_as_real(t) if t.is_complex() else t

    a, b = whole(x), whole(y)
    if not a.is_floating_point():
        return a != b
    other = (a != b) | (a.signbit() != b.signbit())
    other &= ~(a.isnan() & b.isnan())
    return other.any(-1) if x.is_complex() else other


# What the same error calls otherwise in two runs: addresses (also those that torch's symbolic integers have
# for a value: 1 << 63 | 1 << 61 | address), backends, numbers of names that tracing makes up and of guards that
# fail, and which function returned a tensor beside keeping it.
_MADE_UP = re.compile(
    r"0x[0-9a-f]+|-6917[345]\d{14}\b|\b(?:inkle|aot_eager)\b|(?<=__compiled_fn_)\w+|(?<=__resume_at_)\w+|(?<=\b[su])\d+\b"
    r"|(?<=fail reason: )\d+/\d+|, which is output \d+ of \w+,(?= is at version)"
)


def is_same_error(mine: BaseException | None, theirs: BaseException | None) -> bool:
    """Whether both are of one type and say the same, or neither is an error."""
    if mine is None or theirs is None:
        return mine is theirs
    texts = [_MADE_UP.sub("", str(error)) for error in (mine, theirs)]
    return type(mine) is type(theirs) and texts[0] == texts[1]


def to_double(value: Any) -> Any:
    """With all floats in f64, all complex numbers in two of them."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.is_complex():
            return leaf.to(torch.complex128)
        return leaf.double() if leaf.is_floating_point() else leaf

    return pytree.tree_map(widen, value)


# --- The machine ----------------------------------------------------------------------------------


def machine() -> str:
    """Name of the processor, cores, vector extension, memory."""
    facts: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file.read().split("\n\n")[0].splitlines():
                field, _, value = line.partition(":")
                facts[field.strip()] = value.strip()
    except OSError:
        pass
    name = facts.get("model name") or platform.processor() or platform.machine()
    if generation := _generation_of_amd(facts):
        name += f", {generation}"
    flags = f" {facts.get('flags', '')} "
    extension = next((x for x in ("avx512_bf16", "avx512f", "avx2") if f" {x} " in flags), "")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} cores, {extension}, {pages:.0f} GiB"


def _generation_of_amd(facts: dict[str, str]) -> str:
    """Of a processor by its family and model, as virtual machines hide its name; or nothing."""
    if facts.get("vendor_id") != "AuthenticAMD":
        return ""
    family, model = int(facts.get("cpu family", 0)), int(facts.get("model", 0))
    if family == 25:
        return "Zen 4" if 0x10 <= model <= 0x1F or 0x60 <= model <= 0xAF else "Zen 3"
    return "Zen 5" if family == 26 else ""


def versions(packages: Sequence[str]) -> str:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} -")
    return ", ".join(found)


class Progress:
    """A bar on standard error; plain lines where that is not a terminal."""

    def __init__(self, total: int, what: str):
        self.total, self.what, self.done, self.start = max(total, 1), what, 0, time.monotonic()

    def step(self, label: str) -> None:
        """Says that the next of ``total`` steps, ``label``, begins."""
        seconds = time.monotonic() - self.start
        if sys.stderr.isatty():
            filled = 30 * self.done // self.total
            bar = "#" * filled + "." * (30 - filled)
            text = f"\r{self.what} [{bar}] {self.done}/{self.total} {seconds:5.0f} s  {label:<40.40}"
            sys.stderr.write(text)
        else:
            sys.stderr.write(f"{self.what} {self.done + 1}/{self.total} {seconds:.0f} s: {label}\n")
        sys.stderr.flush()
        self.done += 1

    def end(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r" + " " * 100 + "\r")
            sys.stderr.flush()


def say(text: str) -> None:
    """A line of a child's log."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


# --- Memory ---------------------------------------------------------------------------------------


def _status_kib(field: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1])
    return 0


class PeakMemory:
    """Bytes by which resident memory rises above its value at the start of the block.

    The kernel's high-water mark is reset first; where it may not be, a thread samples.
    """

    def __enter__(self) -> PeakMemory:
        self.bytes = 0
        self._can_reset = self._reset()
        self._start = _status_kib("VmRSS")
        self._largest = self._start
        if not self._can_reset:
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._can_reset:
            self._largest = _status_kib("VmHWM")
        else:
            self._stop.set()
            self._thread.join()
        self.bytes = max(self._largest - self._start, 0) * 1024

    @staticmethod
    def _reset() -> bool:
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            return True
        except OSError:
            return False

    def _sample(self) -> None:
        while not self._stop.wait(0.0005):
            self._largest = max(self._largest, _status_kib("VmRSS"))


def peak_bytes_of(call: Callable[[], Any]) -> int:
    """Memory that a warm call takes beyond what is held, results included.

    Freed pages go back to the system first, so that a second measurement does not find them warm.
    """
    import ctypes
    import gc

    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except OSError:
        pass
    with PeakMemory() as memory:
        result = call()
    del result
    return memory.bytes


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(str(c).ljust(w) for c, w in zip(cells, widths)) + " |"

    return "\n".join([line(head), "|" + "|".join("-" * (w + 2) for w in widths) + "|"] +
                     [line(r) for r in rows])  # fmt: skip


def update_docs(path: str, begin: str, end: str, text: str) -> None:
    """Replaces what stands between two markers of a page."""
    with open(path) as file:
        page = file.read()
    if begin not in page or end not in page:
        raise SystemExit(f"{path} lacks the markers {begin} and {end}")
    head, rest = page.split(begin, 1)
    with open(path, "w") as file:
        file.write(f"{head}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")


def command(
    script: str, without: Sequence[str] = ("--json", "--write"), flags: Sequence[str] = ()
) -> str:
    """How this script was called, but for options that are no part of what is measured, each with a
    value, and flags."""
    words = [word for word in sys.argv[1:] if word not in flags]
    for option in without:
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return " ".join([f"python bench/{script}", *words])


def add_options_of_parts(parser: argparse.ArgumentParser) -> None:
    """For a script that may be called for some of the models at a time."""
    parser.add_argument("--json", default="", help="file for all that was measured")
    parser.add_argument("--add", action="store_true", help="to what --json has of other models")
    parser.add_argument("--write", default="", help="the page whose tables are replaced")


class Results:
    """One for each model, in the file of ``--json``; with ``--add`` beside what that file has."""

    def __init__(self, arguments: argparse.Namespace, names: Sequence[str]):
        self._path, self._names, self.all = arguments.json, list(names), []
        if arguments.add and os.path.exists(self._path):
            with open(self._path) as file:
                self.all = json.load(file)

    def add(self, one: dict[str, Any]) -> None:
        self.all = [r for r in self.all if r["name"] != one["name"]] + [one]
        self.all.sort(key=lambda r: self._names.index(r["name"]))
        if self._path:
            with open(self._path, "w") as file:
                json.dump(self.all, file, indent=1)

    def command(self, script: str) -> str:
        """How they are made by one call."""
        without = ["--json", "--write", "--keep", *["--models"] * (len(self.all) == len(self._names))]
        return command(script, without, ["--add"]) + " --write docs/benchmarks.md"
