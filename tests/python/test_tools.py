"""What torch's tools see of Inkle: TORCH_LOGS, TORCH_TRACE, torch.profiler."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import inkle
from checks import compiled, randn, same

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()


PROGRAM = """
import torch
run = torch.compile(lambda x, w: torch.linalg.det((x @ w).relu() + 1), backend="inkle")
with torch.no_grad():
    run(torch.eye(8), torch.eye(8))
"""


TRAINING = """
import torch
run = torch.compile(lambda x, w: torch.linalg.det((x @ w).relu() + 1), backend="inkle")
run(torch.eye(8), torch.eye(8, requires_grad=True)).sum().backward()
"""


def run_program(tmp_path, program=PROGRAM, **environment) -> str:
    """Standard error of the program."""
    every = os.environ | {
        "PYTHONPATH": str(ROOT / "python"), "INKLE_CACHE_DIR": str(tmp_path / "cache"),
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], env=every | environment, cwd=tmp_path, text=True,
        stderr=subprocess.PIPE, check=True,
    )  # fmt: skip
    return done.stderr


@pytest.mark.parametrize("logs, tells, tells_steps", [("", 0, 0), ("inkle", 1, 0), ("+inkle", 1, 1)])
def test_torch_logs(logs, tells, tells_steps, tmp_path):
    lines = run_program(tmp_path, TORCH_LOGS=logs).splitlines() if logs else []
    lines = lines or run_program(tmp_path).splitlines()
    ours = [line for line in lines if "inkle: " in line]
    assert any("is compiled in" in line and "launches of" in line for line in ours) == tells, lines
    assert any("det" in line and "runs in eager" in line for line in ours) == tells
    assert any("step 0, " in line for line in ours) == tells_steps
    assert any("schedule took" in line for line in ours) == tells_steps


def artefacts(folder: pathlib.Path) -> dict[str, str]:
    """By name, those of torch's trace: a line of JSON each, then the payload, indented."""
    found: dict[str, str] = {}
    name = None
    for file in folder.glob("*.log"):
        for line in file.read_text().splitlines():
            if line.startswith("\t"):
                if name is not None:
                    found[name] += line[1:] + "\n"
                continue
            head = json.loads(line[line.index("{") :])
            name = head.get("artifact", {}).get("name")
            if name is not None:
                found[name] = ""
    return found


def test_torch_trace_has_each_stage_as_an_artefact(tmp_path):
    run_program(tmp_path, TORCH_TRACE=str(tmp_path / "trace"))
    found = artefacts(tmp_path / "trace")
    stages = {f"inkle_{stage}" for stage in ("graph", "passes", "loops", "kernels", "plan")}
    assert stages | {"inkle_report", "inkle_fallbacks"} <= found.keys(), found.keys()
    assert "relu" in found["inkle_graph"] and "plan @" in found["inkle_plan"]
    assert "det" in found["inkle_fallbacks"]
    report = json.loads(found["inkle_report"])
    assert report["compiled"] and report["steps"] and report["stages"]


def test_the_trace_of_training_has_the_joint_graph(tmp_path):
    run_program(tmp_path, TRAINING, TORCH_TRACE=str(tmp_path / "trace"))
    found = artefacts(tmp_path / "trace")
    stages = {f"inkle_{stage}" for stage in ("joint", "loops", "kernels", "plan")}
    assert stages | {"inkle_report", "inkle_fallbacks"} <= found.keys(), found.keys()
    assert "relu" in found["inkle_joint"] and "tangents" in found["inkle_joint"]


# Where scripts/setup puts it, or on PATH.
TLPARSE = shutil.which("tlparse", path=os.path.dirname(sys.executable)) or shutil.which("tlparse")
BY_PROGRAM = {
    "inference": (PROGRAM, ("graph", "passes", "loops", "kernels", "plan", "report", "fallbacks")),
    "training": (TRAINING, ("joint", "loops", "kernels", "plan", "report", "fallbacks")),
}


