"""Packages for a GPU: made where there is a compiler, run on a card from C, C++, Python and the
command, and compared with torch.

    python bench/gpu_packages.py prepare FOLDER     exports models, builds packages and a C++ program
    python bench/gpu_packages.py run FOLDER         on the card; needs torch and what is in the folder

``prepare`` takes the command, the runtime library and its headers from ``--build`` (build/). The
folder then runs on a machine without a compiler. ``run`` prints a line a check and ends with 1 if
one failed. What is not in the folder (command, Python module) is left out and named.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import importlib
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any, Callable

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]


# Models that are also built as PTX.
PTX = ("decoder_bf16", "resnet_bf16")

# --- Models -----------------------------------------------------------------------------------------


def _models() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...], Any]]]:
    """By name: what makes a model, its inputs, and the sizes that vary."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self, width: int, heads: int, causal: bool) -> None:
            super().__init__()
            self.heads, self.causal = heads, causal
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, mask: Any) -> Any:
            batch, length, width = x.shape
            parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))

    class Encoder(nn.Module):
        """Sentence embeddings: tokens and a mask to unit vectors."""

        def __init__(self, dtype: Any) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(1000, 256), nn.Embedding(128, 256)
            self.blocks = nn.ModuleList(Block(256, 8, False) for _ in range(2))
            self.to(dtype)

        def forward(self, ids: Any, mask: Any) -> Any:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            seen = mask[:, None, None, :] != 0
            for block in self.blocks:
                x = block(x, seen)
            weight = mask[:, :, None].float()
            pooled = (x.float() * weight).sum(1) / weight.sum(1)
            return functional.normalize(pooled, dim=1)

    class Decoder(nn.Module):
        def __init__(self, dtype: Any) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(500, 128), nn.Embedding(128, 128)
            self.blocks = nn.ModuleList(Block(128, 4, True) for _ in range(2))
            self.head = nn.Linear(128, 500, bias=False)
            self.to(dtype)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x, None)
            return self.head(x).float()

    class Residual(nn.Module):
        def __init__(self, channels: int, to: int, stride: int) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(channels, to, 3, stride, 1, bias=False), nn.Conv2d(to, to, 3, 1, 1, bias=False)
            self.na, self.nb = nn.BatchNorm2d(to), nn.BatchNorm2d(to)
            self.short = nn.Conv2d(channels, to, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            y = functional.relu(self.na(self.a(x)))
            return functional.relu(self.nb(self.b(y)) + self.short(x))

    class Resnet(nn.Module):
        def __init__(self, dtype: Any) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 32, 7, 2, 3)
            self.blocks = nn.Sequential(Residual(32, 64, 1), Residual(64, 128, 2))
            self.head = nn.Linear(128, 100)
            self.dtype = dtype
            self.to(dtype)

        def forward(self, image: Any) -> Any:
            x = functional.max_pool2d(functional.relu(self.stem(image.to(self.dtype))), 3, 2, 1)
            return self.head(self.blocks(x).mean((2, 3))).float()

    class Part(nn.Module):
        """One part of the network before, by itself."""

        def __init__(self, channels: int, dtype: Any, *parts: Any) -> None:
            super().__init__()
            self.parts, self.dtype, self.channels = nn.Sequential(*parts), dtype, channels
            self.to(dtype)

        def forward(self, image: Any) -> Any:
            return self.parts(image.to(self.dtype)).float()

    def part(channels: int, make: Callable[[], tuple[Any, ...]]) -> Callable[[Any], Any]:
        return lambda dtype: (Part(channels, dtype, *make()), (torch.randn(4, channels, 16, 16),), ({0: batch},))

    batch, length = torch.export.Dim("batch", min=1, max=256), torch.export.Dim("length", min=2, max=128)

    def text(most: int) -> Any:
        return torch.randint(0, most, (3, 24))

    def encoder(dtype: Any) -> tuple[Any, tuple[Any, ...], Any]:
        mask = (torch.arange(24)[None, :] < torch.tensor([24, 17, 9])[:, None]).long()
        return Encoder(dtype), (text(1000), mask), ({0: batch, 1: length}, {0: batch, 1: length})

    def decoder(dtype: Any) -> tuple[Any, tuple[Any, ...], Any]:
        return Decoder(dtype), (text(500),), ({0: batch, 1: length},)

    def resnet(dtype: Any) -> tuple[Any, tuple[Any, ...], Any]:
        return Resnet(dtype), (torch.randn(4, 3, 64, 64),), ({0: batch},)

    made = {"encoder": encoder, "decoder": decoder, "resnet": resnet,
            "convolution": part(32, lambda: (nn.Conv2d(32, 64, 3, 1, 1, bias=False),)),
            "with_bias": part(32, lambda: (nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU())),
            "with_norm": part(32, lambda: (nn.Conv2d(32, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())),
            "strided": part(32, lambda: (nn.Conv2d(32, 64, 1, 2, bias=False),)),
            "transposed": part(32, lambda: (nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ReLU())),
            "few_channels": part(3, lambda: (nn.Conv2d(3, 32, 7, 2, 3),)),
            "pool": part(32, lambda: (nn.ReLU(), nn.MaxPool2d(3, 2, 1))),
            "block": part(32, lambda: (Residual(32, 64, 2),))}
    dtypes = {"f32": torch.float32, "bf16": torch.bfloat16}
    return {f"{name}_{short}": (lambda make=make, dtype=dtype: make(dtype))
            for name, make in made.items() for short, dtype in dtypes.items()}


def make(name: str) -> tuple[Any, tuple[Any, ...], Any]:
    """The same model and inputs wherever it is called."""
    import torch

    torch.manual_seed(0)
    model, inputs, sizes = _models()[name]()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            # Drawn in f32: what is drawn in bf16 is another sequence in other versions of torch.
            module.running_mean.copy_(torch.randn(module.num_features))
            module.running_var.copy_(torch.rand(module.num_features) + 0.5)
    return model.eval(), inputs, sizes


# --- Where there is a compiler ----------------------------------------------------------------------


def prepare(arguments: argparse.Namespace) -> int:
    import torch

    folder, build = pathlib.Path(arguments.folder), pathlib.Path(arguments.build)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _models():
        model, inputs, sizes = make(name)
        with torch.no_grad():
            torch.export.save(torch.export.export(model, inputs, dynamic_shapes=sizes), folder / f"{name}.pt2")
        for suffix, targets in (("", [arguments.target]), ("_ptx", ["compute_80"])):
            if suffix and name not in PTX:
                continue
            done = subprocess.run([build / "inkle", "build", folder / f"{name}.pt2", "-o",
                                   folder / f"{name}{suffix}.inkle", *(a for t in targets for a in ("--target", t))],
                                  capture_output=True, text=True, check=False)
            print(f"{name}{suffix}: {done.stderr.strip() or 'built'}", flush=True)
        for i, x in enumerate(inputs):
            numpy.save(folder / f"{name}.{i}.npy", x.numpy())
    if arguments.with_command:
        shutil.copy(build / "inkle", folder / "inkle")
    library = folder / "libinkle_runtime.so.0"
    shutil.copy((build / "libinkle_runtime.so").resolve(), library)
    subprocess.run(["strip", library], check=True)
    program = ROOT / "bench" / "gpu_package.cpp"
    subprocess.run(["c++", "-std=c++17", "-O2", program, "-I", ROOT / "src" / "capi", library,
                    "-Wl,-rpath,$ORIGIN", "-o", folder / "gpu_package"], check=True)
    return 0


# --- On the card ------------------------------------------------------------------------------------


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int32),
                ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))]


class Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("integer", ctypes.c_int64), ("tensor", Tensor)]


HOST, DEVICE = 1, 4
DTYPES = {"float32": 9, "int64": 6}
NAMES = {9: numpy.float32, 6: numpy.int64}


class Program:
    """A program by the C API."""

    def __init__(self, library: ctypes.CDLL, path: pathlib.Path, device: str) -> None:
        self.library, self.program, self.results = library, ctypes.c_void_p(), ctypes.c_void_p()
        library.inkle_last_error.restype = library.inkle_program_device.restype = ctypes.c_char_p
        library.inkle_result_count.restype = ctypes.c_size_t
        self._check(library.inkle_load_on(os.fsencode(path), device.encode(), None, ctypes.byref(self.program)))
        self._check(library.inkle_results_new(ctypes.byref(self.results)))

    def close(self) -> None:
        self.library.inkle_results_release(self.results)
        self.library.inkle_program_release(self.program)

    def _check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"{status}: {self.library.inkle_last_error().decode()}")

    def device(self) -> str:
        return self.library.inkle_program_device(self.program).decode()

    def _values(self, inputs: list[Any]) -> Any:
        values = (Value * len(inputs))()
        for value, x in zip(values, inputs):
            on_device = not isinstance(x, numpy.ndarray)
            sizes = (ctypes.c_int64 * len(x.shape))(*x.shape)
            strides = x.stride() if on_device else [s // x.itemsize for s in x.strides]
            dtype = DTYPES[str(x.dtype).removeprefix("torch.")]
            value.kind = DEVICE if on_device else HOST
            value.tensor = Tensor(x.data_ptr() if on_device else x.ctypes.data, dtype, len(x.shape), sizes,
                                  (ctypes.c_int64 * len(x.shape))(*strides))
        return values

    def run(self, inputs: list[Any]) -> list[numpy.ndarray]:
        self._check(self.library.inkle_run(self.program, self._values(inputs), ctypes.c_size_t(len(inputs)),
                                           self.results))
        return self.arrays()

    def queue(self, inputs: list[Any], stream: int) -> None:
        self._check(self.library.inkle_run_on(self.program, ctypes.c_void_p(stream), self._values(inputs),
                                              ctypes.c_size_t(len(inputs)), self.results))

    def wait(self) -> None:
        self._check(self.library.inkle_results_wait(self.results))

    def fetch(self) -> list[numpy.ndarray]:
        self._check(self.library.inkle_results_fetch(self.results))
        return self.arrays()

    def arrays(self) -> list[numpy.ndarray]:
        made = []
        for i in range(self.library.inkle_result_count(self.results)):
            value = Value()
            self._check(self.library.inkle_result(self.results, ctypes.c_size_t(i), ctypes.byref(value)))
            t = value.tensor
            assert value.kind == HOST, value.kind
            dtype = numpy.dtype(NAMES[t.dtype])
            shape = [t.sizes[d] for d in range(t.rank)]
            strides = [t.strides[d] * dtype.itemsize for d in range(t.rank)]
            span = sum((n - 1) * s for n, s in zip(shape, strides)) + dtype.itemsize
            raw = ctypes.string_at(t.data, span)
            made.append(numpy.ndarray(shape, dtype, raw, 0, strides).copy())
        return made


@dataclasses.dataclass
class Wanted:
    """What a model's results are held to."""

    reference: list[numpy.ndarray]
    bound: float  # of the largest difference from it
    first: list[numpy.ndarray]  # from C


class Report:
    def __init__(self) -> None:
        self.failed = 0

    def line(self, name: str, what: str, ok: bool | None, detail: str = "") -> None:
        self.failed += ok is False
        word = {True: "ok", False: "FAILED", None: "--"}[ok]
        print(f"{name:14} {what:34} {word:7} {detail}", flush=True)

    def close(self, name: str, what: str, values: list[numpy.ndarray], wanted: Wanted, detail: str = "") -> None:
        """A program that measured the libraries' algorithms itself may have taken others than the
        first did: it is held to the reference, and told beside whether the bits are the first's."""
        if [v.shape for v in values] != [r.shape for r in wanted.reference]:
            self.line(name, what, False, f"shapes {[v.shape for v in values]}")
            return
        error = _difference(values, wanted.reference)
        same = _same(values, wanted.first)
        told = "same bits" if same else f"other bits, by {_difference(values, wanted.first):.2e}"
        self.line(name, what, error <= wanted.bound, "; ".join(t for t in (f"{error:.2e}, {told}", detail) if t))


def _difference(a: list[numpy.ndarray], b: list[numpy.ndarray]) -> float:
    return max(float(numpy.max(numpy.abs(x.astype("f8") - y.astype("f8")), initial=0)) for x, y in zip(a, b))


def _same(a: list[numpy.ndarray], b: list[numpy.ndarray]) -> bool:
    return len(a) == len(b) and all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b))


