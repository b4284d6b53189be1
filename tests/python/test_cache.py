"""The cache between processes: the same bits, whatever is done to the folder."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "pt2" / "data" / "encoder.pt2"
COMMAND = ROOT / "build" / "inkle"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")


class Cache:
    """A fresh folder, and the command with it."""

    def __init__(self, folder):
        self.folder, self.out = folder / "cache", folder / "out"

    def inkle(self, *arguments, code=0, **environment):
        every = os.environ | {"INKLE_CACHE_DIR": str(self.folder), "INKLE_LOG": "cache"} | environment
        done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False,
                              env={name: value for name, value in every.items() if value is not None})
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def run(self, **environment):
        done = self.inkle("run", MODEL, "--random", "--output", self.out, **environment)
        return {p.name: p.read_bytes() for p in self.out.iterdir()}, done.stderr

    def entries(self):
        return sorted(self.folder.rglob("*.entry"))


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def test_a_second_process_compiles_nothing(cache):
    want, said = cache.run()
    assert "made by earlier processes" not in said
    count = len(cache.entries())
    assert count > 0
    got, said = cache.run()
    assert got == want
    taken, kernels = map(int, re.search(r"(\d+) of (\d+) kernels were made", said).groups())
    assert taken == kernels == count
    assert cache.inkle("cache", "stats").stdout.startswith(f"{cache.folder / 'kernels'}: {count} entries")
    none, said = cache.run(INKLE_CACHE_DIR="")
    assert none == want and said == ""


def test_damage_is_compiled_again(cache):
    want, _ = cache.run()
    for number, path in enumerate(cache.entries()):
        data = bytearray(path.read_bytes())
        if number % 2:
            data[-1 - number] ^= 8
        else:
            del data[len(data) // 2:]
        path.write_bytes(data)
    got, said = cache.run()
    assert got == want
    assert said.count("an entry of the cache is deleted and made anew") == 1
    got, said = cache.run()
    assert got == want and "kernels were made by earlier processes" in said
    assert f"{len(cache.entries())} entries are right, 0 files" in cache.inkle("cache", "verify").stdout
    cache.entries()[0].write_bytes(b"no entry")
    assert "1 files were deleted" in cache.inkle("cache", "verify").stdout


def test_other_processors_have_entries_of_their_own(cache):
    cache.run()
    before = len(cache.entries())
    cache.inkle("build", MODEL, "-o", cache.out.with_name("m.inkle"), "--target", "x86-64-v3")
    assert len(cache.entries()) > before
    cache.inkle("cache", "clear")
    cache.run(OMP_NUM_THREADS="1")
    cache.run(OMP_NUM_THREADS="3")
    lines = cache.inkle("cache", "explain").stdout.splitlines()
    assert any(re.fullmatch("machine: .* 3 threads, not .* 1 threads", line) for line in lines), lines
    count = len(cache.entries())
    assert f"{count} entries were deleted" in cache.inkle("cache", "clear").stdout
    assert cache.entries() == []


@pytest.mark.parametrize("harm", ["file", "open to all", "link", "index", "no home"])
def test_no_folder_stops_a_program(cache, harm, tmp_path):
    want, _ = cache.run(INKLE_CACHE_DIR="")
    environment, folder = {}, cache.folder / "kernels"
    cache.folder.mkdir()
    if harm == "file":
        folder.write_text("not a folder")
    elif harm == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    elif harm == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif harm == "index":
        cache.run()
        for path in folder.glob("index.db*"):
            path.write_bytes(b"this is no database" * 100)
    else:
        environment = {"HOME": None, "XDG_CACHE_HOME": None, "INKLE_CACHE_DIR": None}
    got, said = cache.run(**environment)
    assert got == want
    if harm != "no home":
        assert said.count("inkle warning: ") == 1, said
    if harm in ("file", "open to all", "link"):
        assert "nothing is cached" in said


def test_processes_that_write_at_once(cache):
    environment = os.environ | {"INKLE_CACHE_DIR": str(cache.folder)}
    running = [subprocess.Popen([COMMAND, "run", MODEL, "--random", "--output", cache.out.with_name(f"out{n}")],
                                env=environment, stdout=subprocess.DEVNULL) for n in range(4)]
    assert [p.wait() for p in running] == [0] * 4
    want, _ = cache.run(INKLE_CACHE_DIR="")
    for n in range(4):
        assert {p.name: p.read_bytes() for p in cache.out.with_name(f"out{n}").iterdir()} == want
    count = len(cache.entries())
    assert f"{count} entries are right, 0 files" in cache.inkle("cache", "verify").stdout


def test_a_killed_writer_leaves_nothing_wrong(cache):
    environment = os.environ | {"INKLE_CACHE_DIR": str(cache.folder)}
    for milliseconds in range(10, 210, 20):
        process = subprocess.Popen([COMMAND, "run", MODEL, "--random"], env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(milliseconds / 1000)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    want, _ = cache.run(INKLE_CACHE_DIR="")
    got, said = cache.run()
    assert got == want and "warning" not in said
    cache.inkle("cache", "verify")
    assert [p for p in cache.folder.rglob(".part-*")] == []


TORCH = """
import sys, torch, inkle
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8)).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.fill_(0.25)
    compiled = torch.compile(model, backend="inkle", options=eval(sys.argv[1]))
    print(compiled(torch.arange(24.0).view(3, 8)).sum().item())
"""


def test_the_option_of_the_backend(cache):
    pytest.importorskip("torch")

    def run(options):
        done = subprocess.run([sys.executable, "-c", TORCH, repr(options)], capture_output=True, text=True, check=False,
                              env=os.environ | {"INKLE_CACHE_DIR": str(cache.folder), "INKLE_LOG": "cache",
                                                "PYTHONPATH": str(ROOT / "python")})
        assert done.returncode == 0, done.stderr
        return done

    want = run({"strict": True, "cache": False}).stdout
    assert cache.entries() == []
    assert run({"strict": True}).stdout == want
    count = len(cache.entries())
    assert count > 0
    again = run({"strict": True})
    assert again.stdout == want and f"{count} of {count} kernels were made" in again.stderr
    assert "kernels were made" not in run({"strict": True, "cache": False}).stderr
