"""Times kernel classes on one GPU in every system: eager, TorchInductor, Inkle.

    python bench/kernels.py                              all classes, and writes docs/benchmarks.md
    python bench/kernels.py --only softmax,gemm --systems eager,inkle --no-write

Each call is timed between two events, with the L2 cache overwritten before it and the card kept
waiting until all of it is queued: host time does not count. The table gives the rate at the median
time. Rates count what a class must read and write, or compute, at least. A
result is "wrong" if its RMS error against f32 is over 1.5 times that of eager plus a floor.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import statistics
import subprocess
import sys
import time
from typing import Any, Callable

import torch
import torch._functorch.config
import torch.nn.functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- kernels:begin -->", "<!-- kernels:end -->"
SYSTEMS = ("eager", "inductor", "inductor-max", "inkle", "inkle-max")
BF16, F32 = torch.bfloat16, torch.float32


@dataclasses.dataclass
class Class:
    """A function and its arguments; ``work``: least bytes moved, or floating operations."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    work: float
    unit: str = "TB/s"
    # Instead of function and arguments: what makes the call of a system, which changes tensors of
    # its own and returns one of them. Its kernels alone are timed, not the host.
    make: Callable[[str], Callable[[], torch.Tensor]] | None = None
    # The gradients of all arguments but the last, which is the result's gradient: they are timed.
    backward: bool = False


def _random(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def _bytes(*tensors: torch.Tensor) -> float:
    return float(sum(t.numel() * t.element_size() for t in tensors))


def _pointwise() -> list[Class]:
    x, y = _random(8192, 8192), _random(8192, 8192)
    a, b = _random(16384, 768), _random(768)
    return [
        Class("gelu(x+y)*x, 8192x8192", lambda x, y: F.gelu(x + y) * x, (x, y), _bytes(x, x, y)),
        Class("gelu(x+b), 16384x768", lambda a, b: F.gelu(a + b), (a, b), _bytes(a, a, b)),
        Class("x.t() + y", lambda x, y: x.t() + y, (x, y), _bytes(x, x, y)),
    ]


def _rows() -> list[Class]:
    x, wide = _random(8192, 8192), _random(512, 131072)
    a, r = _random(16384, 768), _random(16384, 768)
    g, b = _random(8192), _random(8192)
    small_g, small_b = _random(768), _random(768)

    def rms_norm(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), g, 1e-6)

    def layer_norm(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[-1],), g, b)

    return [
        Class("softmax 8192x8192", lambda x: F.softmax(x, -1), (x,), _bytes(x, x)),
        Class("softmax 512x131072", lambda x: F.softmax(x, -1), (wide,), _bytes(wide, wide)),
        Class("layer norm 8192x8192", layer_norm, (x, g, b), _bytes(x, x)),
        Class("layer norm(x+r) 16384x768", lambda x, r, g, b: layer_norm(x + r, g, b),
              (a, r, small_g, small_b), _bytes(a, a, a)),
        Class("rms norm 8192x8192", rms_norm, (x, g), _bytes(x, x)),
        Class("sum of all, 8192x8192", lambda x: x.sum(), (x,), _bytes(x)),
        Class("sum over rows (dim 0)", lambda x: x.sum(0), (x,), _bytes(x)),
        Class("cumsum rows 8192x8192", lambda x: x.cumsum(-1), (x,), _bytes(x, x)),
        Class("argmax rows 8192x8192", lambda x: x.argmax(-1), (x,), _bytes(x)),
    ]  # fmt: skip


def _norms() -> list[Class]:
    def layer_norm(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[-1],), g, b)

    def rms_norm(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), g, 1e-6)

    classes = []
    for rows, columns in ((16384, 768), (8192, 8192)):
        x, d = _random(rows, columns), _random(rows, columns)
        g, b = _random(columns), _random(columns)
        size, work = f"{rows}x{columns}", _bytes(x, d, x)
        classes.append(Class(f"layer norm backward {size}", layer_norm, (x, g, b, d), work,
                             backward=True))  # fmt: skip
        classes.append(Class(f"rms norm backward {size}", rms_norm, (x, g, d), work, backward=True))
    return classes


def _loss() -> list[Class]:
    x = _random(8192, 50257)
    target = torch.randint(0, 50257, (8192,), device="cuda")
    return [Class("cross entropy 8192x50257", F.cross_entropy, (x, target), _bytes(x))]


