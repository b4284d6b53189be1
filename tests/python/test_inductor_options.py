"""Options, modes and settings of TorchInductor and torch that users bring along."""

from __future__ import annotations

import logging
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import inkle
from checks import compiled, randn, same
from inkle import inductor_options, machine
from inkle.options import Options, parse

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    torch._dynamo.reset()
    inkle.reset()
    monkeypatch.setattr(inductor_options, "_told", set())


def lines(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "inkle"]


# --- Options and modes ----------------------------------------------------------------------------


def test_every_key_of_inductor_is_mapped_or_told_of_once(caplog):
    assert len(inductor_options.keys()) > 400
    for key in sorted(inductor_options.keys()):
        mapped = inductor_options.MAPPED.get(key)
        value = (lambda graph: None) if mapped and mapped.values is None else True
        if key == "numerics":
            value = "fast"
        caplog.clear()
        with caplog.at_level(logging.WARNING, "inkle"):
            parse(None, {key: value})
            parsed = parse(None, {key: value})
        if mapped is None:
            (line,) = lines(caplog)
            assert repr(key) in line and "has no effect" in line and parsed == parse(None, None)
        else:
            assert not lines(caplog)


@pytest.mark.parametrize(
    "key, value, option, meant",
    [
        ("max_autotune", True, "tune", True),
        ("max-autotune", True, "tune", True),
        ("max_autotune_pointwise", True, "tune", True),
        ("coordinate_descent_tuning", True, "tune", True),
        ("triton.cudagraphs", True, "graphs", True),
        ("freezing", True, "freeze", True),
        ("fallback_random", True, "random", "eager"),
        ("fallback_random", False, "random", "fast"),
        ("align_random_eager", True, "random", "eager"),
        ("emulate_precision_casts", True, "numerics", "eager"),
        ("numerics", "default", "numerics", "eager"),
        ("numerics", "strict_pointwise", "numerics", "bitwise"),
        ("numerics", "strict_reduction", "numerics", "bitwise"),
        ("numerics", "strict", "numerics", "bitwise"),
        ("numerics", "strict", "random", "eager"),
        ("batch_invariant", True, "numerics", "batch_invariant"),
        ("batch_invariant", True, "deterministic", True),
        ("batch-invariant", False, "numerics", "eager"),
        ("fx_graph_cache", False, "cache", False),
        ("force_disable_caches", True, "cache", False),
        ("trace.enabled", True, "debug", True),
        ("deterministic", True, "deterministic", True),
    ],
)
def test_mapped_keys(key, value, option, meant):
    assert getattr(parse(None, {key: value}), option) == meant


def test_own_options_win_over_mapped_ones():
    assert not parse(None, {"tune": False, "max_autotune": True}).tune
    assert parse(None, {"max_autotune": True, "coordinate_descent_tuning": False}).tune
    assert parse("max-autotune", {"triton.cudagraphs": False}).tune
    assert not parse("max-autotune", {"triton.cudagraphs": False}).graphs


def test_keys_of_numerics_together():
    def numerics(**options):
        return parse(None, options).numerics

    assert numerics(batch_invariant=True, emulate_precision_casts=True) == "batch_invariant"
    assert numerics(emulate_precision_casts=True, batch_invariant=True) == "batch_invariant"
    assert numerics(numerics="default", batch_invariant=True) == "batch_invariant"
    assert numerics(numerics="fast", batch_invariant=True) == "fast"  # Inkle's own wins
    assert numerics(numerics="strict", batch_invariant=False) == "bitwise"
    assert not parse(None, {"batch_invariant": True, "deterministic": False}).deterministic


def test_numerics_of_inductors_settings():
    if not hasattr(torch._inductor.config, "batch_invariant"):
        pytest.skip("this torch has no such setting")
    with torch._inductor.config.patch(batch_invariant=True):
        assert parse(None, {}).numerics == "batch_invariant"
        assert parse(None, {"numerics": "eager"}).numerics == "eager"
    with torch._inductor.config.patch(numerics="strict"):
        assert parse(None, {}).numerics == "bitwise"
        assert parse(None, {"batch_invariant": True}).numerics == "batch_invariant"
    assert parse(None, {}).numerics == "eager"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"numerics": "strict", "batch_invariant": True}, "one of them, since eager's own"),
        ({"numerics": "exact"}, "numerics='exact'; one of 'eager', 'bitwise', 'fast', 'batch_inv"),
        ({"frozen": True}, "unknown option 'frozen', did you mean 'freez.*one of .*freeze"),
        ({"max_autotun": True}, "did you mean 'max_autotune'"),
        ({"triton.cudagraph": True}, "did you mean 'triton.cudagraphs'"),
        ({"xyzzy": 1}, "unknown option 'xyzzy'; one of .*list_options"),
        ({"max_autotune": 1}, "max_autotune=1; one of True, False"),
        ({"joint_pass": 1}, "joint_pass.*one of a function"),
        ({"partitioner": 1}, "partitioner=1; one of None"),
        ({"patterns": [(1, 2)]}, "patterns; one of a list"),
    ],
)
def test_wrong_options_name_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        parse(None, options)


