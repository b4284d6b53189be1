"""Kernels by name, as debuggers and profilers outside of the process see them."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest

from test_pt2 import command, inkle

GRAPH = """graph @test(%x: f32[64,1000]) -> f32[64,1000] {
  %0: f32[64,1000] = softmax(%x, -1)
  return %0
}
"""


@pytest.fixture
def graph(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "softmax.ir"
    path.write_text(GRAPH)
    numpy.save(tmp_path / "x.npy", numpy.ones((64, 1000), numpy.float32))
    return path


def run(graph: pathlib.Path) -> list[object]:
    folder = graph.parent
    return [command(), "run", graph, "-i", folder / "x.npy", "-o", folder / "out"]


def kernel_of(graph: pathlib.Path) -> str:
    found = re.findall(r"launch (softmax_[0-9a-f]{8}) ", inkle("compile", graph, "--stage", "plan").stdout)
    assert len(found) == 1
    return found[0]


def has_gdb() -> bool:
    """Whether there is a gdb, and processes may be traced here."""
    if shutil.which("gdb") is None:
        return False
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", "run", "/bin/true"], capture_output=True, text=True, timeout=60
    )
    return "exited normally" in done.stdout


needs_gdb = pytest.mark.skipif(
    not has_gdb(), reason="no gdb that may trace (scripts/setup --tests installs it)"
)


def gdb(*steps: str, program: list[object]) -> str:
    lines = [part for step in steps for part in ("-ex", step)]
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", "set breakpoint pending on", *lines, "--args", *map(str, program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "DEBUGINFOD_URLS": ""},
    )
    return done.stdout + done.stderr


@needs_gdb
def test_gdb_stops_in_a_kernel(graph: pathlib.Path) -> None:
    name = kernel_of(graph)
    said = gdb(
        f"break {name}", "run", "info symbol $pc", "backtrace 1",
        program=run(graph),
    )  # fmt: skip
    assert re.search(rf"Breakpoint 1, 0x[0-9a-f]+ in {name} \(\)", said), said
    assert re.search(rf"^{name}( \+ \d+)? in section \.text", said, re.MULTILINE), said
    assert re.search(rf"#0 +0x[0-9a-f]+ in {name} \(\)", said), said


PYTHON = """
import os
import signal

import torch

@torch.compile(backend="inkle")
def f(x):
    return torch.softmax(x, -1)

x = torch.randn(64, 1000)
torch.testing.assert_close(f(x), torch.softmax(x, -1))
os.kill(os.getpid(), signal.SIGTRAP)
"""


@needs_gdb
def test_gdb_knows_kernels_of_torch(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PYTHON)
    said = gdb("run", "info functions ^softmax_", program=[sys.executable, script])
    assert re.search(r"0x[0-9a-f]+  softmax_[0-9a-f]{8}$", said, re.MULTILINE), said


def test_perfs_map_names_kernels(graph: pathlib.Path) -> None:
    name = kernel_of(graph)
    with subprocess.Popen(
        run(graph),
        env={**os.environ, "INKLE_PERF": "map"},
        stdout=subprocess.DEVNULL,
    ) as process:
        assert process.wait(timeout=120) == 0
    path = pathlib.Path(f"/tmp/perf-{process.pid}.map")
    lines = path.read_text().splitlines()
    path.unlink()
    assert len(lines) == 1
    address, size, found = lines[0].split(" ")
    assert found == name
    assert int(address, 16) > 0 and int(size, 16) > 0


def test_another_value_is_refused(graph: pathlib.Path) -> None:
    done = subprocess.run(
        run(graph),
        env={**os.environ, "INKLE_PERF": "all"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "INKLE_PERF is 'all', expected map or jitdump" in done.stderr
