"""Random small programs over arguments at odd places: read, written, and returned as views.

    python bench/places.py --seconds 60                  on the CPU
    python bench/places.py --device cuda --seed 100000   on a GPU; some of them record CUDA graphs
    python bench/places.py --device cuda --graphs        all of them

Each program is compiled once and called four times with arguments at other addresses, some of which
are no multiple of 16 bytes, transposed or with gaps. Results, their strides and where they lie, and all
memory of the arguments afterwards must be eager's. What AOTAutograd does differently without a
compiler, too, is counted apart. What eager refuses must be refused, but for ops that it has no kernel of.
Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import os
import random
import sys
import time
from typing import Any, Callable, Sequence

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common  # noqa: E402
import inkle  # noqa: E402, F401: registers the backend

_DTYPES = [torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.float64]
_SHAPES = [(3, 8), (16, 16), (5, 7), (4, 1), (33, 9)]
_KINDS = ["dense", "dense", "transposed", "gaps", "columns"]
_STEPS = ["scale", "rows", "relu", "write", "write rows", "write column", "copy", "set", "write transposed",
          "running", "softmax", "product", "eager", "write view", "strided", "chain", "masked", "index"]  # fmt: skip
_RESULTS = ["made", "argument", "rows", "transposed", "made rows", "column", "made transposed"]
_OFFSETS = [0, 0, 4, 8, 1, 3, 5, 7]
_CALLS = 4
_TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-8, torch.bfloat16: 6e-2, torch.float16: 2e-2}


@dataclasses.dataclass
class Argument:
    dtype: torch.dtype
    shape: tuple[int, int]
    kind: str

    def make(self, offset: int, seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """All memory, and the argument in it."""
        generator = torch.Generator().manual_seed(seed)
        if self.dtype.is_floating_point:
            memory = (torch.randn(2048, generator=generator, device="cpu") * 2).to(self.dtype)
        else:
            memory = torch.randint(-8, 9, (2048,), generator=generator, device="cpu").to(self.dtype)
        memory = memory.to(device)
        rows, columns = self.shape
        count = rows * columns
        if self.kind == "dense":
            return memory, memory[offset : offset + count].view(rows, columns)
        if self.kind == "transposed":
            return memory, memory[offset : offset + count].view(columns, rows).t()
        twice = memory[offset : offset + 2 * count]
        if self.kind == "gaps":
            return memory, twice.view(rows, 2 * columns)[:, :columns]
        return memory, twice.view(rows, columns, 2)[..., 1]


@dataclasses.dataclass
class Step:
    name: str
    argument: int
    number: int
    chance: float


class Program:
    """What one seed stands for: arguments, a function of them, and how it is compiled."""

    def __init__(self, seed: int):
        r = random.Random(seed)
        self.seed = seed
        self.arguments = [
            Argument(r.choice(_DTYPES), r.choice(_SHAPES), r.choice(_KINDS))
            for _ in range(r.randint(1, 3))
        ]
        count = len(self.arguments)
        self.steps = [
            Step(r.choice(_STEPS), r.randrange(count), r.randint(0, 2), r.random())
            for _ in range(r.randint(2, 6))
        ]
        self.results = [(r.choice(_RESULTS), r.randrange(8)) for _ in range(r.randint(1, 3))]
        self.mode = r.choice([None, None, "reduce-overhead"])
        self.dynamic = r.choice([False, False, True])
        self.offsets = [[r.choice(_OFFSETS) for _ in range(count)] for _ in range(_CALLS)]
        self.offsets[1] = self.offsets[0]

    def __str__(self) -> str:
        return (f"seed {self.seed}, mode {self.mode}, dynamic {self.dynamic}: {self.arguments} "
                f"{[(s.name, s.argument, s.number) for s in self.steps]} {self.results}")  # fmt: skip

    def __call__(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made: list[torch.Tensor] = []
        for step in self.steps:
            x = arguments[step.argument]
            if step.name in _WRITES:
                _WRITES[step.name](x, step, made)
            else:
                made += _READS[step.name](x, step, made)
        return tuple(self._result(name, number, arguments, made) for name, number in self.results)

    @staticmethod
    def _result(name: str, number: int, arguments: Sequence[torch.Tensor], made: list[Any]) -> torch.Tensor:
        x = arguments[number % len(arguments)]
        y = made[number % len(made)] if made else x + 1
        if name == "made":
            return y
        if name == "made rows":
            return y[1:]
        if name == "made transposed":
            return y.t() if y.dim() == 2 else y
        return {"argument": lambda: x, "rows": lambda: x[1:], "transposed": x.t, "column": lambda: x[:, :1]}[name]()


def _extreme(x: torch.Tensor, step: Step) -> torch.Tensor:
    if step.chance < 0.5:
        return torch.sort(x, dim=-1)[0]
    return torch.roll(torch.kthvalue(x, 1, -1)[0], 1)


def _chain(x: torch.Tensor, step: Step, made: list[torch.Tensor]) -> list[torch.Tensor]:
    if made:
        made[-1].add_(1)
    return []


# What a step adds to the values made so far.
_READS: dict[str, Callable[..., list[torch.Tensor]]] = {
    "scale": lambda x, step, made: [x * 2 + 1],
    "rows": lambda x, step, made: [x - x.sum(-1, keepdim=True)],
    "relu": lambda x, step, made: [x.relu()],
    "running": lambda x, step, made: [x.cumsum(step.number % 2).to(x.dtype)],
    "softmax": lambda x, step, made: [
        x.softmax(-1) if x.is_floating_point() else x.amax(-1, keepdim=True) + x
    ],
    "product": lambda x, step, made: [x @ x.t()] if x.is_floating_point() else [],
    "eager": lambda x, step, made: [_extreme(x, step)],
    "index": lambda x, step, made: [x[torch.tensor([0, 2, 1], device=x.device)]],
    "chain": _chain,
}


def _copy(x: torch.Tensor, step: Step, made: list[torch.Tensor]) -> None:
    fits = made and made[-1].shape == x.shape and made[-1].dtype == x.dtype
    x.copy_(made[-1] if fits else x + x.flip(0))


def _strided(x: torch.Tensor, step: Step, made: list[torch.Tensor]) -> None:
    if x.shape != (4, 1) and x.is_contiguous():
        x.as_strided((2, 2), (2, 1)).add_(1)
    else:
        x.add_(2)


def _set(x: torch.Tensor, step: Step, made: list[torch.Tensor]) -> None:
    x[step.number] = 0


_WRITES: dict[str, Callable[..., Any]] = {
    "write": lambda x, step, made: x.add_(1),
    "write rows": lambda x, step, made: x[1:].mul_(2),
    "write column": lambda x, step, made: x[:, step.number : step.number + 1].add_(3),
    "write transposed": lambda x, step, made: x.t().add_(x.t() * 2),
    "write view": lambda x, step, made: x.view_as(x).sub_(1),
    "masked": lambda x, step, made: x.masked_fill_(x > 1, 1),
    "copy": _copy,
    "strided": _strided,
    "set": _set,
}


@dataclasses.dataclass
class Outcome:
    """Of one call: its results and all memory of its arguments."""

    results: tuple[torch.Tensor, ...]
    memory: list[torch.Tensor]

    def place(self, number: int) -> tuple[int, int] | None:
        """In which argument's memory a result lies, and where."""
        result = self.results[number]
        if result.numel() == 0:
            return None
        at = result.untyped_storage().data_ptr()
        for i, memory in enumerate(self.memory):
            if memory.untyped_storage().data_ptr() == at:
                return i, result.storage_offset()
        return None


