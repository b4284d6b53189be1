"""The command on programs of torch.export, against eager: no Python in the command."""

from __future__ import annotations

import copy
import os
import pathlib
import subprocess
import sys

import numpy
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "pt2"))

import make_samples  # noqa: E402


def command() -> str:
    """INKLE_COMMAND, or the newest binary of a build folder."""
    given = os.environ.get("INKLE_COMMAND")
    if given:
        return given
    built = [p for p in ROOT.glob("build*/inkle") if os.access(p, os.X_OK) and p.is_file()]
    if not built:
        pytest.skip("the command is not built")
    return str(max(built, key=lambda p: p.stat().st_mtime))


def inkle(*args: object, code: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [command(), *map(str, args)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stderr
    return done


def tensors(value) -> list:
    """Tensors and integers of nested outputs, in pytree's order."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return [x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in leaves]


def call(path: pathlib.Path, args, folder: pathlib.Path, *options: object) -> list[numpy.ndarray]:
    given: list[object] = []
    for i, arg in enumerate(tensors(args)):
        numpy.save(folder / f"in{i}.npy", arg.detach().numpy())
        given += ["-i", folder / f"in{i}.npy"]
    done = inkle("run", path, *given, "-o", folder / "out", *options)
    return [numpy.load(line) for line in done.stdout.split()]


def compare(found: list[numpy.ndarray], expected, tolerance: float = 1e-5) -> None:
    wanted = [t.detach().numpy() for t in tensors(expected)]
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = max(float(numpy.abs(b).max()), 1e-3) if b.size else 1.0
        numpy.testing.assert_allclose(a / scale, b / scale, atol=tolerance, rtol=0)


def eager(name: str, args):
    torch.manual_seed(0)
    model = make_samples.samples()[name][0]
    make_samples.randomise(model)
    model.eval()
    with torch.no_grad():
        return model(*copy.deepcopy(args))


SAMPLES = ["decoder", "encoder", "mutations", "residual", "tables", "tiny"]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("freeze", [False, True])
def test_sample(name, freeze, tmp_path):
    if freeze and name == "mutations":
        pytest.skip("it writes to a weight")
    program, args = make_samples.export(name)
    torch.export.save(program, tmp_path / "m.pt2")
    found = call(tmp_path / "m.pt2", args, tmp_path, *(["--freeze"] if freeze else []))
    compare(found, eager(name, args))


@pytest.mark.parametrize("name", ["decoder", "encoder"])
@pytest.mark.parametrize("rows, words", [(1, 2), (3, 16), (7, 5)])
def test_dynamic_sizes(name, rows, words, tmp_path):
    program, args = make_samples.export(name)
    torch.export.save(program, tmp_path / "m.pt2")
    ids = torch.randint(0, 32, (rows, words))
    mask = (torch.arange(words) < max(1, words - 2)).long().expand(rows, words).contiguous()
    given = (ids, mask)[: len(args)]
    compare(call(tmp_path / "m.pt2", given, tmp_path), eager(name, given))


@pytest.mark.parametrize("n", [3, 0, -1, -3, -7, 2**40, -(2**63), 2**63 - 1])
def test_integers_may_be_negative(n, tmp_path):
    program, _ = make_samples.export("integers")
    torch.export.save(program, tmp_path / "m.pt2")
    (symbol,) = (v.meta["val"] for v in program.graph.nodes if v.name == "n")
    x = torch.arange(5)
    found = call(tmp_path / "m.pt2", (x,), tmp_path, "--size", f"{symbol}={n}")
    compare(found, eager("integers", (x, n)))


def test_stored_samples_are_those_that_are_made():
    for name in SAMPLES:
        program, args = make_samples.export(name)
        assert len(tensors(args)) > 0 and program.graph is not None
        assert (ROOT / "tests" / "pt2" / "data" / f"{name}.pt2").stat().st_size < 40_000


def test_wrong_inputs(tmp_path):
    model = ROOT / "tests" / "pt2" / "data" / "encoder.pt2"
    numpy.save(tmp_path / "ids.npy", numpy.zeros((2, 40), "i8"))
    numpy.save(tmp_path / "f.npy", numpy.zeros((2, 6), "f4"))
    numpy.save(tmp_path / "ok.npy", numpy.zeros((2, 6), "i8"))
    numpy.save(tmp_path / "other.npy", numpy.zeros((3, 6), "i8"))

    def refused(*args: object) -> str:
        return inkle("run", model, *args, code=1).stderr

    assert "input ids is missing" in refused()
    assert "dimension 1: s27 is 40, expected 2 to 16" in refused("-i", tmp_path / "ids.npy")
    assert "input ids: expected i64[s23,s27], got f32[2,6]" in refused("-i", tmp_path / "f.npy")
    assert "there is no such input; the inputs are ids: i64" in refused("-i", "x=a.npy")
    assert "s23 is 3, but 2 before" in refused(
        "-i", tmp_path / "ok.npy", "-i", tmp_path / "other.npy"
    )
    assert "No such file" in refused("-i", tmp_path / "nothing.npy")
    assert inkle("run", tmp_path / "none.pt2", code=1).stderr.startswith("error: ")
    assert inkle("run", code=2).stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [("frobnicate", "error: no command 'frobnicate': inkle --help lists them\n"),
     ("run a.txt --threads 0", "error: --threads: 0 is no number from 1 on\n"),
     ("bench a.txt --runs many", "error: --runs: many is no number from 1 on\n"),
     ("profile a.txt --seconds -1", "error: --seconds: -1 is no number from 0 on\n")],
)  # fmt: skip
def test_wrong_command_lines(line, message):
    assert inkle(*line.split(), code=2).stderr == message


def test_an_index_out_of_range_is_an_error(tmp_path):
    numpy.save(tmp_path / "ids.npy", numpy.full((2, 6), 99))
    model = ROOT / "tests" / "pt2" / "data" / "decoder.pt2"
    assert "range" in inkle("run", model, "-i", tmp_path / "ids.npy", code=1).stderr


def test_damaged_files(tmp_path):
    content = (ROOT / "tests" / "pt2" / "data" / "decoder.pt2").read_bytes()
    bad = tmp_path / "bad.pt2"
    for damaged in (content[: len(content) // 2], b"PK" + b"\0" * 50, content[:-1]):
        bad.write_bytes(damaged)
        assert str(bad) in inkle("run", bad, "--random", code=1).stderr
    for name, no_archive in (("bad.pt2", b"graph @g() {}"), ("bad.ir", b"\1\2\3\xff"), ("none.pt2", b"")):
        (tmp_path / name).write_bytes(no_archive)
        message = inkle("run", tmp_path / name, "--random", code=1).stderr
        assert message.startswith(f"error: {tmp_path / name}: neither an archive"), message
    for at in range(100, len(content) - 2000, 911):
        bad.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        assert "error: " in inkle("run", bad, "--random", code=1).stderr


def test_an_op_without_code_is_named(tmp_path):
    class Sorted(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svd(x)[1]

    torch.export.save(torch.export.export(Sorted(), (torch.randn(4, 4),)), tmp_path / "m.pt2")
    message = inkle("run", tmp_path / "m.pt2", "--random", code=1).stderr
    assert "linalg_svd" in message and "test_pt2.py:" in message


def test_text_graphs(tmp_path):
    graph = tmp_path / "g.ir"
    graph.write_text(
        "graph @g(%x: f32[s0,4], %w: f32[4,3] param) -> f32[s0,3] where s0 in 2..9 hint 3 {\n"
        "  %0: f32[s0,3] = mm(%x, %w)\n  return %0\n}\n"
    )
    x, w = torch.randn(5, 4), torch.randn(4, 3)
    compare(call(graph, (x, w), tmp_path), x @ w)
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"w": w}, tmp_path / "w.safetensors")
    compare(call(graph, (x,), tmp_path, "--weights", tmp_path / "w.safetensors"), x @ w)
    assert "output0: f32[7,3]" in inkle("run", graph, "--random", "--size", "s0=7").stdout
    assert inkle("opt", graph).stdout.startswith("graph @g(")
    assert inkle("opt", "--passes=cse,dce", graph).stdout.startswith("graph @g(")
    assert "loops @g {" in inkle("lower", graph).stdout
    assert "plan @g" in inkle("compile", graph, "--stage", "plan").stdout
    assert "median" in inkle("bench", graph, "--runs", "3").stdout
    assert "there is no pass" in inkle("opt", "--passes=nothing", graph, code=1).stderr
    graph.write_text("graph @g(%x: f32[8]) -> f32[8] {\n  %0: f32[8] = neg(%x)\n  return %0\n}\n")
    assert "define void @" in inkle("compile", graph, "--stage", "code").stdout
    graph.write_text("graph @g(%x: f32[2]) -> f32[3] {\n  return %y\n}\n")
    assert f"{graph}:2" in inkle("run", graph, code=1).stderr


def minilm():
    import transformers

    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    ids = torch.randint(0, 30000, (2, 32))
    mask = torch.ones_like(ids)
    mask[1, 20:] = 0
    return model, (ids, mask)


def gpt2():
    import transformers

    config = transformers.GPT2Config(use_cache=False)
    return transformers.GPT2LMHeadModel(config).eval(), (torch.randint(0, 50000, (1, 64)),)


def resnet50():
    import timm

    return timm.create_model("resnet50").eval(), (torch.randn(1, 3, 224, 224),)


class First(torch.nn.Module):
    """A model whose first output counts."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args):
        out = self.model(*args)
        return out if isinstance(out, torch.Tensor) else out[0]


@pytest.mark.parametrize("make", [minilm, gpt2, resnet50])
def test_whole_models(make, tmp_path):
    torch.manual_seed(0)
    model, args = make()
    model = First(model).eval()
    with torch.no_grad():
        torch.export.save(torch.export.export(model, args), tmp_path / "m.pt2")
        expected = model(*args)
    compare(call(tmp_path / "m.pt2", args, tmp_path), expected, 3e-5)
