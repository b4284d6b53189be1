"""What torch's tools see of Inkle: TORCH_LOGS, TORCH_TRACE, torch.profiler."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch
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


def run_program(tmp_path, **environment) -> str:
    """Standard error of the program."""
    every = os.environ | {
        "PYTHONPATH": str(ROOT / "python"), "INKLE_CACHE_DIR": str(tmp_path / "cache"),
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=every | environment, cwd=tmp_path, text=True,
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


@pytest.mark.skipif(shutil.which("tlparse") is None, reason="no tlparse")
def test_tlparse_links_the_artefacts(tmp_path):
    run_program(tmp_path, TORCH_TRACE=str(tmp_path / "trace"))
    (log,) = (tmp_path / "trace").glob("*.log")
    subprocess.run(
        ["tlparse", str(log), "-o", str(tmp_path / "page"), "--no-browser"], check=True
    )
    page = (tmp_path / "page" / "index.html").read_text()
    assert "inkle_kernels" in page and "inkle_report" in page


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
