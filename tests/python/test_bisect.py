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

import pytest
import torch

import inkle
from inkle import bisect

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


def bisected(path: str, *words: str) -> tuple[int, str]:
    folder = pathlib.Path(path).parent
    path_variable = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [sys.executable, "-m", "inkle", "bisect", "--output", str(folder / "case"), *words, path],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": path_variable},
    )  # fmt: skip
    assert "Traceback" not in ran.stderr, ran.stderr[-3000:]
    return ran.returncode, ran.stdout


def test_a_script_without_a_fault(tmp_path):
    status, text = bisected(script(tmp_path))
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


def test_training_is_watched(tmp_path):
    call = "w.requires_grad_(); run(x, w)[0].sum().backward()"
    status, text = bisected(script(tmp_path, call=call, fail_stage="passes/cse/miscompile"))
    assert status == 1 and "pass: passes/cse\n" in text, text


def test_a_script_that_fails_for_another_reason(tmp_path):
    status, text = bisected(script(tmp_path, call="run(x, w); raise SystemExit(3)"))
    assert status == 1 and "no pass makes the difference" in text


def test_the_exit_status_tells(tmp_path):
    """Of what is compared in no graph: here, as the script looks at the number of passes itself."""
    call = ("import os, inkle; run(x, w); limit = int(os.environ.get('INKLE_PASS_LIMIT', 99)); "
            "raise SystemExit(limit >= 5)")  # fmt: skip
    status, text = bisected(script(tmp_path, call=call))
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
