"""The check of classes counts distinct names, wherever the methods stand."""
import importlib.util
import pathlib

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_classes.py"
SPEC = importlib.util.spec_from_file_location("check_classes", SCRIPT)
check_classes = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_classes)


@pytest.fixture
def check(tmp_path, capsys):
    """The exit status and the lines for a class of that many methods, some of them elsewhere."""

    def run(count, exceptions=None):
        folder = tmp_path / "src" / "kernel"
        folder.mkdir(parents=True)
        inside = "".join(f"  void f{n}();\n  void f{n}(int x) {{ (void)x; }}\n" for n in range(count))
        (folder / "wide.h").write_text(f"namespace a::b {{\nclass Wide {{\n public:\n{inside}}};\n}}\n")
        (folder / "wide.cpp").write_text("namespace a::b {\nvoid Wide::f0() {}\n}\n")
        status = check_classes.main(tmp_path, ("kernel",), exceptions or {})
        return status, capsys.readouterr().out.splitlines()

    return run


def test_the_limit_itself_is_fine(check):
    assert check(25) == (0, ["classes: 1 classes, 0 problems"])


def test_above_the_limit_is_named_with_count_and_file(check):
    status, lines = check(26)
    assert status == 1
    assert lines[0] == "src/kernel/wide.h: a::b::Wide has 26 methods; at most 25"


def test_an_exception_has_a_limit_of_its_own(check):
    assert check(30, {"a::b::Wide": 30})[0] == 0


def test_an_exception_holds_at_its_limit(check):
    assert check(31, {"a::b::Wide": 30})[1][0].endswith("has 31 methods; at most 30")
