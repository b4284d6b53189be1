"""Does NVVM leave loops where they end? Random loops in copies of their bodies. Needs NVRTC and no GPU.

    python bench/nvvm_loops.py [--loops 1000] [--seed 0] [--kinds within,odd] [--nvrtc libnvrtc.so.13] [--target 100]

A loop adds up elements that it loads under conditions, as kernels along columns do. NVRTC makes PTX of it,
an interpreter of PTX runs one thread, and the sums must be those that Python finds. `within` and `odd` are
the kinds that code generation avoids (docs/codegen_cuda.md); of the others none may be wrong. Ends with 1
otherwise.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import dataclasses
import operator
import pathlib
import random
import re
import struct
import sys
from typing import Any, Callable

KINDS = {
    "divided": "the number of copies divides that of iterations",
    "whole": "as many copies as iterations",
    "hidden": "NVVM does not know the number of iterations",
    "thread": "begins at the thread's number, in steps",
    "even": "NVVM chooses the copies of an even number",
    "odd": "NVVM chooses the copies of an odd number",
    "within": "the number of copies does not divide that of iterations",
}
AVOIDED = ("odd", "within")
MEMORY = [float(7 * i % 31 + 1) for i in range(600)]
INPUT, OUTPUT = 1 << 40, 2 << 40  # addresses


# --- Loops ----------------------------------------------------------------------------------------

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


@dataclasses.dataclass
class Loop:
    begin: str
    end: int
    step: int
    pragma: str
    hides_end: bool
    thread: int
    lanes: int
    strides: tuple[int, int]  # of what is loaded where the condition does not hold, and where it does
    offsets: tuple[int, int]
    first: tuple[int, int, str, int]  # a * j + b is compared with c
    second: tuple[int, int, int, str, int]  # d * j + e * lane + f + the thread's first element, with g
    joins: str  # the two

    def text(self) -> str:
        a, b, compare, c = self.first
        d, e, f, other, g = self.second
        end = f"const int end = {self.end};"
        if self.hides_end:
            end = f'int end;\n  asm("mov.s32 %0, {self.end};" : "=r"(end));'
        return f"""typedef long long i64;