def _run(function: Callable[..., Any], program: Program, call: int, device: str) -> Outcome:
    made = [
        a.make(offset, 7 * program.seed + 13 * call + n, device)
        for n, (a, offset) in enumerate(zip(program.arguments, program.offsets[call]))
    ]
    with torch.no_grad():
        return Outcome(function(*[x for _, x in made]), [memory for memory, _ in made])


def _unlike(found: torch.Tensor, wanted: torch.Tensor) -> str:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} {tuple(found.shape)} is {wanted.dtype} {tuple(wanted.shape)}"
    strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (found, wanted)]
    if strides[0] != strides[1] and wanted.numel() > 1:
        return f"strides {found.stride()} are {wanted.stride()}"
    if not wanted.dtype.is_floating_point:
        return "" if torch.equal(found, wanted) else "other numbers"
    a, b = found.double(), wanted.double()
    scale = max(1.0, b.abs().nan_to_num(posinf=0).max().item()) if b.numel() else 1.0
    close = (a - b).abs() <= _TOLERANCE[wanted.dtype] * scale
    right = close | (a == b) | (a.isnan() & b.isnan())
    return "" if bool(right.all()) else f"numbers off by {(a - b).abs().nan_to_num().max():g}"


def _differences(found: Outcome, wanted: Outcome) -> list[str]:
    texts = []
    for n, (a, b) in enumerate(zip(found.results, wanted.results)):
        if text := _unlike(a, b):
            texts.append(f"result {n}: {text}")
        if found.place(n) != wanted.place(n):
            texts.append(f"result {n} lies at {found.place(n)}, {wanted.place(n)}")
    for n, (a, b) in enumerate(zip(found.memory, wanted.memory)):
        if text := _unlike(a, b):
            texts.append(f"memory {n}: {text}")
    return texts


