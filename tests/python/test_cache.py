"""The cache between processes: the same bits, whatever is done to the folder."""
import os
import pathlib
import re
import signal
import subprocess
import time

import forked
import pytest
from rights import lacks

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "pt2" / "data" / "encoder.pt2"
COMMAND = ROOT / "build" / "inkle"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")


class Cache:
    """A fresh folder, and the command with it."""

    def __init__(self, folder):
        self.folder, self.out, self.torch = folder / "cache", folder / "out", folder / "torch"

    def inkle(self, *arguments, code=0, before=(), **environment):
        every = os.environ | {"INKLE_CACHE_DIR": str(self.folder), "INKLE_LOG": "cache"} | environment
        done = subprocess.run([*before, COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False,
                              env={name: value for name, value in every.items() if value is not None})
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def run(self, **environment):
        done = self.inkle("run", MODEL, "--random", "--output", self.out, **environment)
        return {p.name: p.read_bytes() for p in self.out.iterdir()}, done.stderr

    def python(self, text, *arguments, **environment):
        every = {"INKLE_CACHE_DIR": str(self.folder), "TORCHINDUCTOR_CACHE_DIR": str(self.torch),
                 "INKLE_LOG": "cache", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}
        done = forked.python(text, *arguments, **(every | environment))
        assert done.returncode == 0, done.stderr
        return done

    def entries(self):
        return sorted(self.folder.rglob("*.entry"))


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def test_a_second_process_compiles_nothing(cache):
    want, said = cache.run()
    assert said == ""
    count = len(cache.entries())
    assert count > 1
    got, said = cache.run()
    assert got == want
    assert said == "inkle cache: graph main was compiled by an earlier process\n"
    # Another program, of the same kernels.
    again = cache.inkle("run", MODEL, "--random", "--output", cache.out, "--numerics", "fast")
    taken, kernels = map(int, re.search(r"(\d+) of (\d+) kernels were made", again.stderr).groups())
    assert taken == kernels == count - 1
    count = len(cache.entries())
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
    assert got == want and "was compiled by an earlier process" in said
    assert f"{len(cache.entries())} entries are right, 0 files" in cache.inkle("cache", "verify").stdout
    cache.entries()[0].write_bytes(b"no entry")
    assert "1 files were deleted" in cache.inkle("cache", "verify").stdout


def test_a_gpu_waits_for_nvrtc_once(cache):
    null = ("run", MODEL, "--random", "--device", "null:sm_90a")
    cold = cache.inkle(*null)
    assert "earlier process" not in cold.stderr
    warm = cache.inkle(*null, INKLE_NVRTC="/nonexistent")
    assert warm.stdout == cold.stdout and "graph main was compiled by an earlier process" in warm.stderr
    assert "no NVRTC" in cache.inkle(*null, code=1, INKLE_NVRTC="/nonexistent", INKLE_CACHE_DIR="").stderr


def test_other_processors_have_entries_of_their_own(cache):
    cache.run()
    before = len(cache.entries())
    cache.inkle("build", MODEL, "-o", cache.out.with_name("m.inkle"), "--target", "x86-64-v3")
    assert len(cache.entries()) > before
    cache.inkle("cache", "clear")
    cache.run(OMP_NUM_THREADS="1")
    cache.run(OMP_NUM_THREADS="3")
    lines = cache.inkle("cache", "explain").stdout.splitlines()
    for what in ("graph main", r"kernel \w+"):
        line = what + " [0-9a-f]{12}: machine: .* 3 threads, not .* 1 threads"
        assert any(re.fullmatch(line, found) for found in lines), lines
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
        for path in folder.glob("index*.db*"):
            path.write_bytes(b"this is no database" * 100)
    else:
        environment = {"HOME": None, "XDG_CACHE_HOME": None, "INKLE_CACHE_DIR": None}
    got, said = cache.run(**environment)
    assert got == want
    assert len(warnings(said)) == 1, said
    if harm != "index":
        assert "nothing is cached" in said
    if harm == "no home":
        assert "set HOME, or INKLE_CACHE_DIR" in said


@pytest.fixture
def mounted(tmp_path):
    """Mounts a small file system of its own for the cache."""
    folders = []

    def mount(folder, options):
        folder.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            lacks(f"no file system can be mounted here: {done.stderr.strip()}")
        folders.append(folder)

    yield mount
    for folder in folders:
        subprocess.run(["umount", folder], check=True)


def needs_root():
    if os.geteuid() != 0:
        lacks("only root can give a file to another user")


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
        assert len(warnings(said)) == 1, said
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
    assert "graph main was compiled by an earlier process" in said
    subprocess.run(["mount", "-o", "remount,rw", cache.folder], check=True)
    cache.inkle("cache", "clear")
    subprocess.run(["mount", "-o", "remount,ro", cache.folder], check=True)
    got, said = cache.run()
    assert got == want
    assert len(warnings(said)) == 1, said


def test_a_folder_without_execution(cache, mounted):
    mounted(cache.folder, "size=16m,mode=0700,noexec")
    want, said = cache.run()
    assert warnings(said) == []
    count = len(cache.entries())
    got, said = cache.run()
    assert got == want and warnings(said) == []
    assert "graph main was compiled by an earlier process" in said


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
    assert "graph main was compiled by an earlier process" in said
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


class Ranks:
    """Processes that want the same program at once."""

    def __init__(self, cache, count, **environment):
        self.cache, self.running, self.environment = cache, [], environment
        for _ in range(count):
            self.start()

    def start(self):
        out, log = (self.cache.out.with_name(f"{what}{len(self.running)}") for what in ("out", "log"))
        every = {"INKLE_CACHE_DIR": str(self.cache.folder), "INKLE_LOG": "cache", **self.environment}
        with open(log, "w") as file:
            self.running.append(subprocess.Popen([COMMAND, "run", MODEL, "--random", "--output", out],
                                                 env=os.environ | every, stdout=subprocess.DEVNULL, stderr=file))

    def logs(self):
        return [self.cache.out.with_name(f"log{n}").read_text() for n in range(len(self.running))]

    def said(self):
        """What each has logged; those that were not killed have the same results."""
        for process in self.running:
            process.wait(timeout=100)
        results = [{p.name: p.read_bytes() for p in self.cache.out.with_name(f"out{n}").iterdir()}
                   for n, p in enumerate(self.running) if p.returncode == 0]
        assert all(result == results[0] for result in results)
        return self.logs()

    def wait_for(self, what):
        """Until all but the first have logged it."""
        end = time.monotonic() + 60
        while not all(what in log for log in self.logs()[1:]):
            assert time.monotonic() < end, self.logs()
            time.sleep(0.01)

    def stop_the_compiling(self):
        """Stops the first process, which has the lock by then."""
        end = time.monotonic() + 60
        while not list(self.cache.folder.rglob(".lock-*")):
            assert time.monotonic() < end
        self.running[0].send_signal(signal.SIGSTOP)
        return list(self.cache.folder.rglob(".lock-*"))


def was_read(said):
    return "graph main was compiled by an earlier process" in said


def test_one_process_compiles_for_all(cache):
    said = Ranks(cache, 4).said()
    assert sorted(map(was_read, said)) == [False, True, True, True]
    assert "warning" not in "".join(said)
    assert list(cache.folder.rglob(".lock-*")) == []


@pytest.mark.parametrize("turn", range(3))
def test_a_killed_process_is_replaced(cache, turn):
    ranks = Ranks(cache, 1)
    if not ranks.stop_the_compiling():
        pytest.skip("it was done before it could be stopped")
    for _ in range(3):
        ranks.start()
    ranks.wait_for("waiting for another process")
    assert all(p.poll() is None for p in ranks.running)
    ranks.running[0].kill()
    said = ranks.said()
    assert sorted(map(was_read, said[1:])) == [False, True, True]
    assert "warning" not in "".join(said)


def test_a_process_that_hangs_is_not_waited_for_long(cache):
    ranks = Ranks(cache, 1, INKLE_CACHE_WAIT="1")
    if not ranks.stop_the_compiling():
        pytest.skip("it was done before it could be stopped")
    for _ in range(2):
        ranks.start()
    for process in ranks.running[1:]:
        assert process.wait(100) == 0
    ranks.running[0].kill()
    for said in ranks.said()[1:]:
        assert len(warnings(said)) == 1 and "is not waited for" in said


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
        return cache.python(TORCH, repr(options), TORCHINDUCTOR_AUTOGRAD_CACHE="0")

    want = run({"strict": True, "cache": False}).stdout
    assert cache.entries() == []
    assert run({"strict": True}).stdout == want
    count = len(cache.entries())
    assert count > 0
    again = run({"strict": True})
    assert again.stdout == want and "was compiled by an earlier process" in again.stderr
    assert run({"strict": True, "cache": False}).stderr == ""
    assert len(cache.entries()) == count


def test_each_option_has_programs_of_its_own(cache):
    pytest.importorskip("torch")
    found = [cache.python(TORCH, repr({"strict": True, **other}), TORCHINDUCTOR_AUTOGRAD_CACHE="0").stderr
             for other in ({}, {"numerics": "fast"}, {"freeze": True}, {"numerics": "fast"})]
    assert ["by an earlier process" in said and "graph" in said for said in found] == [False, False, False, True]


# --- AOTAutograd's cache --------------------------------------------------------------------------

STEP = """
import sys, torch, inkle
from torch._dynamo.utils import counters
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
compiled = torch.compile(model, backend="inkle", options=eval(sys.argv[1]), dynamic=sys.argv[2:3] == ["dynamic"])
for rows in (6, 9):
    x = torch.arange(rows * 8.0).view(rows, 8).sin().requires_grad_()
    compiled(x).square().sum().backward()
    print(x.grad.numpy().tobytes().hex(), model[0].weight.grad.numpy().tobytes().hex())
model.eval()
with torch.no_grad():
    print(compiled(x).numpy().tobytes().hex())
made = [s for r in inkle.reports() for s, _ in r.stages if s in ("codegen", "passes")]
print(sorted((k.removeprefix("autograd_cache_"), v) for k, v in counters["aot_autograd"].items() if "cache" in k),
      len(made), sum(r.compiled for r in inkle.reports()), file=sys.stderr)
"""


def need_autograd_cache(is_there):
    """Skips unless AOTAutograd keeps programs of Inkle, or unless it does not (torch 2.11)."""
    pytest.importorskip("torch")
    from inkle import aot_cache

    if aot_cache.HAS_SHORT_KEYS != is_there:
        pytest.skip("AOTAutograd's cache " + ("is off with this torch" if is_there else "is on with this torch"))


@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_an_earlier_torch_keeps_nothing_itself(cache, way):
    need_autograd_cache(False)
    cold = cache.python(STEP, "{}", way)
    warm = cache.python(STEP, "{}", way)
    assert warm.stdout == cold.stdout
    assert "[] " in cold.stderr and "[] " in warm.stderr  # counters of AOTAutograd's cache
    assert not (cache.torch / "aotautograd").exists()
    assert "earlier process" not in cold.stderr
    compiled = int(re.search(r"\[\] \d+ (\d+)\n", warm.stderr)[1])
    assert compiled >= 3 and warm.stderr.count("was compiled by an earlier process") >= compiled - 1


@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_a_warm_start_skips_tracing(cache, way):
    need_autograd_cache(True)
    cold = cache.python(STEP, "{}", way)
    warm = cache.python(STEP, "{}", way)
    assert warm.stdout == cold.stdout
    states, made, compiled = re.search(r"(\[.*\]) (\d+) (\d+)\n", warm.stderr).groups()
    entries = re.search(r"'saved', (\d+)\)", cold.stderr)
    assert entries and f"('hit', {entries[1]})" in states and "saved" not in states
    assert int(compiled) >= 3  # halves of a step, and a graph without gradients
    if way == "static":  # else Dynamo begins again, after a graph that nobody keeps
        assert made == "0" and "miss" not in states
    other = cache.python(STEP, "{'random': 'eager'}", way)
    assert other.stdout == cold.stdout and "'hit'" not in other.stderr
    none = cache.python(STEP, "{'cache': False}", way)
    assert none.stdout == cold.stdout and "[] " in none.stderr


def test_artifacts_go_to_another_machine(cache, tmp_path):
    need_autograd_cache(True)
    file = tmp_path / "artifacts"
    save = STEP + f"""
data, _ = torch.compiler.save_cache_artifacts()
open({str(file)!r}, "wb").write(data)
"""
    load = f"""
import torch
torch.compiler.load_cache_artifacts(open({str(file)!r}, "rb").read())
""" + STEP
    cold = cache.python(save, "{}")
    elsewhere = Cache(tmp_path / "elsewhere")
    elsewhere.folder.parent.mkdir()
    warm = elsewhere.python(load, "{}")
    assert warm.stdout == cold.stdout
    assert "'hit'" in warm.stderr and "'miss'" not in warm.stderr and elsewhere.entries() == []


def test_damaged_artifacts_are_compiled_again(cache):
    need_autograd_cache(True)
    want = cache.python(STEP, "{}").stdout
    files = [p for p in (cache.torch / "aotautograd").rglob("*") if p.is_file()]
    assert files
    for path in files:
        data = bytearray(path.read_bytes())
        at = data.index(b"\x89INK\r\n") + 5000  # within a program
        data[at] ^= 16
        path.write_bytes(data)
    again = cache.python(STEP, "{}")
    assert again.stdout == want
    assert "'hit'" not in again.stderr


FAILS = """
import torch, inkle
from inkle import aot_cache
restored = []
keep = aot_cache.StoredProgram.post_compile
def post_compile(self, *given):
    keep(self, *given)
    self.__call__.fails = True
    restored.append(self)
aot_cache.StoredProgram.post_compile = post_compile
""" + STEP + """
print(len(restored), file=sys.stderr)
"""


def test_a_call_of_a_restored_program_that_fails_runs_in_eager(cache):
    need_autograd_cache(True)
    want = cache.python(STEP, "{}").stdout.split()
    failed = cache.python(FAILS, "{}")
    import numpy

    for a, b in zip(want, failed.stdout.split(), strict=True):
        a, b = (numpy.frombuffer(bytes.fromhex(text), "f4") for text in (a, b))
        numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert failed.stderr.count("a call runs in eager") == 1 and failed.stderr.splitlines()[-1] != "0"
