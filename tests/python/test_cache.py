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


@pytest.fixture
def mounted(tmp_path):
    """Mounts a small file system of its own for the cache."""
    folders = []

    def mount(folder, options):
        folder.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        folders.append(folder)

    yield mount
    for folder in folders:
        subprocess.run(["umount", folder], check=True)


def needs_root():
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")


def warnings(said):
    return [line for line in said.splitlines() if line.startswith("inkle warning: ")]


def test_a_full_disk(cache, mounted):
    want, _ = cache.run(INKLE_CACHE_DIR="")
    mounted(cache.folder, "size=256k,mode=0700")
    (cache.folder / "ballast").write_bytes(bytes(4096))
    with pytest.raises(OSError), open(cache.folder / "ballast", "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    for _ in range(2):
        got, said = cache.run()
        assert got == want
        assert len(warnings(said)) == 1, said
    assert not [p for p in cache.folder.rglob("*") if p.name.startswith(".part-")]


def test_a_disk_that_fills_up(cache, mounted):
    want, _ = cache.run(INKLE_CACHE_DIR="")
    mounted(cache.folder, "size=160k,mode=0700")
    for _ in range(2):
        got, said = cache.run()
        assert got == want
        assert 1 <= len(warnings(said)) <= 2, said  # entries, and the index
    cache.inkle("cache", "verify")
    assert not [p for p in cache.folder.rglob("*") if p.name.startswith(".part-")]


def test_a_read_only_folder(cache, mounted):
    mounted(cache.folder, "size=16m,mode=0700")
    want, _ = cache.run()
    count = len(cache.entries())
    subprocess.run(["mount", "-o", "remount,ro", cache.folder], check=True)
    got, said = cache.run()
    assert got == want
    assert len(warnings(said)) == 1, said
    assert f"{count} of {count} kernels were made by earlier processes" in said
    subprocess.run(["mount", "-o", "remount,rw", cache.folder], check=True)
    cache.inkle("cache", "clear")
    subprocess.run(["mount", "-o", "remount,ro", cache.folder], check=True)
    got, said = cache.run()
    assert got == want
    assert 1 <= len(warnings(said)) <= 2, said  # entries, and the index


def test_a_folder_without_execution(cache, mounted):
    mounted(cache.folder, "size=16m,mode=0700,noexec")
    want, said = cache.run()
    assert warnings(said) == []
    count = len(cache.entries())
    got, said = cache.run()
    assert got == want and warnings(said) == []
    assert f"{count} of {count} kernels were made by earlier processes" in said


def test_a_folder_of_another_user(cache):
    needs_root()
    want, _ = cache.run()
    folder, count = cache.folder / "kernels", len(cache.entries())
    os.chown(folder, 65534, 65534)
    got, said = cache.run()
    assert got == want and len(cache.entries()) == count
    assert len(warnings(said)) == 1 and "nothing is cached" in said and "belongs to another user" in said


def test_entries_of_another_user(cache):
    needs_root()
    want, _ = cache.run()
    for path in cache.entries():
        os.chown(path, 65534, 65534)
    got, said = cache.run()
    assert got == want
    assert len(warnings(said)) == 1 and "belongs to another user" in said
    assert all(path.stat().st_uid == os.geteuid() for path in cache.entries())  # made anew


def test_a_link_in_the_path_of_an_entry(cache, tmp_path):
    want, _ = cache.run()
    for path in {entry.parent for entry in cache.entries()}:
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    before = {p: p.read_bytes() for p in tmp_path.glob("??/*.entry")}
    assert before
    got, said = cache.run()
    assert got == want
    assert len(warnings(said)) == 1 and "is no folder" in said, said
    assert "kernels were made by earlier processes" not in said
    assert {p: p.read_bytes() for p in tmp_path.glob("??/*.entry")} == before


def test_a_clock_that_was_set_back(cache):
    want, _ = cache.run()
    for path in cache.folder.rglob("*"):
        os.utime(path, (4e9, 4e9))
    count = len(cache.entries())
    got, said = cache.run()
    assert got == want and warnings(said) == []
    assert f"{count} of {count} kernels were made by earlier processes" in said
    assert f"{count} entries are right, 0 files" in cache.inkle("cache", "verify").stdout


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
