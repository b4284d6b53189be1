"""`inkle kernel run` on the texts that `inkle compile --stage kernel` prints."""

from __future__ import annotations

import re

import pytest

from test_pt2 import inkle

GRAPH = """graph @g(%x: f32[64,100]) -> f32[64,100] {
  %0: f32[64,100] = softmax(%x, 1)
  return %0
}
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    """A kernel for a GPU after its last pass that the interpreter takes."""
    graph = tmp_path_factory.mktemp("graph") / "softmax.txt"
    graph.write_text(GRAPH)
    printed = inkle("compile", graph, "--device", "null:sm_90a", "--stage", "kernel").stdout
    found = re.search(r"# after place_barriers\n(kernel @.*?\n}\n)", printed, re.DOTALL)
    assert found and "f32[?]" in found[1]
    return found[1]


def test_a_kernel_as_the_compiler_prints_it(text, tmp_path) -> None:
    file = tmp_path / "kernel.txt"
    file.write_text(text)
    done = inkle("kernel", "run", file, "--elements", 6400, "--seeds", 2)
    assert re.search(r"^[1-9]\d* runs, [1-9]\d* steps, 0 findings", done.stdout), done.stdout


def test_the_elements_of_arguments_are_asked_for(text, tmp_path) -> None:
    file = tmp_path / "kernel.txt"
    file.write_text(text)
    error = inkle("kernel", "run", file, code=1).stderr
    assert "kernel.txt: kernel softmax_" in error and "give --elements NUMBER" in error


def test_too_few_elements_are_a_finding(text, tmp_path) -> None:
    file = tmp_path / "kernel.txt"
    file.write_text(text)
    done = inkle("kernel", "run", file, "--elements", 6399, "--seeds", 1, code=1)
    assert "outside at" in done.stdout and "is not in 0..6399" in done.stdout
