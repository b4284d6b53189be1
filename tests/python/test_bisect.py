"""`python -m inkle bisect`: a planted fault of a pass is found, with the node that shows it, in few runs,
and the case that it leaves shows it without torch."""

from __future__ import annotations

import math
import os
import pathlib
import re
import shlex
import subprocess
import sys

import forked
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import inkle
from inkle import bisect
from inkle.options import Options

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = ROOT / "build" / "inkle"

SCRIPT = """
import torch

def f(x, w):
    a = torch.nn.functional.layer_norm(x @ w, (16,))
    b = a.exp() * 3 - a.cos()
    c = b.softmax(-1).cumsum(0)
    d = (c.{op} * 2).sort(stable=True)[0]
    e = d.tanh() @ w.t() @ w
    return e.sigmoid(), d.t(), e.sum(0)

torch.manual_seed(0)
run = torch.compile(f, backend="inkle", options={options})
x, w = torch.randn(8, 16), torch.randn(16, 16)
{call}
print("the script has ended")
"""


def script(folder: pathlib.Path, op: str = "add(2.5)", call: str = "run(x, w)", **options: str) -> str:
    path = folder / "script.py"
    path.write_text(SCRIPT.format(op=op, options=options, call=call))
    return str(path)


def bisected(path: str, *words: str, by_fork: bool = True) -> tuple[int, str]:
    folder = pathlib.Path(path).parent
    path_variable = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    given = ["bisect", "--output", str(folder / "case"), *words, path]
    if by_fork:
        ran = forked.python("import runpy; runpy.run_module('inkle', run_name='__main__')", *given, PATH=path_variable)
    else:
        ran = subprocess.run([sys.executable, "-m", "inkle", *given], capture_output=True, text=True, timeout=300,
                             env={**os.environ, "PATH": path_variable})  # fmt: skip
    assert "Traceback" not in ran.stderr, ran.stderr[-3000:]
    return ran.returncode, ran.stdout


def test_a_script_without_a_fault(tmp_path):
    status, text = bisected(script(tmp_path), by_fork=False)
    assert status == 0 and "nothing differs: 1 calls" in text and "the script has ended" in text


# The first addition becomes a subtraction, or the first constant of a kernel is negated.
@pytest.mark.parametrize("fault, node", [
    ("passes/cse", "add"), ("schedule/inline_pointwise", ""), ("codegen/hoist", ""),
])
def test_a_planted_fault_is_found(tmp_path, fault, node):
    status, text = bisected(script(tmp_path, fail_stage=f"{fault}/miscompile"))
    assert status == 1 and "the script has ended" not in text
    assert f"pass: {fault}\n" in text, text
    if node:
        assert re.search(rf"node: .*{node}.* at script.py:8", text), text
    found = re.search(r"the graph: (\d+) nodes, (\d+) passes", text)
    runs = int(re.search(r"(\d+) runs\n", text)[1])
    assert runs <= math.log2(int(found[1]) * int(found[2])) + 8, text
    if not COMMAND.exists():
        pytest.skip("the command is not built")
    assert "\nreproduced by the command" in text, text
    graph = (tmp_path / "case" / "graph.ir").read_text()
    assert graph.count(" = ") <= 4, graph
    # The case alone, and that fewer passes are right.
    words = shlex.split((tmp_path / "case" / "command").read_text())
    limit = words.index("--pass-limit") + 1
    for passes, status in ((words[limit], 1), (str(int(words[limit]) - 1), 0)):
        changed = [str(COMMAND), *words[1:limit], passes, *words[limit + 1 :]]
        ran = subprocess.run(changed, capture_output=True, text=True)
        assert ran.returncode == status, ran.stdout + ran.stderr


def test_the_command_has_all_that_the_graph_was_compiled_with():
    def command(**named):
        return bisect.Case("to", ["x", "w"], 2, **{"options": Options(), "tolerance": 0.5, **named}).command()

    files = ["--input", "x=to/x.npy", "--input", "w=to/w.npy",
             "--expect", "to/expected_0.npy", "--expect", "to/expected_1.npy"]  # fmt: skip
    begin = ["inkle", "run", "to/graph.ir"]
    assert command() == [*begin, *files, "--tolerance", "0.5"]
    assert command(gpu=1, limit=3)[3:5] == ["--device", "cuda:1"]
    assert command(limit=0, training=True)[-5:] == ["--pass-limit", "0", "--tolerance", "0.5", "--training"]
    for numerics in ("fast", "batch_invariant", "bitwise"):
        made = command(options=Options(numerics=numerics, fail_stage="run"))
        assert made[-4:] == ["--numerics", numerics, "--fail-stage", "run"]


def test_the_device_of_a_case():
    with FakeTensorMode():
        on_gpu = torch.empty(3, device="cuda:1")
        assert bisect.gpu_among([torch.empty(2), on_gpu]) == 1
    assert bisect.gpu_among([torch.empty(2)]) is None and bisect.gpu_among([]) is None


@pytest.mark.parametrize("is_used", [False, True])
def test_generators_of_each_device_are_restored(is_used, monkeypatch):
    gpus = [torch.tensor([1]), torch.tensor([2])]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_used)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [g.clone() for g in gpus])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda states: gpus.__setitem__(slice(None), states))
    state, drawn = bisect.RandomState(), torch.rand(3)
    for gpu in gpus:
        gpu += 10
    state.restore()
    assert torch.equal(torch.rand(3), drawn)
    assert [int(g) for g in gpus] == ([1, 2] if is_used else [11, 12])


needs_command = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")