def _is_torchs(
    program: Program, call: int, device: str, found: Outcome | None, error: Exception | None
) -> bool:
    """Whether AOTAutograd alone gives what was ``found``, or raises the same ``error``."""
    reference = torch.compile(program, backend="aot_eager", dynamic=program.dynamic)
    try:
        theirs = _run(reference, program, call, device)
    except Exception as other:  # noqa: BLE001: compared
        return found is None and common.is_same_error(error, other)
    return found is not None and not _differences(found, theirs)


def _computed(refused: Exception | None) -> str:
    """Of a call that eager refuses: "" where it has no kernel for the dtype, which the compiler may have."""
    text = str(refused)
    return "" if "not implemented for" in text else f"eager refuses: {type(refused).__name__}: {text[:200]}"


def check(seed: int, device: str, graphs: bool = False) -> tuple[str, bool]:
    """What differs between the program compiled and in eager, "" if nothing; and whether that is
    AOTAutograd's own doing. ``graphs``: recorded, whatever the seed says."""
    program = Program(seed)
    program.mode = "reduce-overhead" if graphs else program.mode
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="inkle", mode=program.mode, dynamic=program.dynamic)
    for call in range(_CALLS):
        wanted, refused = None, None
        try:
            wanted = _run(program, program, call, device)
        except Exception as error:  # noqa: BLE001: eager has no kernel
            refused = error
        found, problem = None, None
        try:
            found = _run(compiled, program, call, device)
            texts = [_computed(refused)] if wanted is None else _differences(found, wanted)
        except Exception as error:  # noqa: BLE001: a finding
            problem = error
            texts = [f"{type(error).__name__}: {str(error)[:200]}"]
        if wanted is None and (problem is not None or texts == [""]):
            return "", False
        if texts:
            is_torchs = _is_torchs(program, call, device, found, problem)
            return f"call {call}: {'; '.join(texts[:3])}\n  {program}", is_torchs
    return "", False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--count", type=int, default=0, help="of programs; 0: as --seconds says")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--graphs", action="store_true", help="all with CUDA graphs")
    arguments = parser.parse_args()
    faulthandler.enable()
    end = time.monotonic() + arguments.seconds
    tried = wrong = torchs = 0
    while tried < arguments.count or (arguments.count == 0 and time.monotonic() < end):
        text, is_torchs = check(arguments.seed + tried, arguments.device, arguments.graphs)
        tried += 1
        if text:
            wrong += not is_torchs
            torchs += is_torchs
            print("torch" if is_torchs else "WRONG", text, flush=True)
    print(f"{tried} programs from seed {arguments.seed}: {wrong} wrong, {torchs} AOTAutograd's own")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
