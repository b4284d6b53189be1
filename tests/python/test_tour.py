"""docs/tour.md has what the commands print; and what the script that makes it says of wrong texts."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from test_pt2 import ROOT, command, inkle

TOUR = ROOT / "docs" / "tour.md"


def tour(*args: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "tour", "--command", command(), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_document_is_what_the_commands_print() -> None:
    done = tour("--check")
    assert done.returncode == 0, done.stdout + done.stderr


PROGRAM = """<!-- LLVM 0 -->
<!-- program: neg.py -->
```python
with open("neg.ir", "w") as file:
    file.write("graph @neg(%x: f32[8]) -> f32[8] {\\n  %0: f32[8] = neg(%x)\\n  return %0\\n}\\n")
```

<!-- made by: inkle compile neg.ir --stage plan --device cpu:x86-64-v3 --threads 1 -->
```
$ inkle compile neg.ir --stage plan --device cpu:x86-64-v3 --threads 1
plan @neg(x: f32[8] align 4) {
  out0 = output f32[8]
  launch neg_86939342 (x, out0) over 1
  return out0
}
```
"""


def test_a_block_that_differs_is_shown_and_written_anew(tmp_path: pathlib.Path) -> None:
    document = tmp_path / "tour.md"
    document.write_text(PROGRAM)
    same = tour("--check", "--document", document)
    assert same.returncode == 0 and "not compared" in same.stdout, same.stdout + same.stderr
    document.write_text(PROGRAM.replace("f32[8]\n", "f32[9]\n"))
    wrong = tour("--check", "--document", document)
    assert wrong.returncode == 1
    assert "-  out0 = output f32[9]\n+  out0 = output f32[8]\n" in wrong.stdout
    assert "f32[9]\n" in document.read_text(), "--check writes nothing"
    written = tour("--document", document)
    if (pathlib.Path(command()).parent / "CMakeCache.txt").is_file():
        assert written.returncode == 0, written.stderr
        assert re.sub("LLVM [0-9]+", "LLVM 0", document.read_text()) == PROGRAM
    else:
        assert written.returncode == 2 and "version of LLVM" in written.stderr


@pytest.mark.parametrize(
    "line, message",
    [
        ("inkle compile neg.ir --stage nothing", "--stage"),
        ("inkle compile none.pt2 --stage graph", "none.pt2"),
        ("inkle compile neg.ir --stage graph | from %7", "no line matches %7"),
        ("inkle compile neg.ir --stage graph | tail 3", "there is no filter 'tail'"),
        ("inkle compile neg.ir --stage kernel --after hoist | kernel 2", "there is no kernel 2, only 1"),
        ("ls", "expected inkle"),
    ],
)
def test_wrong_lines_are_errors(tmp_path: pathlib.Path, line: str, message: str) -> None:
    document = tmp_path / "tour.md"
    before = PROGRAM.partition("<!-- made by: ")[0]
    document.write_text(f"{before}<!-- made by: {line} -->\n```\n```\n")
    done = tour("--check", "--document", document)
    assert done.returncode == 2 and message in done.stderr, done.stdout + done.stderr


def test_stages_of_the_command(tmp_path: pathlib.Path) -> None:
    graph = tmp_path / "g.ir"
    graph.write_text("graph @g(%x: f32[8]) -> f32[8] {\n  %0: f32[8] = neg(%x)\n  return %0\n}\n")
    for device, passes in (
        ("cpu:x86-64-v3", ("expand", "hoist", "lower_indices")),
        ("null:sm_90a", ("expand", "numerics", "lower_collectives", "place_barriers")),
    ):
        shown = inkle("compile", graph, "--stage", "kernel", "--device", device).stdout
        assert [x[8:] for x in shown.splitlines() if x.startswith("# after ")] == list(passes)
        for name in passes:
            one = inkle("compile", graph, "--stage", "kernel", "--after", name, "--device", device)
            assert one.stdout.startswith("kernel @") and f"# after {name}\n{one.stdout}" in shown
    nests = inkle("compile", graph, "--stage", "nests", "--after", "choose_layouts").stdout
    assert nests.startswith("loops @g {") and "n0: pointwise" in nests
    for target, registers in (("cpu", "%[yz]mm"), ("cpu:x86-64-v3", "%ymm")):
        code = inkle("compile", graph, "--stage", "assembly", "--device", target).stdout
        assert re.search(registers, code)


def test_wrong_stages_are_errors(tmp_path: pathlib.Path) -> None:
    graph = tmp_path / "g.ir"
    graph.write_text("graph @g(%x: f32[8]) -> f32[8] {\n  %0: f32[8] = neg(%x)\n  return %0\n}\n")
    for options, message in (
        (("--stage", "kernel", "--after", "choose_layouts"), "stage kernel has no such pass"),
        (("--stage", "nests", "--after", "hoist"), "stage nests has no such pass"),
        (("--stage", "plan", "--after", "hoist"), "stage plan has no such pass"),
        (("--stage", "assembly", "--device", "null:sm_90a"), "for the CPU only"),
        (("--device", "cpu:x86-64-v9"), "unknown instruction set x86-64-v9"),
    ):
        assert message in inkle("compile", graph, *options, code=1).stderr