extern "C" __global__ void k(const float* __restrict__ p0, float* __restrict__ p1) {{
  const int t = {self.lanes} * threadIdx.x;
  float sums[{self.lanes}] = {{}};
  {end}
  {self.pragma}
  for (int j = {self.begin}; j < end; j += {self.step}) {{
    const bool holds = (i64)({a} * j + {b}) {compare} {c}ll;
    #pragma unroll
    for (int l = 0; l < {self.lanes}; ++l) {{
      const int at = {d} * j + t + {e} * l + {f};
      const bool both = ((i64)at {other} {g}ll) {self.joins} holds;
      const float x = both ? 0.0f : p0[{self.strides[0]} * j + t + {self.offsets[0]} + l];
      const float y = both ? p0[{self.strides[1]} * j + {self.offsets[1]}] : 0.0f;
      sums[l] = sums[l] + (x + y);
    }}
  }}
  #pragma unroll
  for (int l = 0; l < {self.lanes}; ++l) p1[t + l] = sums[l];
}}
"""

    def sums(self) -> dict[int, float]:
        a, b, compare, c = self.first
        d, e, f, other, g = self.second
        t = self.lanes * self.thread
        result = {t + lane: 0.0 for lane in range(self.lanes)}
        for j in range(self.thread if self.begin != "0" else 0, self.end, self.step):
            for lane in range(self.lanes):
                holds = COMPARISONS[compare](a * j + b, c)
                at = COMPARISONS[other](d * j + t + e * lane + f, g)
                both = (at or holds) if self.joins == "|" else (at and holds)
                plain = self.strides[0] * j + t + self.offsets[0] + lane
                result[t + lane] += MEMORY[self.strides[1] * j + self.offsets[1] if both else plain]
        return result


def draw(kind: str, rng: random.Random) -> Loop:
    copies = rng.choice([2, 4, 4, 8])
    count = rng.randrange(2, 25)
    if kind == "within":
        count = rng.choice([n for n in range(copies + 1, 25) if n % copies])
    elif kind == "divided":
        count = copies * rng.randrange(1, 5)
    elif kind in ("even", "odd"):
        count = 2 * rng.randrange(1, 20) + (kind == "odd")
    pragma = {"whole": "#pragma unroll", "even": "", "odd": ""}.get(kind, f"#pragma unroll {copies}")
    is_by_thread = kind == "thread"
    strides = (rng.choice([-5, -4, -3, -1, 1, 2, 4, 5]), rng.choice([-5, -4, -1, 1, 3, 4]))
    offsets = tuple(max(0, -s * (count - 1)) for s in strides)
    compare, other = rng.choice(list(COMPARISONS)), rng.choice(["==", "!=", "<"])
    first = (rng.choice([-2, -1, -1, 1, 2]), rng.choice([1 - count, 0, 1, 4, count - 1]), compare,
             rng.choice([0, 1, 2, 3, count - 1, count]))  # fmt: skip
    second = (rng.choice([-1, 1]), rng.choice([0, 1]), rng.choice([1 - count, -4, 0, 2]), other, rng.choice([0, 1, 2]))
    return Loop("threadIdx.x" if is_by_thread else "0", count, rng.choice([1, 2, 3]) if is_by_thread else 1, pragma,
                kind == "hidden", rng.randrange(3) if is_by_thread else 0, rng.choice([1, 2, 4]), strides, offsets,
                first, second, rng.choice(["&", "|", "&&"]))  # fmt: skip


# --- NVRTC ----------------------------------------------------------------------------------------


def find_nvrtc() -> str:
    found = [ctypes.util.find_library("nvrtc"), "/usr/local/cuda/lib64/libnvrtc.so"]
    for folder in sys.path:
        found += sorted(map(str, pathlib.Path(folder).glob("nvidia/*/lib/libnvrtc.so.*")))
    for name in found:
        if name and ("/" not in name or pathlib.Path(name).exists()):
            return name
    raise SystemExit("no NVRTC: install the CUDA toolkit or nvidia-cuda-nvrtc, or name the library with --nvrtc")


class Nvrtc:
    def __init__(self, path: str, target: int):
        self._library = ctypes.CDLL(path)
        self._target = f"--gpu-architecture=compute_{target}".encode()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def ptx(self, text: str) -> str:
        program = ctypes.c_void_p()
        self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"loop.cu", 0, None, None)
        options = (ctypes.c_char_p * 3)(self._target, b"--fmad=false", b"--std=c++17")
        failed = self._library.nvrtcCompileProgram(program, len(options), options)
        what = "ProgramLog" if failed else "PTX"
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        result = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, result)
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        if failed:
            raise SystemExit(f"NVRTC refuses\n{text}\n{result.value.decode()}")
        return result.value.decode()


# --- PTX ------------------------------------------------------------------------------------------


def _signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def _f32(x: float) -> float:
    return struct.unpack("f", struct.pack("f", x))[0]


_INTEGERS: dict[str, Callable[..., int]] = {
    "add": operator.add, "sub": operator.sub, "mul.lo": operator.mul, "mul.wide": operator.mul,
    "mad.lo": lambda a, b, c: a * b + c, "shl": operator.lshift, "shr": operator.rshift, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "not": operator.invert, "neg": operator.neg, "min": min, "max": max,
}  # fmt: skip
_PREDICATES: dict[str, Callable[..., bool]] = {
    "and": lambda a, b: a and b, "or": lambda a, b: a or b, "xor": operator.ne, "not": operator.not_,
}  # fmt: skip
_RELATIONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "ge": ">=", "gt": ">"}


class Thread:
    """Runs a kernel's PTX. ``stored``: by element; ``outside``: elements that it reads beyond its input."""

    def __init__(self, ptx: str, number: int):
        header, body = ptx[ptx.index(".entry") :].split("{", 1)
        names = re.findall(r"\.param [^,)]*?(\w+)\s*[,)\n]", header)
        self._values: dict[str, Any] = {"%tid.x": number, **dict(zip(names, (INPUT, OUTPUT)))}
        self._lines: list[str] = []
        self._labels: dict[str, int] = {}
        self.stored: dict[int, float] = {}
        self.outside: list[int] = []
        for line in re.sub(r"//.*", "", body).splitlines():
            if label := re.match(r"\s*(\$\w+):", line):
                self._labels[label[1]] = len(self._lines)
            elif (line := line.strip().rstrip(";").strip()) and line not in "{}" and not line.startswith("."):
                self._lines.append(line)

    def run(self) -> None:
        at = 0
        while at < len(self._lines):
            line = self._lines[at]
            at += 1
            if guard := re.match(r"@(!?)(%p\d+)\s+(.*)", line):
                if self._values[guard[2]] == (guard[1] == "!"):
                    continue
                line = guard[3]
            op, *rest = line.split(None, 1)
            operands = [o.strip() for o in re.split(r",(?![^{]*\})", rest[0])] if rest else []
            if op == "ret":
                return
            if op.startswith("bra"):
                at = self._labels[operands[0]]
            else:
                self._step(op, operands)

    def _step(self, op: str, operands: list[str]) -> None:
        kind = op.split(".")[0]
        if kind == "ld" and ".param" in op:
            self._values[operands[0]] = self._values[operands[1].strip("[]")]
        elif kind == "ld":
            for i, to in enumerate(operands[0].strip("{}").split(",")):
                self._values[to.strip()] = self._load(self._address(operands[1]) + 4 * i)
        elif kind == "st":
            for i, value in enumerate(operands[1].strip("{}").split(",")):
                self.stored[(self._address(operands[0]) - OUTPUT) // 4 + i] = self._value(value.strip())
        else:
            self._values[operands[0]] = self._compute(op, [self._value(o) for o in operands[1:]])

    def _compute(self, op: str, values: list[Any]) -> Any:
        name, *middle, kind = op.split(".")
        if name in ("mov", "cvta", "cvt"):
            return values[0]
        if name == "selp":
            return values[0] if values[2] else values[1]
        bits = int(re.sub(r"\D", "", kind) or 0)
        if kind == "pred":
            return _PREDICATES[name](*values)
        if kind[0] == "u":
            values = [v & ((1 << bits) - 1) if not isinstance(v, bool) else v for v in values]
        if name == "setp":
            result = COMPARISONS[_RELATIONS[middle[0]]](*values[:2])
            return _PREDICATES[middle[1]](result, values[2]) if len(middle) > 1 else result
        if kind[0] == "f":
            return _f32({"add": operator.add, "mul": operator.mul}[name](*values))
        function = _INTEGERS[f"{name}.{middle[0]}" if middle else name]
        return _signed(function(*values), 64 if "wide" in middle else bits)

    def _value(self, text: str) -> Any:
        if text in self._values:
            return self._values[text]
        return struct.unpack(">f", bytes.fromhex(text[2:]))[0] if text.startswith("0f") else int(text, 0)

    def _address(self, text: str) -> int:
        base, offset = re.match(r"\[(%\w+)\+?(-?\d+)?\]", text).groups()
        return self._values[base] + int(offset or 0)

    def _load(self, address: int) -> float:
        element = (address - INPUT) // 4
        if 0 <= element < len(MEMORY):
            return MEMORY[element]
        self.outside.append(element)
        return float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=1000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--nvrtc", help="the library; else that of the CUDA toolkit, or of Python's packages")
    parser.add_argument("--target", type=int, default=90, help="compute capability, as 80, 90 or 100")
    given = parser.parse_args()
    if unknown := [k for k in given.kinds.split(",") if k not in KINDS]:
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    nvrtc = Nvrtc(given.nvrtc or find_nvrtc(), given.target)
    print(f"NVRTC {nvrtc.version}, sm_{given.target}\n\n| kind | loops | wrong |\n|---|---|---|")
    is_right = True
    for kind in given.kinds.split(","):
        wrong = 0
        for i in range(given.loops):
            loop = draw(kind, random.Random(f"{kind} {given.seed + i}"))
            thread = Thread(nvrtc.ptx(loop.text()), loop.thread)
            thread.run()
            if thread.stored != loop.sums() or thread.outside:
                wrong += 1
                print(f"seed {given.seed + i}: {loop}", file=sys.stderr)
        print(f"| {KINDS[kind]} | {given.loops} | {wrong} |", flush=True)
        is_right &= wrong == 0 or kind in AVOIDED
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