@pytest.mark.parametrize("mode", inductor_options.modes())
def test_modes(mode, caplog):
    with caplog.at_level(logging.WARNING, "inkle"):
        run = torch.compile(lambda x: x.sin() + 1, backend="inkle", mode=mode)
        for _ in range(2):
            same(run(randn(3)), randn(3).sin() + 1)
            torch._dynamo.reset()
    # What the others set has no effect on a CPU.
    assert len(lines(caplog)) == (0 if mode == "default" else 1), lines(caplog)
    assert all(repr(mode) in line and "has no effect" in line for line in lines(caplog))


def test_an_option_of_inductor_compiles(caplog):
    options = {"epilogue_fusion": True, "shape_padding": False, "max_autotune": True}
    with caplog.at_level(logging.WARNING, "inkle"):
        for n in range(2):
            run = torch.compile(lambda x: x.sin() + n, backend="inkle", options=options)
            same(run(randn(3)), randn(3).sin() + n)
            torch._dynamo.reset()
    names = ["epilogue_fusion", "shape_padding", "max_autotune"]
    assert [name in line for name, line in zip(names, lines(caplog), strict=True)] == [True] * 3


def told(caplog, run, **named) -> list[str]:
    """What two compilations of ``run`` log."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "inkle"):
        for _ in range(2):
            torch._dynamo.reset()
            torch.compile(run, backend="inkle", **named)(torch.ones(3, 4))
    return lines(caplog)


ON_GPUS = ("max_autotune", "max-autotune-pointwise", "coordinate_descent_tuning", "triton.cudagraphs")


@pytest.mark.parametrize("key", ON_GPUS)
def test_what_a_cpu_has_no_use_for_is_told_once(key, caplog):
    (line,) = told(caplog, torch.sin, options={key: True})
    assert repr(key.replace("-", "_")) in line and "no effect in a CPU graph" in line
    assert not told(caplog, torch.sin, options={key: False})


def test_freezing_is_told_of_in_training_alone(caplog):
    model = nn.Linear(4, 4)
    with torch.no_grad():
        assert not told(caplog, model, options={"freezing": True})
    (line,) = told(caplog, model, options={"freezing": True})
    assert "'freezing'" in line and "no effect in a training graph" in line
    assert not told(caplog, model, options={"freeze": True})


def test_a_key_that_another_decides_is_not_told_of():
    assert not parse(None, {"max_autotune": True, "tune": False}).asked
    assert not parse(None, {"max_autotune": True, "tune": True}).asked
    off = {"triton.cudagraphs": False}
    assert not parse("reduce-overhead", off).asked
    assert parse("max-autotune", off).asked == {"mode 'max-autotune'": ("tune",)}
    one_of_two = {"max_autotune": False, "coordinate_descent_tuning": True}
    key = "option 'coordinate_descent_tuning' of TorchInductor"
    assert parse(None, one_of_two).asked == {key: ("tune",)}
    with pytest.raises(ValueError, match="unknown option 'asked'"):
        parse(None, {"asked": {}})


def test_what_graphs_of_a_gpu_have_no_use_for(caplog):
    asked = parse("max-autotune", {"coordinate_descent_tuning": True, "freezing": True}).asked
    with caplog.at_level(logging.WARNING, "inkle"):
        inductor_options.tell_without_effect(asked, on_gpu=True, training=False)
        assert not lines(caplog)
        inductor_options.tell_without_effect(asked, on_gpu=True, training=True)
    mode, key = lines(caplog)
    assert "mode 'max-autotune' (Inkle's 'graphs') has no effect in a training graph" in mode
    assert "'freezing' of TorchInductor (Inkle's 'freeze') has no effect in a training" in key


def test_the_table_in_the_documentation_is_that_of_the_code():
    page = (ROOT / "docs" / "from-inductor.md").read_text()
    assert inductor_options.table() in page


# --- Settings of torch ----------------------------------------------------------------------------


def test_fallback_random_of_inductors_settings_draws_eagers_numbers():
    def draw(x):
        return nn.functional.dropout(x, 0.5) + torch.rand(4, 5)

    def results(setting):
        torch._dynamo.reset()
        with torch._inductor.config.patch(fallback_random=setting):
            torch.manual_seed(3)
            found = torch.compile(draw, backend="inkle")(torch.ones(4, 5))
        torch.manual_seed(3)
        return found, draw(torch.ones(4, 5))

    same(*results(True))
    found, wanted = results(False)
    assert not torch.equal(found, wanted)


def test_deterministic_algorithms_reach_the_compiler_and_compile_anew():
    seen = []
    run = torch.compile(lambda x: x.sin() + 1, backend="inkle")
    original = machine.native_options

    def watched(*args, **named):
        made = original(*args, **named)
        seen.append(made.deterministic)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inkle.backend, "native_options", watched)
        run(randn(3))
        torch.use_deterministic_algorithms(True)
        try:
            run(randn(3))
        finally:
            torch.use_deterministic_algorithms(False)
    assert seen == [False, True]
    assert original(Options(deterministic=True), training=False).deterministic


def test_deterministic_algorithms_fill_empty_tensors():
    def make(x):
        return torch.empty(64, 64) + x, torch.empty_like(x), torch.empty(5, dtype=torch.int32)

    torch.use_deterministic_algorithms(True)
    try:
        with torch.no_grad():
            found = compiled(make)(torch.ones(64, 64))
            for one in found[:-1]:
                assert one.isnan().all()
            assert (found[-1] == 2**31 - 1).all()
        weight = torch.ones(64, 64, requires_grad=True)
        assert compiled(make)(weight)[0].isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).exp().sin()
        return x


def saved_bytes(run, *inputs) -> int:
    """Bytes that autograd keeps of the call beside the arguments and parameters."""
    torch._dynamo.reset()
    kept = {}
    result = run(*inputs)
    for tensor in result.grad_fn.saved_tensors if hasattr(result.grad_fn, "saved_tensors") else ():
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    for tensor in inputs:
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    result.sum().backward()
    return sum(kept.values())


def test_the_memory_budget_of_activations_is_kept():
    torch.manual_seed(0)
    model, x = Deep(), torch.randn(256, 32)
    wanted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    found = {}
    for budget in (1.0, 0.5, 0.0):
        model.zero_grad()
        with torch._functorch.config.patch(activation_memory_budget=budget):
            run = torch.compile(model, backend="inkle", options={"strict": True})
            found[budget] = saved_bytes(run, x)
        for p, w in zip(model.parameters(), wanted):
            torch.testing.assert_close(p.grad, w, rtol=1e-4, atol=1e-4)
    assert found[0.0] < found[0.5] < found[1.0], found


@pytest.mark.parametrize(
    "stance, graphs",
    [("force_eager", 0), ("default", 1)],
)
def test_a_stance_is_kept(stance, graphs):
    run = torch.compile(lambda x: x.sin() + 1, backend="inkle")
    with torch.compiler.set_stance(stance):
        same(run(randn(3)), randn(3).sin() + 1)
    assert len(inkle.reports()) == graphs


def test_a_stance_against_recompiling():
    run = torch.compile(lambda x: x.sin() + 1, backend="inkle", dynamic=False)
    run(randn(3))
    with torch.compiler.set_stance("eager_on_recompile"):
        same(run(randn(4)), randn(4).sin() + 1)
        same(run(randn(3)), randn(3).sin() + 1)
    with torch.compiler.set_stance("fail_on_recompile"):
        same(run(randn(3)), randn(3).sin() + 1)
        with pytest.raises(RuntimeError, match="recompil"):
            run(randn(4))
    assert len(inkle.reports()) == 1


def test_a_stance_that_begins_in_eager():
    run = torch.compile(lambda x: x.sin() + 1, backend="inkle")
    with torch.compiler.set_stance("eager_then_compile"):
        for size in (3, 4, 5):
            same(run(randn(size)), randn(size).sin() + 1)
    assert len(inkle.reports()) == 1  # after two sizes that were seen in eager


PROGRAM = """
import torch
run = torch.compile(lambda x: x.sin() + 1, backend="inkle")
run(torch.ones(3))
print(torch._dynamo.utils.get_debug_dir())
"""


@pytest.mark.parametrize("value", ["0", "1"])
def test_compile_debug_leaves_texts_in_torchs_folder(value, tmp_path):
    environment = os.environ | {
        "TORCH_COMPILE_DEBUG": value, "PYTHONPATH": str(ROOT / "python"),
        "INKLE_CACHE_DIR": str(tmp_path / "cache"),
        "TORCH_COMPILE_DEBUG_DIR": str(tmp_path),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True,
    )  # fmt: skip
    folder = pathlib.Path(done.stdout.splitlines()[-1]) / "inkle"
    names = sorted(p.name for p in folder.glob("*")) if folder.exists() else []
    stages = [re.sub(r"^\d+-|\.txt$", "", n) for n in names]
    assert stages == ([] if value == "0" else ["graph", "passes", "loops", "kernels", "plan"])
    if value == "1":
        assert "sin" in (folder / names[0]).read_text()
