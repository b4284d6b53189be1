"""The lists of the documents are those of the tables, in the order in which the compiler runs them."""

from __future__ import annotations

import pathlib
import re

import pytest

from test_pt2 import ROOT, inkle


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next one of the same or a higher level."""
    text = (ROOT / "docs" / page).read_text()
    level = heading.split(" ")[0]
    begin = text.index(f"\n{heading}\n") + len(heading) + 2
    end = re.search(rf"^#{{1,{len(level)}}} ", text[begin:], re.M)
    return text[begin:] if end is None else text[begin : begin + end.start()]


def tables(text: str) -> list[list[str]]:
    """The first column of each table whose first column holds names in code."""
    found: list[list[str]] = []
    previous = ""
    for line in text.splitlines():
        name = re.match(r"\| `(\w+)` \|", line)
        if name is not None:
            if not previous.startswith("|"):
                raise AssertionError("a table begins with its heading")
            if previous.startswith("|---"):
                found.append([])
            found[-1].append(name[1])
        previous = line
    return found


def listed() -> tuple[list[str], list[str], list[str]]:
    """Graph passes by name, those of the pipeline in order, nest passes in order."""
    text = inkle("opt", "--list").stdout
    graph, _, rest = text.partition("\nThe compiler runs: ")
    pipeline, _, nests = rest.partition("\n")
    names = [line.split()[0] for line in graph.splitlines() if line.strip()]
    order = [line.split()[0] for line in nests.splitlines() if line.strip() and not line.endswith("):")]
    return names, pipeline.split(), order


def test_graph_passes_are_documented_in_their_order() -> None:
    names, pipeline, _ = listed()
    standard, joint = tables(section("passes.md", "## Passes"))
    assert standard == list(dict.fromkeys(pipeline))
    assert sorted(standard + joint) == names


def test_nest_passes_are_documented_in_their_order() -> None:
    _, _, order = listed()
    assert tables(section("schedule.md", "## Passes")) == [order]


def test_kernel_passes_are_documented_in_their_order(tmp_path: pathlib.Path) -> None:
    model = tmp_path / "neg.ir"
    model.write_text("graph @neg(%x: f32[8]) -> f32[8] {\n  %0: f32[8] = neg(%x)\n  return %0\n}\n")
    run = []
    for device in ("cpu:x86-64-v3", "null:sm_90a"):
        text = inkle("compile", model, "--stage", "kernel", "--device", device).stdout
        run.append(re.findall(r"^# after (?!expand$)(\w+)$", text, re.M))
    assert tables(section("kernel.md", "## Passes")) == run


def glossary() -> list[list[str]]:
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = []
    for part in text.split("\n## ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
        rows.append([line.split(" | ")[0].removeprefix("| ") for line in lines])
    return rows


def test_the_glossary_is_sorted_and_says_each_word_once() -> None:
    words = [word for rows in glossary() for word in rows]
    assert len(words) == len(set(words))
    for rows in glossary():
        assert rows == sorted(rows, key=str.lower)


@pytest.mark.parametrize("page", ["../README.md", "tour.md"])
def test_the_glossary_is_linked(page: str) -> None:
    assert "glossary.md)" in (ROOT / "docs" / page).read_text()


def test_files_that_pages_name_exist() -> None:
    known = {path.name for part in ("src", "python", "tests", "bench", "scripts", "examples", "cmake", "docs")
             for path in (ROOT / part).rglob("*.*")}  # fmt: skip
    missing = [
        f"{page.name}: {name}"
        for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
        for name in re.findall(r"`(?:[\w/]+/)?(\w+\.(?:cpp|h|test|fbs))`", page.read_text())
        if name not in known
    ]
    assert missing == []
    python = {path.name for path in ROOT.glob("python/**/*.py")}
    in_text = re.findall(r"`(?:inkle/)?(\w+\.py)`", (ROOT / "docs" / "python.md").read_text())
    assert [name for name in in_text if name not in python | known] == []
