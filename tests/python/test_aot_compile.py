"""What torch saves ahead of time: `aot_compile`, modules with several inputs, and `caching_precompile`."""
import pathlib
import re

import pytest
import torch

import test_cache
from test_cache import cache  # noqa: F401: a fixture

from inkle import aot_cache

HAS_AVX512 = "avx512f" in pathlib.Path("/proc/cpuinfo").read_text()
aot = pytest.importorskip("torch._dynamo.aot_compile")
_FORWARD = torch.compile(torch.nn.Identity(), backend="eager", fullgraph=True).forward
pytestmark = [test_cache.pytestmark,
              pytest.mark.skipif(not hasattr(_FORWARD, "aot_compile"),
                                 reason="this torch compiles no module's forward ahead of time")]  # fmt: skip
has_modules = pytest.mark.skipif(not aot_cache.HAS_SHORT_KEYS, reason="this torch saves functions alone")

MODEL = """
import sys, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)

    def forward(self, x):
        y = self.b(self.n(torch.nn.functional.gelu(self.a(x))))
        return y + torch.sort(y.detach(), dim=1)[0]

def bits(*tensors):
    print(*("none" if t is None else t.detach().numpy().tobytes().hex() for t in tensors))

def told():
    import inkle
    from torch._dynamo.utils import counters
    stages = [[s for s, _ in r.stages] for r in inkle.reports()]
    print("made", sum("codegen" in s for s in stages), "restored", sum(s == ["cache"] for s in stages),
          "traced", counters["frames"]["total"], file=sys.stderr)

torch.manual_seed(0)
net = Net()
trains = "train" in sys.argv[1]
torch.set_grad_enabled(trains)
sizes = (6, 9) if "dynamic" in sys.argv[1] else (6, 6)
inputs = [(torch.arange(n * 8.0).view(n, 8) + n).sin().requires_grad_(trains) for n in sizes]

def run(f):
    for x in inputs:
        net.zero_grad()
        y = f(x)
        if trains:
            y.square().sum().backward()
        bits(y, x.grad, net.a.weight.grad)
"""

SAVE = MODEL + """
if "dynamic" in sys.argv[1]:
    torch._dynamo.mark_dynamic(inputs[0], 0)
options = eval(sys.argv[3])
f = torch.compile(net, backend="inkle", fullgraph=True, options=options).forward.aot_compile(((inputs[0],), {}))
run(lambda x: f(net, x))
f.save_compiled_function(sys.argv[2])
told()
"""

LOAD = MODEL + """
with open(sys.argv[2], "rb") as file:
    f = torch.compiler.load_compiled_function(file)
run(lambda x: f(net, x))
told()
"""


def told(done):
    return tuple(map(int, re.search(r"made (\d+) restored (\d+) traced (\d+)\n", done.stderr).groups()))


@pytest.mark.parametrize("way", ["static", "dynamic", "static train", "dynamic train"])
def test_a_saved_function_is_not_compiled_again(cache, tmp_path, way):  # noqa: F811
    file, halves = tmp_path / "f", 2 if "train" in way else 1
    saved = cache.python(SAVE, way, file, "{'strict': True}")
    assert told(saved) == (halves, 0, 0)
    # Another process, whose caches are empty, which has other threads, and where nothing can be compiled.
    loaded = cache.python("import inkle.backend\ninkle.backend.compile_graph = None\n" + LOAD, way, file,
                          INKLE_CACHE_DIR="", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "none"), OMP_NUM_THREADS="3")
    assert loaded.stdout == saved.stdout and told(loaded) == (0, halves, 0)
    assert "warning" not in loaded.stderr.lower()


@pytest.mark.parametrize("environment", [{}, {"INKLE_CACHE_DIR": "", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}])
def test_what_no_cache_keeps_is_saved(cache, tmp_path, environment):  # noqa: F811
    file, options = tmp_path / "f", {"strict": True, "cache": bool(environment)}
    saved = cache.python(SAVE, "static train", file, repr(options), **environment)
    assert told(saved) == (2, 0, 0)
    assert [p for p in cache.torch.rglob("aotautograd/*/*") if p.is_file()] == []
    loaded = cache.python(LOAD, "static train", file, **environment)
    assert loaded.stdout == saved.stdout and told(loaded) == (0, 2, 0)


def test_what_cannot_be_saved(cache, tmp_path):  # noqa: F811
    text = """
import sys, torch, inkle

def branch(x):
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)) * 2

x = torch.arange(6.0)
with torch.no_grad():
    for options in ({"freeze": True}, {"strict": True}, {}):
        try:
            f = torch.compile(branch, backend="inkle", fullgraph=True, options=options).aot_compile(((x,), {}))
        except Exception as error:
            print(type(error).__name__, error)
    f.save_compiled_function(sys.argv[1])
    print(torch.equal(torch.compiler.load_compiled_function(open(sys.argv[1], "rb"))(x), branch(x)))
"""
    done = cache.python(text, tmp_path / "f")
    frozen, strict, equal = done.stdout.strip().splitlines()
    assert "freeze=True cannot be saved" in frozen
    assert "cannot be stored" in strict
    assert equal == "True"
    assert done.stderr.count("a graph runs in eager") == 1  # in the file, too