def _gemm() -> list[Class]:
    def linear(name: str, m: int, k: int, n: int, f: Callable[..., Any], *more: torch.Tensor) -> Class:
        arguments = (_random(m, k), _random(n, k) / k**0.5, _random(n), *more)
        return Class(name, f, arguments, 2.0 * m * k * n, "TFLOP/s")

    return [
        linear("linear 8192x768x3072", 8192, 768, 3072, F.linear),
        linear("linear+gelu (erf) 8192x768x3072", 8192, 768, 3072,
               lambda x, w, b: F.gelu(F.linear(x, w, b))),
        linear("linear+gelu (tanh) 8192x768x3072", 8192, 768, 3072,
               lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh")),
        linear("linear+residual 8192x3072x768", 8192, 3072, 768,
               lambda x, w, b, r: F.linear(x, w, b) + r, _random(8192, 768)),
        linear("linear+relu 4096^3", 4096, 4096, 4096, lambda x, w, b: F.relu(F.linear(x, w, b))),
    ]  # fmt: skip


def _attention() -> list[Class]:
    def case(name: str, b: int, h: int, s: int, d: int, causal: bool) -> Class:
        q, k, v = (_random(b, h, s, d) for _ in range(3))
        work = 4.0 * b * h * s * s * d / (2 if causal else 1)
        return Class(name, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                     (q, k, v), work, "TFLOP/s")  # fmt: skip

    return [
        case("attention 16x12x512x64", 16, 12, 512, 64, False),
        case("attention causal 4x32x4096x128", 4, 32, 4096, 128, True),
    ]


def _convolution() -> list[Class]:
    def case(name: str, n: int, c: int, s: int, o: int, k: int) -> Class:
        x = _random(n, c, s, s).to(memory_format=torch.channels_last)
        w = (_random(o, c, k, k) / (c * k * k) ** 0.5).to(memory_format=torch.channels_last)
        return Class(name, lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=k // 2)),
                     (x, w, _random(o)), 2.0 * n * s * s * c * o * k * k, "TFLOP/s")  # fmt: skip

    return [
        case("conv 3x3 128x256x28x28 +relu", 128, 256, 28, 256, 3),
        case("conv 1x1 128x256x56x56 to 64 +relu", 128, 256, 56, 64, 1),
    ]


def bert_sizes() -> list[tuple[int, ...]]:
    """The parameters of bert-base with its masked language model head, 114 million numbers."""
    sizes: list[tuple[int, ...]] = [(30522, 768), (512, 768), (2, 768), (768,), (768,)]
    for _ in range(12):
        for o, i in [(768, 768)] * 4 + [(3072, 768), (768, 3072)]:
            sizes += [(o, i), (o,)]
        sizes += [(768,)] * 4
    return [*sizes, (768, 768), (768,), (768,), (768,), (30522,)]


def _optimizer() -> list[Class]:
    sizes = bert_sizes()
    count = sum(torch.Size(s).numel() for s in sizes)

    def make(system: str) -> Callable[[], torch.Tensor]:
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(_random(*s, dtype=F32)) for s in sizes]
        for p in parameters:
            p.grad = _random(*p.shape, dtype=F32)
        fused = {"fused": True} if system == "eager" else {"capturable": True}
        rate = torch.tensor(1e-3, device="cuda")
        optimizer = torch.optim.AdamW(parameters, lr=rate, **fused)
        step = _compile(system, optimizer.step)

        def call() -> torch.Tensor:
            step()
            return parameters[0].detach()

        return call

    name = f"AdamW f32, {count / 1e6:.0f}M parameters"
    return [Class(name, lambda: None, (), 28.0 * count, make=make)]


_GROUPS: dict[str, Callable[[], list[Class]]] = {
    "pointwise": _pointwise, "rows": _rows, "norms": _norms, "loss": _loss, "gemm": _gemm,
    "attention": _attention, "convolution": _convolution, "optimizer": _optimizer,
}  # fmt: skip