def _microseconds(call: Callable[[], Any], settle: Callable[[], Any], repeats: int = 50) -> float:
    best = float("inf")
    for _ in range(5):
        settle()
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        settle()
        best = min(best, (time.perf_counter() - begin) / repeats)
    return best * 1e6


def _run_model(name: str, folder: pathlib.Path, library: ctypes.CDLL, module: Any, report: Report) -> None:
    import torch

    package = folder / f"{name}.inkle"
    if not package.exists():
        report.line(name, "package", None, "was not built")
        return
    model, inputs, _ = make(name)
    model.cuda()
    on_card = [x.cuda() for x in inputs]
    arrays = [x.numpy() for x in inputs]
    with torch.no_grad():
        eager = [model(*on_card).cpu().numpy()]
    begin = time.perf_counter()
    program = Program(library, package, "cuda")
    load = time.perf_counter() - begin
    begin = time.perf_counter()
    first = program.run(arrays)
    took = time.perf_counter() - begin
    scale = max(float(numpy.max(numpy.abs(eager[0]), initial=0)), 1e-3)
    bound = scale * (3e-2 if name.endswith("bf16") else 2e-3)
    difference = _difference(first, eager)
    report.line(name, "C, host memory, against eager", difference <= bound,
                f"{difference:.2e} of {scale:.2e}; load {load * 1e3:.1f} ms, first call {took * 1e3:.1f} ms")
    report.line(name, "C, host memory, again", _same(program.run(arrays), first))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        program.queue(on_card, stream.cuda_stream)
    report.line(name, "C, device memory and a stream", _same(program.fetch(), first))
    other = [x[:2].contiguous() for x in on_card]
    with torch.no_grad():
        wanted = [model(*other).cpu().numpy()]
    program.queue(other, 0)
    report.line(name, "C, another batch", _difference(program.fetch(), wanted) <= bound)
    used = torch.cuda.memory_allocated()
    queued = _microseconds(lambda: program.queue(on_card, 0), torch.cuda.synchronize)
    with torch.no_grad():
        plain = _microseconds(lambda: model(*on_card), torch.cuda.synchronize)
    report.line(name, "time of a call", None, f"{queued:.1f} us, eager {plain:.1f} us ({used >> 20} MiB of torch)")
    if (folder / f"{name}_ptx.inkle").exists():
        begin = time.perf_counter()
        ptx = Program(library, folder / f"{name}_ptx.inkle", "cuda")
        load = time.perf_counter() - begin
        difference = _difference(ptx.run(arrays), eager)
        report.line(name, "PTX, against eager", difference <= bound, f"{difference:.2e}; load {load * 1e3:.1f} ms")
        ptx.close()
    results = Wanted(eager, bound, first)
    out = folder / f"{name}.out"
    done = subprocess.run([folder / "gpu_package", package, "cuda", out, *(folder / f"{name}.{i}.npy" for i in
                           range(len(inputs)))], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        report.close(name, "C++", [numpy.frombuffer(out.read_bytes(), "f4").reshape(first[0].shape)], results)
    else:
        report.line(name, "C++", False, done.stderr.strip())
    command = folder / "inkle"
    if command.exists():
        _run_command(name, command, folder, results, report)
    if module is not None and "device" in inspect.signature(module.load).parameters:
        _run_python(name, module, package, on_card, arrays, results, report)
    if hasattr(module, "inkle"):
        _run_compiled(name, model, on_card, first, report)
    program.close()


def _run_command(name: str, command: pathlib.Path, folder: pathlib.Path, wanted: Wanted, report: Report) -> None:
    out = folder / f"{name}.command"
    inputs = [a for p in sorted(folder.glob(f"{name}.[0-9].npy")) for a in ("--input", p)]
    done = subprocess.run([command, "run", folder / f"{name}.inkle", "--device", "cuda", *inputs, "--output", out],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        report.close(name, "command", [numpy.load(p) for p in sorted(out.glob("*.npy"))], wanted)
    else:
        report.line(name, "command", False, done.stderr.strip())


def _run_python(name: str, inkle: Any, package: pathlib.Path, on_card: list[Any], arrays: list[numpy.ndarray],
                wanted: Wanted, report: Report) -> None:
    import torch

    program = inkle.load(package, device="cuda")
    y = program(*on_card)
    taken = torch.from_dlpack(y)
    if not taken.is_cuda:
        report.line(name, "Python, CUDA tensors", False, f"a tensor of {taken.device}")
    report.close(name, "Python, CUDA tensors", [taken.cpu().numpy()], wanted, repr(y))
    report.close(name, "Python, NumPy", [program(*arrays).numpy()], wanted)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        queued = torch.from_dlpack(program.run_on(stream, *on_card)) * 2
        halves = (queued / 2).cpu().numpy()
    report.close(name, "Python, on a stream of torch", [halves], wanted)
    queue = _microseconds(lambda: program.run_on(0, *on_card), torch.cuda.synchronize)
    report.line(name, "time of a call from Python", None, f"{queue:.1f} us")


def _run_compiled(name: str, model: Any, on_card: list[Any], first: list[numpy.ndarray], report: Report) -> None:
    import torch

    with torch.no_grad():
        compiled = torch.compile(model, backend="inkle", dynamic=True)(*on_card).cpu().numpy()
    same = _same([compiled], first)
    report.line(name, "torch.compile(backend='inkle')", True if same else None,
                "same bits" if same else f"differs by {_difference([compiled], first):.2e}")


def _refusals(folder: pathlib.Path, library: ctypes.CDLL, report: Report) -> None:
    import torch

    package = folder / "encoder_f32.inkle"

    def refused(what: str, reason: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as error:
            report.line("refusals", what, reason in str(error), str(error))
        else:
            report.line("refusals", what, False, "was not refused")

    count = torch.cuda.device_count()
    refused("no such GPU", f"there is no GPU number {count}", lambda: Program(library, package, f"cuda:{count}"))
    refused("a GPU's package on the processor", "needs", lambda: Program(library, package, "cpu"))
    refused("another architecture", "sm_80", lambda: Program(library, package, "null:sm_80"))
    program = Program(library, package, "cuda")
    ids, mask = (numpy.load(folder / f"encoder_f32.{i}.npy") for i in (0, 1))
    good = program.run([ids, mask])
    wrong = ids.copy()
    wrong[1, 3] = 1000
    refused("an index out of range", "index", lambda: program.run([wrong, mask]))
    report.line("refusals", "a good call after it", _same(program.run([ids, mask]), good))
    card = [torch.from_numpy(x).cuda() for x in (wrong, mask)]

    def queued() -> None:
        program.queue(card, 0)
        program.wait()

    refused("an index out of range, on a stream", "index", queued)
    report.line("refusals", "a good call after it", _same(program.run([ids, mask]), good))
    program.close()


def run(arguments: argparse.Namespace) -> int:
    import torch

    folder = pathlib.Path(arguments.folder).resolve()
    report = Report()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    # cuBLASLt and cuDNN of torch's packages, which are found by name once they are loaded.
    torch.zeros(8, 8, device="cuda") @ torch.zeros(8, 8, device="cuda")
    library = ctypes.CDLL(os.fspath(folder / "libinkle_runtime.so.0"))
    sys.path.insert(0, os.fspath(folder / "python"))
    try:
        module = importlib.import_module("inkle")
    except ImportError as error:
        module = None
        report.line("python", "the module", None, str(error))
    for name in arguments.models.split(",") if arguments.models else _models():
        try:
            _run_model(name, folder, library, module, report)
        except Exception as error:  # noqa: BLE001: the next model is another matter
            report.line(name, "ended by", False, f"{type(error).__name__}: {error}")
    _refusals(folder, library, report)
    print(f"{report.failed} failed")
    return 1 if report.failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("folder")
    parser.add_argument("--build", default=os.fspath(ROOT / "build"))
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--models", default="")
    parser.add_argument("--with-command", action="store_true", help="which needs what it is linked with on the card")
    arguments = parser.parse_args()
    return prepare(arguments) if arguments.what == "prepare" else run(arguments)


if __name__ == "__main__":
    sys.exit(main())
