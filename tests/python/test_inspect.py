"""`inkle inspect`: the page, and wrong input."""

from __future__ import annotations

import html.parser
import pathlib

import pytest

from test_pt2 import ROOT, inkle

DATA = ROOT / "tests" / "pt2" / "data"
_VOID = {"meta", "input", "br", "line", "rect", "polyline"}


class Checker(html.parser.HTMLParser):
    """Every element closes in order; ids are distinct; links stay on the page and lead somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: set[str] = set()

    def handle_starttag(self, tag, attrs):
        names = dict(attrs)
        assert "src" not in names
        if "id" in names:
            self.ids.append(names["id"])
        if "href" in names:
            assert names["href"].startswith("#")
            self.links.add(names["href"][1:])
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert not checker.open
    assert len(set(checker.ids)) == len(checker.ids)
    assert checker.links <= set(checker.ids)
    assert "http://" not in page and "https://" not in page
    return checker


@pytest.mark.parametrize("file", sorted(DATA.glob("*.pt2")), ids=lambda f: f.stem)
def test_page(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.html"
    done = inkle("inspect", file, "-o", path, "--seconds", "0.01")
    assert done.stdout.strip() == str(path)
    page = path.read_text(encoding="utf-8")
    checker = check(page)
    assert {"summary", "steps", "memory", "fusion", "graph"} <= set(checker.ids)
    assert "No times" not in page


def test_without_running(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.html"
    inkle("inspect", DATA / "encoder.ir", "-o", path, "--no-run", "--no-code")
    page = path.read_text(encoding="utf-8")
    check(page)
    assert "--no-run" in page and "Assembly" not in page


def test_wrong_input(tmp_path: pathlib.Path) -> None:
    good = DATA / "tiny.pt2"
    cut = tmp_path / "cut.pt2"
    cut.write_bytes(good.read_bytes()[:700])
    text = tmp_path / "wrong.ir"
    text.write_text("graph @g(%x: f32[2]) -> f32[3] {\n  return %x\n}\n")
    page = tmp_path / "page.html"
    for wrong in (tmp_path / "none.pt2", cut, text, tmp_path):
        error = inkle("inspect", wrong, "-o", page, code=1).stderr
        assert error.startswith("error") and wrong.name in error
        assert not page.exists()
    error = inkle("inspect", good, "-o", tmp_path, "--no-run", code=1).stderr
    assert "is a folder" in error
    error = inkle("inspect", good, "-o", tmp_path / "no" / "page.html", "--no-run", code=1).stderr
    assert "cannot be written" in error
    inkle("inspect", code=2)


def test_from_reports(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    backend = pytest.importorskip("inkle")
    torch._dynamo.reset()
    backend.reset()
    texts: dict[str, str] = {}
    options = {"dump": texts.__setitem__, "strict": True}
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU(), torch.nn.Softmax(-1))
    with torch.no_grad():
        torch.compile(model, backend="inkle", options=options)(torch.randn(4, 16))
    path = tmp_path / "page.html"
    backend.inspect(backend.reports()[-1], path, texts=texts, seconds=0.01)
    page = path.read_text(encoding="utf-8")
    checker = check(page)
    assert {"summary", "steps", "memory", "fusion", "kernels", "graph"} <= set(checker.ids)
    assert "No times" not in page
    with pytest.raises(ValueError, match="because"):
        backend.inspect(backend.backend.GraphReport("g", reason="because"), path)
