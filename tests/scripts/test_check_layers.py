"""The layer check finds what it is for: each violation, planted alone, gives its one line."""
import importlib.util
import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_layers.py"
SPEC = importlib.util.spec_from_file_location("check_layers", SCRIPT)
check_layers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_layers)

LAYERS = """
base: | spdlog
sym:
graph: sym | zlib
other:
"""


@pytest.fixture
def tree(tmp_path):
    """Writes files of src/ over a clean tree and returns the problems found."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    def check(headers=False, **files):
        everything = {
            "LAYERS": LAYERS,
            "base/error.h": "#pragma once\n#include <string>\n",
            "sym/expr.h": '#pragma once\n#include "base/error.h"\n#include <fmt/format.h>\n',
            "graph/node.h": '#pragma once\n#include "sym/expr.h"\n#include "base/error.h"\n',
        }
        everything.update({name.replace("__", "/").replace("_cpp", ".cpp").replace("_h", ".h"): text
                           for name, text in files.items()})
        for name, text in everything.items():
            path = tmp_path / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_layers.Checker(tmp_path).run(headers)

    return check


def test_clean_tree_has_no_problem(tree):
    assert tree() == []


@pytest.mark.parametrize("files, message", [
    ({"sym__bad_cpp": '#include "graph/node.h"\n'}, "src/sym/bad.cpp:1: sym may not include graph"),
    ({"other__a_cpp": '\n#include "sym/expr.h"\n'}, "src/other/a.cpp:2: other may not include sym"),
    ({"sym__bad_cpp": '#include "expr.h"\n'},
     'src/sym/bad.cpp:1: "expr.h" is not a header of src/ (write "folder/file.h")'),
    ({"graph__a_cpp": "#include <spdlog/spdlog.h>\n"},
     "src/graph/a.cpp:1: <spdlog/spdlog.h>: spdlog is for base"),
    ({"sym__a_cpp": "#include <omp.h>\n"}, "src/sym/a.cpp:1: <omp.h>: omp is for nobody"),
    ({"sym__a_cpp": "#include <boost/any.hpp>\n"},
     "src/sym/a.cpp:1: <boost/any.hpp> is of no known third party"),
    ({"new__a_cpp": "int x;\n"}, "src/new/a.cpp:1: folder new is not in src/LAYERS"),
    ({"sym__a_h": "int x();\n"}, "src/sym/a.h:1: a header starts with #pragma once"),
    ({"sym__a_h": "#pragma once\nusing namespace std;\n"},
     "src/sym/a.h:2: no using namespace in a header"),
    ({"sym__a_cpp": "void f() { std::cout << 1; }\n"},
     "src/sym/a.cpp:1: the library never prints (base/log.h)"),
    ({"sym__a_cpp": "void f() { std::abort(); }\n"},
     "src/sym/a.cpp:1: the library never ends the process"),
    ({"sym__a_cpp": "// TO" "DO later\n"},
     "src/sym/a.cpp:1: finish it, or throw Unsupported with a test"),
    ({"sym__a_cpp": 'const char* p = "/ho' 'me/me/x";\n'}, "src/sym/a.cpp:1: a path of one machine"),
])
def test_violation_is_found(tree, files, message):
    assert tree(**files) == [message]


def test_third_party_in_a_header_stays_in_its_folder(tree):
    layers = LAYERS.replace("other:", "other: graph")
    inner = "#pragma once\n#include <zlib.h>\n"
    assert tree(LAYERS=layers, graph__zip_h=inner, graph__a_cpp='#include "graph/zip.h"\n') == []
    assert tree(LAYERS=layers, graph__zip_h=inner, other__a_cpp='#include "graph/zip.h"\n') == [
        "src/other/a.cpp:1: graph/zip.h brings in zlib, which stays inside graph"]


def test_header_that_needs_another_does_not_compile_alone(tree):
    problems = tree(headers=True, sym__a_h="#pragma once\nstd::vector<int> f();\n")
    assert len(problems) == 1
    assert problems[0].startswith("src/sym/a.h:1: does not compile alone: ")


def test_unknown_folder_in_the_table(tree):
    with pytest.raises(SystemExit, match="LAYERS:2: graph is not a folder named above"):
        tree(LAYERS="base:\nsym: graph\n")