def _compile(system: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if system == "eager":
        return function
    import inkle  # noqa: F401: registers the backend

    mode = "max-autotune-no-cudagraphs" if system.endswith("-max") else None
    return torch.compile(function, backend=system.removesuffix("-max"), mode=mode, dynamic=False)


_scratch: list[torch.Tensor] = []


# The card waits so long before each call, while the host queues it: 0.25 ms, more than any system's
# host time.
_HOST_CYCLES = 500_000


def microseconds(call: Callable[[], Any], seconds: float, clean: bool = False) -> float:
    """The median time of one call on the card, with a cold L2 cache: of lines that it must write back
    first, or ``clean``."""
    if not _scratch:
        _scratch.append(torch.zeros(256 << 20, dtype=torch.int8, device="cuda"))
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 20:
        pairs = []
        for _ in range(10):
            if clean:
                _scratch[0].view(torch.int64).amax()
            else:
                _scratch[0].zero_()
            torch.cuda._sleep(_HOST_CYCLES)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        times += [start.elapsed_time(end) * 1e3 for start, end in pairs]
    return statistics.median(times)


def device_microseconds(call: Callable[[], Any], calls: int = 10) -> float:
    """The median over calls of the time in their kernels."""
    for _ in range(3):
        call()
    times = []
    for _ in range(calls):
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize()
        times.append(sum(event.device_time_total for event in profile.key_averages()))
    return statistics.median(times)


def run_made(c: Class, systems: list[str]) -> dict[str, Any]:
    """The first two results of each system are compared with eager's."""
    row: dict[str, Any] = {}
    wanted = None
    for system in ["eager", *(s for s in systems if s != "eager")]:
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        call = c.make(system)
        call()
        found = call().clone()
        wanted = found if wanted is None else wanted
        right = (found - wanted).abs().max().item() <= 1e-5
        row[system] = c.work / device_microseconds(call) * 1e-6 if right else "wrong"
    return {system: row[system] for system in systems}


def _call(c: Class, function: Callable[..., Any], arguments: Any) -> Callable[[], Any]:
    """What is timed, with its results in a tuple where there are several."""
    if not c.backward:
        return lambda: function(*arguments)
    leaves = [a.detach().requires_grad_() for a in arguments[:-1]]
    with torch.enable_grad():
        result = function(*leaves)
    return lambda: torch.autograd.grad(result, leaves, arguments[-1], retain_graph=True)


def _results(made: Any) -> list[torch.Tensor]:
    return list(made) if isinstance(made, tuple) else [made]


def _reference(c: Class) -> list[torch.Tensor]:
    arguments = [a.float() if a.is_floating_point() else a for a in c.arguments]
    return [t.double() for t in _results(_call(c, c.function, arguments)())]


def _errors(got: Any, reference: list[torch.Tensor]) -> list[float]:
    return [(a.double() - b).square().mean().sqrt().item()
            for a, b in zip(_results(got), reference, strict=True)]  # fmt: skip


def run(
    groups: list[str], systems: list[str], seconds: float, clean: bool
) -> list[tuple[Class, dict[str, Any]]]:
    results = []
    for group in groups:
        for c in _GROUPS[group]():
            row: dict[str, Any] = {}
            if c.make is not None:
                with torch.enable_grad():
                    results.append((c, run_made(c, systems)))
                print(c.name, results[-1][1], flush=True)
                continue
            reference = _reference(c)
            eager = _errors(_call(c, c.function, c.arguments)(), reference)
            floors = [1e-3 * r.abs().max().item() for r in reference]
            for system in systems:
                torch._dynamo.reset()
                try:
                    call = _call(c, _compile(system, c.function), c.arguments)
                    found = _errors(call(), reference)
                    right = all(e <= 1.5 * f + g for e, f, g in zip(found, eager, floors))
                    us = microseconds(call, seconds)
                    row[system] = c.work / us * 1e-6 if right else "wrong"
                    if clean:
                        us = microseconds(call, seconds, clean=True)
                        row[f"{system}, clean"] = c.work / us * 1e-6
                except Exception as error:  # noqa: BLE001: one class must not stop the others
                    row[system] = "-"
                    print(f"{c.name}, {system}: {type(error).__name__}: {str(error)[:200]}",
                          file=sys.stderr)  # fmt: skip
            results.append((c, row))
            print(c.name, {k: v if isinstance(v, str) else round(v, 2) for k, v in row.items()},
                  flush=True)  # fmt: skip
    return results


def table(results: list[tuple[Class, dict[str, Any]]], systems: list[str]) -> str:
    lines = ["| class, bf16 | unit | " + " | ".join(systems) + " |", "|" + "---|" * (len(systems) + 2)]
    for c, row in results:
        digits = 2 if c.unit == "TB/s" else 0
        values = (row.get(s, "-") for s in systems)
        cells = [v if isinstance(v, str) else f"{v:.{digits}f}" for v in values]
        lines.append(f"| {c.name} | {c.unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def clocks() -> str:
    """Of the card while it is busy, and at most, MHz; empty where nvidia-smi does not tell."""
    asked = "clocks.sm,clocks.max.sm,clocks.mem,power.limit"
    torch.cuda._sleep(2_000_000_000)
    try:
        said = subprocess.run(
            ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits",
             "-i", f"GPU-{torch.cuda.get_device_properties(0).uuid}"],
            capture_output=True, text=True, timeout=10, check=True,
        ).stdout.split(",")  # fmt: skip
        sm, most, memory, power = (x.strip() for x in said)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    finally:
        torch.cuda.synchronize()
    return f", {sm} of {most} MHz, memory {memory} MHz, {power} W"


def machine() -> str:
    p = torch.cuda.get_device_properties(0)
    return (f"{p.name}, {p.multi_processor_count} multiprocessors{clocks()}, torch "
            f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN "
            f"{torch.backends.cudnn.version()}")  # fmt: skip


def write(text: str) -> None:
    path = os.path.join(ROOT, "docs", "benchmarks.md")
    with open(path) as file:
        page = file.read()
    if BEGIN not in page:
        page += f"\n## Kernel classes on a GPU\n\n{BEGIN}\n{END}\n"
    page = re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n{text}\n{END}",
                  page, flags=re.S)  # fmt: skip
    with open(path, "w") as file:
        file.write(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(_GROUPS), help="groups of classes")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--seconds", type=float, default=0.2, help="for each class and system")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--clean", action="store_true",
                        help="also with an L2 cache overwritten by reading: nothing to write back")
    arguments = parser.parse_args()
    systems = arguments.systems.split(",")
    # A backward runs many times on what one forward has kept.
    torch._functorch.config.donated_buffer = False
    with torch.no_grad():
        results = run(arguments.only.split(","), systems, arguments.seconds, arguments.clean)
    if arguments.clean:
        systems = [name for s in systems for name in (s, f"{s}, clean")]
    text = f"{machine()}\n\n{table(results, systems)}"
    print(text)
    if not arguments.no_write:
        write(text)


if __name__ == "__main__":
    main()
