"""inkle.doctor() and `inkle doctor`: what is found, and what to do about what is wrong."""

from __future__ import annotations

import io
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import inkle

doctor_module = sys.modules["inkle.doctor"]
ROOT = pathlib.Path(__file__).parents[2]
COMMAND = ROOT / "build" / "inkle"


def findings(monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = io.StringIO()
    found = inkle.doctor(file=out)
    assert out.getvalue().splitlines() == [str(f) for f in found]
    return {f.topic: f for f in found}


def test_all_is_well(monkeypatch):
    torch._dynamo.reset()
    found = findings(monkeypatch)
    wanted = {
        "Inkle", "Python", "torch", "build", "processor", "oneDNN", "threads", "GPU", "CUDA driver",
        "NVRTC", "cuBLASLt", "cuDNN", "NCCL", "cache", "torch's GPUs", "smoke test on cpu",
    }  # fmt: skip
    if torch.cuda.is_available():
        wanted -= {"GPU"}
        wanted |= {"GPU 0", "smoke test on cuda:0"}
    assert wanted <= found.keys(), wanted - found.keys()
    errors = [str(f) for f in found.values() if f.level == "error"]
    assert not errors
    assert all(bool(f.remedy) == (f.level != "ok") for f in found.values())


def test_another_torch_and_no_entry_point_are_warned_of(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    monkeypatch.setattr(doctor_module.importlib.metadata, "entry_points", lambda group: [])
    found = {f.topic: f for f in doctor_module._torch()}
    assert found["torch"].level == "warning" and "torch>=2.11,<2.16" in found["torch"].remedy
    assert found["entry point"].level == "warning" and "import inkle" in found["entry point"].remedy


def test_versions_of_torch_are_those_of_the_package():
    least, beyond = (".".join(map(str, v)) for v in doctor_module.TORCH_VERSIONS)
    assert f'"torch>={least},<{beyond}"' in (ROOT / "pyproject.toml").read_text()


def test_variables_that_nobody_reads_are_warned_of(monkeypatch):
    monkeypatch.setenv("INKLE_CACHEDIR", "/tmp")
    (finding,) = [f for f in doctor_module._variables() if "INKLE_CACHEDIR" in f.what]
    assert finding.level == "warning" and "INKLE_CACHE_DIR" in finding.remedy


def test_the_variables_are_those_of_the_code():
    read = set()
    for folder, pattern in (("src", "*.cpp"), ("src", "*.h"), ("python", "*.py")):
        for file in (ROOT / folder).rglob(pattern):
            text = file.read_text()
            read |= set(re.findall(r'(?:getenv|environ(?:\.get)?)[(\[]"(INKLE_[A-Z_]+)"', text))
            read |= set(re.findall(r'"(INKLE_REMOTE_CACHE[A-Z_]*|INKLE_CACHE_LIMIT)"', text))
    assert read <= set(doctor_module.VARIABLES), read - set(doctor_module.VARIABLES)
    assert len(read) > 8


def test_a_smoke_test_that_fails_is_an_error(monkeypatch):
    def wrong(device):
        raise RuntimeError("no code today\nsecond line")
        yield

    monkeypatch.setattr(doctor_module, "_smoke_test", wrong)
    found = list(doctor_module._smoke_tests())
    assert found[0].level == "error" and "RuntimeError: no code today" in found[0].what
    assert "second" not in str(found[0]) and "report it" in found[0].remedy


def command(**environment) -> tuple[int, list[str]]:
    done = subprocess.run(
        [COMMAND, "doctor"], env=os.environ | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


needs_command = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")


@needs_command
def test_the_command_tells_the_same(tmp_path):
    code, lines = command(INKLE_CACHE_DIR=str(tmp_path))
    assert code == 0, lines
    topics = [re.match(r"(ok|warning|error) +([^:]+): ", line)[2] for line in lines]
    assert {"processor", "oneDNN", "cache", "smoke test on cpu"} <= set(topics)
    assert not list(tmp_path.rglob("doctor-*"))


@needs_command
@pytest.mark.parametrize(
    "environment, level, text, code",
    [
        ({"INKLE_ISA": "nonsense"}, "error", "INKLE_ISA is 'nonsense'.*; unset INKLE_ISA", 1),
        ({"INKLE_CACHE_DIR": "/proc/nowhere"}, "warning", "cache: .*compiles anew; make it", 0),
        ({"INKLE_CACHE_DIR": ""}, "warning", "cache: there is none.*; set INKLE_CACHE_DIR", 0),
    ],
)
def test_what_is_wrong_says_what_to_do(environment, level, text, code):
    found, lines = command(**environment)
    assert any(re.search(rf"^{level} +.*{text}", line) for line in lines), lines
    assert found == code, lines
