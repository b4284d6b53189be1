"""``inkle.doctor()``: whether an installation has all that it needs; what to do where it has not.

What the extension module sees comes from ``driver/doctor.cpp``, which ``inkle doctor`` prints, too.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import sys
from typing import Any, Callable, Iterator, TextIO

from inkle import _inkle

# Versions of torch that are tested, as pyproject.toml has them: from the first up to the second.
TORCH_VERSIONS = ((2, 11), (2, 16))
# All variables of the environment that Inkle reads.
VARIABLES = (
    "INKLE_CACHE_DIR", "INKLE_CACHE_LIMIT", "INKLE_CACHE_WAIT", "INKLE_DUMP_DIR", "INKLE_GEMM", "INKLE_ISA",
    "INKLE_LOG", "INKLE_NVRTC", "INKLE_PACKAGE_KEY", "INKLE_PASS_LIMIT", "INKLE_PERF", "INKLE_REMOTE_CACHE",
    "INKLE_REMOTE_CACHE_CA", "INKLE_REMOTE_CACHE_CERTIFICATE", "INKLE_REMOTE_CACHE_EXPIRY", "INKLE_REMOTE_CACHE_KEY", "INKLE_REMOTE_CACHE_KEY_FILE",
    "INKLE_REMOTE_CACHE_TIMEOUT",
)  # fmt: skip
_ENTRY_POINTS = "torch_dynamo_backends"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line: ``level`` is "ok", "warning" or "error"; ``remedy`` what to do, if anything."""

    level: str
    topic: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.level:<8} {self.topic}: {self.what}{remedy}"


def doctor(file: TextIO | None = None) -> list[Finding]:
    """Prints what is found, a line each, to ``file`` (standard output unless given), and returns it.

    Nothing is raised for what is wrong: those lines have the level "error".
    """
    found = []
    for finding in _examine():
        print(finding, file=file or sys.stdout, flush=True)
        found.append(finding)
    return found


def _examine() -> Iterator[Finding]:
    yield Finding("ok", "Inkle", f"{_version()} at {pathlib.Path(__file__).parent}")
    yield Finding("ok", "Python", f"{platform.python_version()} at {sys.executable}")
    yield from _torch()
    yield from _variables()
    for row in _inkle.examine():
        yield Finding(*row)
    if importlib.util.find_spec("torch") is not None:
        yield from _guarded("torch and the GPU", _gpu)
        yield from _guarded("AOTAutograd's cache", _aot_cache)
        yield from _guarded("smoke test", _smoke_tests)


def _guarded(topic: str, examine: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from examine()
    except Exception as error:  # noqa: BLE001: it is what this is for
        first = (str(error).splitlines() or [""])[0]
        what = f"{type(error).__name__}: {first}"
        yield Finding("error", topic, what, "report it with all these lines")


def _version() -> str:
    import inkle

    return inkle.__version__


def _torch() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        remedy = "install torch for torch.compile; inkle.load runs packages without it"
        yield Finding("warning", "torch", "there is none", remedy)
        return
    import torch

    numbers = re.match(r"(\d+)\.(\d+)", torch.__version__)
    version = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    least, beyond = TORCH_VERSIONS
    if least <= version < beyond:
        yield Finding("ok", "torch", torch.__version__)
    else:
        remedy = f"install torch>={_text(least)},<{_text(beyond)}"
        yield Finding("warning", "torch", f"{torch.__version__} is not tested", remedy)
    points = importlib.metadata.entry_points(group=_ENTRY_POINTS)
    if any(point.name == "inkle" for point in points):
        what = 'backend="inkle" is found without an import'
        yield Finding("ok", "entry point", what)
    else:
        remedy = 'import inkle before torch.compile(..., backend="inkle"), or install it with pip'
        yield Finding("warning", "entry point", f"there is none in {_ENTRY_POINTS}", remedy)


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _variables() -> Iterator[Finding]:
    for name in sorted(os.environ):
        if not name.startswith("INKLE_") or name in VARIABLES:
            continue
        near = difflib.get_close_matches(name, VARIABLES, n=1)
        remedy = f"did you mean {near[0]}?" if near else "docs/cache.md and docs/python.md have all"
        yield Finding("warning", "environment", f"Inkle reads no variable {name}", remedy)


def _gpu() -> Iterator[Finding]:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        what = f"CUDA {torch.version.cuda}: {', '.join(names)}"
        yield Finding("ok", "torch's GPUs", what)
    elif os.path.exists("/dev/nvidia0"):
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        remedy = "install a torch that the driver is new enough for"
        yield Finding("warning", "torch's GPUs", f"none are used, torch is built {built}", remedy)
    else:
        yield Finding("ok", "torch's GPUs", "none")


def _aot_cache() -> Iterator[Finding]:
    from inkle import aot_cache
    from inkle.options import parse

    if aot_cache.identity([], parse(None, None)):
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        yield Finding("ok", "AOTAutograd's cache", f"{cache_dir()}: keeps compiled graphs")
    elif aot_cache.HAS_SHORT_KEYS:
        remedy = "unset TORCHINDUCTOR_AUTOGRAD_CACHE, INKLE_DUMP_DIR and TORCH_COMPILE_DEBUG"
        yield Finding("warning", "AOTAutograd's cache", "it is off", remedy)
    else:
        yield Finding("ok", "AOTAutograd's cache", "of this torch keeps nothing of Inkle's")


def _smoke_tests() -> Iterator[Finding]:
    import torch

    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    for device in ("cpu", *(f"cuda:{i}" for i in gpus)):
        yield from _guarded(f"smoke test on {device}", lambda: _smoke_test(device))


def _smoke_test(device: str) -> Iterator[Finding]:
    """A step of training, against eager."""
    import torch

    def step(run: Callable[..., Any]) -> list[Any]:
        x, w = (t.clone().requires_grad_() for t in given)
        y = run(x, w)
        y.sum().backward()
        return [y.detach(), x.grad, w.grad]

    def program(x: Any, w: Any) -> Any:
        return torch.softmax(x @ w, -1).sin()

    generator = torch.Generator().manual_seed(0)
    sizes = ((16, 32), (32, 24))
    given = [torch.randn(s, generator=generator).to(device) for s in sizes]
    found = step(torch.compile(program, backend="inkle", options={"strict": True}))
    for one, wanted in zip(found, step(program)):
        torch.testing.assert_close(one, wanted, rtol=1e-2, atol=1e-3)
    yield Finding("ok", f"smoke test on {device}", "a step of training is compiled and run")