@needs_command
def test_a_fault_of_bitwise_numerics(tmp_path):
    fault = "passes/cse"
    status, text = bisected(script(tmp_path, fail_stage=f"{fault}/miscompile", numerics="bitwise"))
    assert status == 1 and f"pass: {fault}\n" in text and "\nreproduced by the command" in text, text
    words = shlex.split((tmp_path / "case" / "command").read_text())
    assert words[words.index("--numerics") + 1] == "bitwise"
    limit = words.index("--pass-limit") + 1
    words[limit] = str(int(words[limit]) - 1)
    ran = subprocess.run([str(COMMAND), *words[1:]], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@needs_command
@pytest.mark.parametrize("command", [["run", "--random"], ["compile"]])
def test_bits_of_an_exported_program_are_not_claimed(tmp_path, command):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), path)
    ran = subprocess.run([COMMAND, *command, path, "--numerics", "bitwise"],
                         capture_output=True, text=True)  # fmt: skip
    assert ran.returncode == 1 and "--numerics bitwise is for graph text" in ran.stderr, ran.stderr


@needs_command
def test_a_case_of_a_gpu_runs_on_the_null_device(tmp_path):
    """All but the launch: the command as of a GPU, on one that is none."""
    bisected(script(tmp_path, fail_stage="passes/cse/miscompile"))
    case = bisect.Case(str(tmp_path / "case"), [], 0, Options(fail_stage="passes/cse/miscompile"), 1.0, gpu=0)
    words = case.command()
    words[words.index("cuda:0")] = "null:sm_90a"
    ran = subprocess.run([str(COMMAND), *words[1:], "--random"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_planted_fault_on_a_gpu_is_reproduced(tmp_path):
    call = "x, w = x.cuda(), w.cuda(); torch.nn.functional.dropout(x); run(x, w)"
    status, text = bisected(script(tmp_path, call=call, fail_stage="passes/cse/miscompile"), by_fork=False)
    assert status == 1 and "pass: passes/cse\n" in text, text
    assert "--device cuda:0" in text
    if COMMAND.exists():
        assert "\nreproduced by the command" in text, text


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_random_numbers_of_a_gpu_are_those_of_eager(tmp_path):
    call = "x, w = x.cuda(), w.cuda(); run(x, w)"
    status, text = bisected(script(tmp_path, op="add(torch.rand_like(c))", call=call), by_fork=False)
    assert status == 0 and "nothing differs: 1 calls" in text, text


def test_training_is_watched(tmp_path):
    call = "w.requires_grad_(); run(x, w)[0].sum().backward()"
    status, text = bisected(script(tmp_path, call=call, fail_stage="passes/cse/miscompile"))
    assert status == 1 and "pass: passes/cse\n" in text, text


def test_a_script_that_fails_for_another_reason(tmp_path):
    path = pathlib.Path(script(tmp_path, call="run(x, w); raise SystemExit(3)"))
    again = "import os\nif 'INKLE_PASS_LIMIT' in os.environ: raise SystemExit(3)\n"  # before torch is imported
    path.write_text(again + path.read_text())
    status, text = bisected(str(path))
    assert status == 1 and "no pass makes the difference" in text


def test_the_exit_status_tells(tmp_path):
    """Of what is compared in no graph: here, as the script looks at the number of passes itself."""
    path = pathlib.Path(script(tmp_path, call="run(x, w); raise SystemExit(limit >= 5)"))
    # Many passes fail before torch is imported, which takes seconds.
    early = "import os\nlimit = int(os.environ.get('INKLE_PASS_LIMIT', 99))\nif 5 < limit < 99: raise SystemExit(1)\n"
    path.write_text(early + path.read_text())
    status, text = bisected(str(path))
    assert status == 1 and "it fails from pass 5 of " in text, text


@pytest.mark.parametrize("limit", [0, 5, 14, 20, 40])
def test_any_number_of_passes_gives_the_same(limit):
    def f(x, w, m):
        y = torch.nn.functional.gelu(x @ w + 1.5) * torch.where(m, 2.0, x)
        q = y.view(2, 4, 2, 8).transpose(1, 2)
        z = torch.nn.functional.scaled_dot_product_attention(q, q, q).flatten(2)
        x.add_(1)
        return z.softmax(-1), torch.var_mean(y, 0), torch.cat([y, x]).t(), torch.zeros(3)[1:]

    def arguments():
        torch.manual_seed(0)
        return torch.randn(8, 16), torch.randn(16, 16), torch.rand(8, 16) > 0.5

    torch._dynamo.reset()
    run = torch.compile(f, backend="inkle", options={"pass_limit": limit, "strict": True})
    torch.testing.assert_close(run(*arguments()), f(*arguments()), rtol=1e-4, atol=1e-5)
    (report,) = inkle.reports()[-1:]
    names = report.optional_passes
    assert len(names) > 20 and "passes/decompose" not in names
    assert [n.split("/")[0] for n in names] == sorted(
        [n.split("/")[0] for n in names], key=["passes", "schedule", "codegen"].index
    )


def test_the_first_that_is_wrong():
    for count in range(1, 40):
        for first in range(1, count + 1):
            asked = []
            assert bisect._first(0, count, lambda n: asked.append(n) or n >= first) == first
            assert len(asked) <= math.ceil(math.log2(count))


@pytest.mark.parametrize("limit", [-1, True, "3"])
def test_limits_that_are_none(limit):
    with pytest.raises(Exception, match="pass_limit"):
        torch.compile(torch.sin, backend="inkle", options={"pass_limit": limit})(torch.ones(2))
