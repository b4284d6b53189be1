"""inkle.profile, the profile command, and what the command says where there is no GPU."""

from __future__ import annotations

import os
import sys

import pytest
import torch
import test_inspect
import test_pt2

import inkle

GRAPH = """graph @block(%x: bf16[8,64], %w: bf16[32,64] param, %b: bf16[32] param) -> bf16[8,32] {
  %0: bf16[8,32] = linear(%x, %w, %b)
  %1: bf16[8,32] = softmax(%0, -1)
  return %1
}
"""
ATTENTION = """graph @heads(%q: bf16[2,4,16,8], %k: bf16[2,2,16,8]) -> bf16[2,4,16,8] {
  %0: bf16[2,4,16,8] = sdpa(%q, %k, %k, none, 0.0, true, none, true)
  return %0
}
"""


def test_rows_add_up():
    inkle.reset()
    layer = torch.nn.Linear(64, 32)
    with torch.no_grad():
        torch.compile(lambda x: torch.softmax(layer(x), -1), backend="inkle")(torch.randn(8, 64))
    profile = inkle.profile(inkle.reports()[-1], seconds=0.05)
    assert {row["kind"] for row in profile} == {"matmul", "kernel"}
    product = next(row for row in profile if row["kind"] == "matmul")
    assert product["flops"] == 2 * 8 * 64 * 32 and product["calls"] == 1
    assert all(row["microseconds"] > 0 and row["limit_microseconds"] > 0 for row in profile)
    assert str(profile).splitlines()[-1].endswith("%") and "bound by" in str(profile)


def test_arguments_that_share_memory():
    inkle.reset()
    x, y = torch.randn(1, 64).expand(5, 64), torch.randn(0, 3)
    torch.compile(lambda x, y: (x * 2, y + 1), backend="inkle")(x, y)
    assert inkle.profile(inkle.reports()[-1], seconds=0.05)


def test_a_graph_in_eager_has_no_profile():
    with pytest.raises(ValueError, match="was not compiled"):
        inkle.profile(inkle.GraphReport("graph", reason="no reason"))
    with pytest.raises(TypeError, match="a Linear is no report of inkle.reports()"):
        inkle.profile(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("text", [GRAPH, ATTENTION])
def test_the_command_runs_all_but_the_launches(tmp_path, text, monkeypatch):
    # The command finds NVRTC in the environment that is active, as a user's is.
    monkeypatch.setitem(os.environ, "VIRTUAL_ENV", sys.prefix)
    path = tmp_path / "graph.ir"
    path.write_text(text)
    assert "bound by" in test_pt2.inkle("profile", path, "--device", "null:sm_90a").stdout
    assert "output0: bf16" in test_pt2.inkle("run", path, "--random", "--device", "null:sm_90a").stdout
    assert "min" in test_pt2.inkle("bench", path, "--runs", 2, "--device", "null:sm_90a").stdout
    code = test_pt2.inkle("compile", path, "--stage", "code", "--device", "null:sm_90a").stdout
    page = tmp_path / "page.html"
    test_pt2.inkle("inspect", path, "-o", page, "--seconds", 0.01, "--device", "null:sm_90a")
    shown = page.read_text(encoding="utf-8")
    test_inspect.check(shown)
    assert "__global__" in code and "CUDA C++" in shown and "LLVM IR" not in shown


# On the CPU the moments are bf16.
NORM = """graph @norm(%x: bf16[8,64], %g: bf16[64], %b: bf16[64]) -> bf16[8,64] {
  %0: bf16[8,64], %1: bf16[8,1], %2: bf16[8,1] = native_layer_norm(%x, [64], %g, %b, 1e-05)
  %3: bf16[8,64] = mul(%0, %1)
  return %3
}
"""


def test_a_graph_of_the_cpu_gets_the_types_of_a_gpu(tmp_path):
    path = tmp_path / "graph.ir"
    path.write_text(NORM)
    shown = test_pt2.inkle("compile", path, "--stage", "graph", "--device", "null:sm_90a").stdout
    assert "%0: bf16[8,64]@cuda:0, %1: f32[8,1]@cuda:0, %2: f32[8,1]@cuda:0 = native" in shown


# cuDNN takes no bias of a transposed convolution, which is why a pass takes it off.
TRANSPOSED = """graph @g(%x: f32[1,16,8,8], %w: f32[16,16,3,3], %b: f32[16]) -> f32[1,16,10,10] {
  %0: f32[1,16,8,8] = exp(%x)
  %1: f32[1,16,10,10] = convolution(%0, %w, %b, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
  return %1
}
"""


def test_a_page_without_times_says_why(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "VIRTUAL_ENV", sys.prefix)
    page = tmp_path / "page.html"
    model = tmp_path / "transposed.ir"
    model.write_text(TRANSPOSED)
    test_pt2.inkle("inspect", model, "-o", page, "--device", "null:sm_90a", "--skip-pass", "separate_biases")
    shown = page.read_text(encoding="utf-8")
    test_inspect.check(shown)
    assert "a convolution of f32 needs PyTorch" in shown and "CUDA C++" in shown


def test_wrong_devices_are_errors_in_words(tmp_path):
    path = tmp_path / "graph.ir"
    path.write_text(GRAPH)
    wrong = test_pt2.inkle("run", path, "--random", "--device", "cuda:x", code=1)
    assert "expected cpu, cpu:x86-64-v3, cuda or cuda:NUMBER" in wrong.stderr
    if not torch.cuda.is_available():
        missing = test_pt2.inkle("run", path, "--random", "--device", "cuda", code=1)
        assert "no NVIDIA driver" in missing.stderr or "driver" in missing.stderr


def test_a_missing_nvrtc_is_an_error_in_words(tmp_path, monkeypatch):
    path = tmp_path / "graph.ir"
    path.write_text(GRAPH)
    monkeypatch.setitem(os.environ, "INKLE_NVRTC", "/nonexistent")
    monkeypatch.setitem(os.environ, "INKLE_CACHE_DIR", "")  # where the graph may be, compiled
    missing = test_pt2.inkle("run", path, "--random", "--device", "null:sm_90a", code=1)
    assert "no NVRTC" in missing.stderr and "/nonexistent" in missing.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_not_supported_and_no_crash():
    from inkle import _inkle

    with pytest.raises(_inkle.Unsupported, match="driver|GPU"):
        _inkle.Compiler.cuda(0)
