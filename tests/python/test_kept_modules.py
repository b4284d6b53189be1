"""Modules of a GPU that another graph takes from the cache, on a GPU that runs nothing; they need NVRTC."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "pt2" / "data" / "encoder.pt2"
COMMAND = ROOT / "build" / "inkle"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")


class Cache:
    def __init__(self, folder):
        self.folder, self.path = folder / "cache", folder

    def inkle(self, *arguments, cache=None):
        environment = os.environ | {"INKLE_CACHE_DIR": str(self.folder if cache is None else cache),
                                    "INKLE_LOG": "cache,codegen"}
        done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False,
                              env=environment)
        if "no NVRTC" in done.stderr:
            pytest.skip("no NVRTC")
        assert done.returncode == 0, done.stderr
        return done.stderr

    def run(self, *options, model=MODEL):
        """How many kernels were taken, and compiled."""
        said = self.inkle("run", model, "--random", "--device", "null:sm_90a", "--output", self.path / "out", *options)
        taken = re.search(r"(\d+) of \d+ kernels were made by earlier processes", said)
        compiled = re.search(r"(\d+) kernels in \d+ programs", said)
        return tuple(int(found[1]) if found else 0 for found in (taken, compiled))

    def entries(self, text):
        return [p for p in self.folder.rglob("*.entry") if text in p.read_bytes()]


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def test_another_graph_takes_the_kernels_that_it_has(cache):
    taken, compiled = cache.run()
    assert taken == 0 and compiled > 1
    assert cache.run("--numerics", "fast") == (compiled, 0)
    assert cache.run("--numerics", "fast") == (0, 0)  # the graph, this time


def test_a_graph_that_has_some_of_them(cache):
    def graph(last):
        path = cache.path / f"{last}.ir"
        path.write_text("graph @g(%x: f32[64,100]) -> f32[64], f32[64] {\n"
                        "  %0: f32[64,100] = exp(%x)\n  %1: f32[64] = sum_dim(%0, [1], false)\n"
                        f"  %2: f32[64] = {last}(%1)\n  %3: f32[64] = flip(%2, [0])\n"
                        "  return %1, %3\n}\n")
        return path

    first = cache.run(model=graph("tanh"))
    second = cache.run(model=graph("sin"))
    assert first[0] == 0 and second[0] > 0 and second[1] > 0 and sum(second) == first[1]


def test_damaged_and_missing_modules_are_compiled_again(cache):
    _, compiled = cache.run()
    modules = cache.entries(b"module of a GPU")
    assert modules
    for number, path in enumerate(modules):
        if number == 0:
            path.unlink()
            continue
        data = bytearray(path.read_bytes())
        data[-1] ^= 4
        path.write_bytes(data)
    assert cache.run("--numerics", "fast") == (0, compiled)
    graphs = cache.entries(b"without passes")
    assert len(graphs) == 2
    for path in graphs:
        path.unlink()
    assert cache.run() == (compiled, 0)


def test_packages_do_not_depend_on_the_cache(cache):
    cache.run("--numerics", "fast")
    files = [cache.path / "with.inkle", cache.path / "without.inkle"]
    for file, folder in zip(files, (None, "")):
        cache.inkle("build", MODEL, "-o", file, "--target", "sm_90a", cache=folder)
    assert files[0].read_bytes() == files[1].read_bytes()