@pytest.mark.skipif(TLPARSE is None, reason="no tlparse")
@pytest.mark.parametrize("way", BY_PROGRAM)
def test_tlparse_links_the_artefacts(tmp_path, way):
    program, names = BY_PROGRAM[way]
    run_program(tmp_path, program, TORCH_TRACE=str(tmp_path / "trace"))
    (log,) = (tmp_path / "trace").glob("*.log")
    folder = tmp_path / "page"
    subprocess.run([TLPARSE, str(log), "-o", str(folder), "--no-browser"], check=True)
    page = (folder / "index.html").read_text()
    for name in names:
        links = re.findall(rf'href="([^"]*inkle_{name}[^"]*)"', page)
        assert links and all((folder / link).read_text().strip() for link in links), (name, links)


def program(x, w):
    return torch.linalg.det((x @ w).exp().cumsum(0).softmax(1))


def names_of(run, inputs, **options) -> list[str]:
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        run(*inputs)
    return [event.name for event in profiler.events()]


def test_the_profiler_sees_calls_and_kernels_by_name():
    run = compiled(program, strict=False)
    inputs = [torch.eye(64), torch.eye(64)]
    with torch.no_grad():
        same(run(*inputs), program(*inputs), 1e-3)
    (report,) = inkle.reports()
    names = names_of(run, inputs)
    kernels = [step["kernel"] for step in report.steps if step["kind"] == "kernel"]
    assert kernels and [name for name in names if name in kernels] == kernels
    assert names.count(f"inkle::{report.name}") == 1
    assert "inkle::matmul" in names and any("det" in name for name in names)
    assert names_of(run, inputs) == names


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_profiler_sees_kernels_on_both_devices(on_gpu):
    """CUPTI's events are of functions of the code, the processor's of the steps that launch them."""
    run = compiled(lambda x, w: (x @ w).exp().cumsum(0).softmax(1))
    inputs = [torch.eye(64), torch.eye(64)]
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.no_grad():
        run(*inputs)
        torch.cuda.synchronize()
        with profile(activities=both) as profiler:
            run(*inputs)
            torch.cuda.synchronize()
    (report,) = inkle.reports()
    kernels = [step["kernel"] for step in report.steps if step["kind"] == "kernel"]
    events = profiler.events()
    launched = [e.name for e in events if e.device_type == DeviceType.CPU]
    ran = [e.name for e in events if e.device_type == DeviceType.CUDA]
    assert kernels and [name for name in launched if name in kernels] == kernels
    assert not [name for name in kernels if not any(name in one for one in ran)], ran
    assert launched.count(f"inkle::{report.name}") == 1


def test_events_of_steps_lie_within_that_of_their_call():
    run = compiled(program, strict=False)
    inputs = [torch.eye(64), torch.eye(64)]
    names_of(run, inputs)  # compiles
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        run(*inputs)
    (report,) = inkle.reports()
    (call,) = [e for e in profiler.events() if e.name == f"inkle::{report.name}"]
    children = [child.name for child in call.cpu_children]
    assert len(children) >= len(report.steps)
    assert all(child.time_range.end <= call.time_range.end for child in call.cpu_children)


def test_calls_that_raise_under_a_profiler_end_their_events():
    run = compiled(lambda x, i: x[i] + 1, strict=False)
    x = randn(4)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            with pytest.raises((IndexError, RuntimeError)):
                run(x, torch.tensor([7]))
        same(run(x, torch.tensor([1])), x[1:2] + 1)
    calls = [e for e in profiler.events() if e.name.startswith("inkle::graph")]
    assert len(calls) == 3 and all(e.cpu_parent not in calls for e in calls)


def test_backward_and_threads_are_seen():
    run = compiled(lambda x: x.exp().cumsum(0))
    x = randn(64, requires_grad=True)
    run(x).sum().backward()
    reports = inkle.reports()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run(x).sum().backward()
    names = [event.name for event in profiler.events()]
    for report in reports:
        for step in report.steps:
            if step["kind"] == "kernel":
                assert step["kernel"] in names
    assert sum(name.startswith("inkle::graph") for name in names) == 2