def test_damaged_files_are_refused(cache, tmp_path):  # noqa: F811
    file = tmp_path / "f"
    cache.python(SAVE, "static", file, "{}")
    whole = file.read_bytes()
    attempt = """
import sys, torch
for file in sys.argv[1:]:
    try:
        torch.compiler.load_compiled_function(open(file, "rb"))
        print("is used")
    except Exception as error:
        print(repr(error))
"""
    if HAS_AVX512:
        other = cache.python(attempt, file, INKLE_ISA="avx2").stdout
        assert "cannot be used here" in other and "needs avx512f" in other
    program = whole.index(b"\x89INK\r\n")
    damaged = {at: tmp_path / str(at) for at in (9, 80, 5000)}
    for at, path in damaged.items():
        data = bytearray(whole)
        data[program + at] ^= 16
        path.write_bytes(data)
    answers = cache.python(attempt, *damaged.values()).stdout.splitlines()
    for at, answer in zip(damaged, answers, strict=True):
        assert "cannot be used here" in answer, at


MODULE = MODEL + """
from torch._dynamo.aot_compile import ModelInput
f = torch.compile(net, backend="inkle", fullgraph=True, options={"strict": True})
if "save" in sys.argv[1]:
    f._aot_compile([ModelInput((x,), {}, [torch.set_grad_enabled(trains)]) for x in inputs])
    with open(sys.argv[2], "wb") as file:
        file.write(f._save_aot_compiled_module())
else:
    with open(sys.argv[2], "rb") as file:
        f._load_aot_compiled_module(file.read())
run(f)
told()
"""


@has_modules
@pytest.mark.parametrize("way", ["dynamic", "dynamic train"])
def test_a_saved_module_takes_several_inputs(cache, tmp_path, way):  # noqa: F811
    saved = cache.python(MODULE, f"save {way}", tmp_path / "f")
    loaded = cache.python(MODULE, way, tmp_path / "f", INKLE_CACHE_DIR="")
    graphs = 4 if "train" in way else 2
    assert loaded.stdout == saved.stdout
    assert told(saved)[0] == graphs and told(loaded) == (0, graphs, 0)


PRECOMPILE = MODEL + """
torch._dynamo.config.caching_precompile = True
run(torch.compile(net, backend="inkle", options={"strict": True}, dynamic="dynamic" in sys.argv[1]))
torch.compiler.save_cache_artifacts()
told()
"""


@has_modules
@pytest.mark.parametrize("way", ["static", "static train"])
def test_a_warm_start_that_skips_dynamo(cache, way):  # noqa: F811
    halves = 2 if "train" in way else 1
    cold, warm = (cache.python(PRECOMPILE, way) for _ in range(2))
    assert warm.stdout == cold.stdout
    assert told(cold) == (halves, 0, 1) and told(warm) == (0, halves, 0)


@has_modules
@pytest.mark.parametrize("harm", [
    "damage", pytest.param("processor", marks=pytest.mark.skipif(not HAS_AVX512, reason="no narrower one"))])
def test_dynamo_traces_again_what_cannot_be_restored(cache, harm):  # noqa: F811
    cold = cache.python(PRECOMPILE, "static")
    environment = {"INKLE_ISA": "avx2"} if harm == "processor" else {}
    for path in (cache.torch / "dynamo").rglob("entry") if harm == "damage" else []:
        data = bytearray(path.read_bytes())
        data[data.index(b"\x89INK\r\n") + 5000] ^= 16
        path.write_bytes(data)
    again = cache.python(PRECOMPILE, "static", **environment)
    assert harm == "processor" or again.stdout == cold.stdout
    assert told(again)[2] == 1


@pytest.mark.skipif(not hasattr(torch.compiler, "precompile"), reason="not of this torch")
def test_precompile_has_no_place_for_a_backend(tmp_path):
    """As docs/cache.md says; a torch that has one is to be served."""
    where = {"artifact_path": tmp_path / "f.py", "cache_path": tmp_path / "f.cache"}
    with pytest.raises(ValueError, match="backend must be 'inductor' or 'eager', got 'inkle'"):
        torch.compiler.precompile.capture(torch.sin, **where, backend="inkle")
    with torch.compiler.precompile.capture(torch.sin, **where, backend="eager") as captured:
        captured(torch.ones(2))
    text = where["artifact_path"].read_text()
    where["artifact_path"].write_text(text.replace("BACKEND = 'eager'", "BACKEND = 'inkle'"))
    with pytest.raises(torch.compiler.PrecompileError, match="unknown backend 'inkle'"):
        torch.compiler.precompile.load(*where.values())
