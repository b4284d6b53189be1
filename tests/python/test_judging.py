"""The judge of bench/: of families over five inputs, of complex results, of what torch itself does, of
what may be near."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any, Callable

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import common  # noqa: E402
import families  # noqa: E402
import judging  # noqa: E402
import near  # noqa: E402
import opdb  # noqa: E402
import opdb_case  # noqa: E402
import places  # noqa: E402


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 16).reshape(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def placed(model: torch.nn.Module, rows: int = 2) -> judging.Placed:
    def inputs(seed: int) -> torch.Tensor:
        return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)).double().float()

    return judging.Placed(model, inputs, lambda m, x: m(x), None, judging.FLOOR_ALONE,
                          torch.finfo(torch.float32).eps, lambda: None)  # fmt: skip


def wrong_from_call(first: int, made_of: Any, off: float = 1e-3) -> Callable[..., Any]:
    """Eager, off by a part from its ``first``-th call on."""
    calls = 0

    def run(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        result = made_of(x)
        return result * (1 + off) if calls >= first else result

    return run


def test_inference_is_judged_over_all_inputs():
    model = Linear()
    built = placed(model)
    double = Linear().double()
    assert judging.run_inference(built, model, double, 1)["ok"]
    for first in (1, 2, judging.INPUTS):
        run = wrong_from_call(first, model)
        assert not judging.run_inference(built, run, double, 1)["ok"], f"wrong from input {first} on"


def test_other_batches_are_judged_over_all_inputs():
    model = Linear()
    run = wrong_from_call(judging.INPUTS, model)
    result = judging.run_other_batch(placed(model), run, Linear().double())
    assert result["ok"] is False and result["accuracy"].startswith("other batch: rms")


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 1.001


def test_a_wrong_gradient_is_found():
    """The f64 model's loss is that of eager, so its gradients tell eager's error. Of 16 numbers or more
    torch draws others in f64 than in f32."""
    result = judging.run_training(
        placed(Linear(), 8), lambda model: lambda x: WrongBackward.apply(model(x)), 1
    )
    assert not result["ok"] and "gradient weight" in result["accuracy"]


def test_training_is_judged_over_all_inputs():
    def compile_model(first: int) -> Callable[[Any], Any]:
        return lambda model: wrong_from_call(first, model)

    assert judging.run_training(placed(Linear()), compile_model(100), 1)["ok"]
    result = judging.run_training(placed(Linear()), compile_model(judging.INPUTS), 1)
    assert not result["ok"] and not result["by_chance"]


def test_a_different_kind_of_result_fails_whatever_the_others_give():
    model = Linear()
    calls = 0

    def run(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return model(x) * (torch.nan if calls == 3 else 1)

    result = judging.run_inference(placed(model), run, Linear().double(), 1)
    assert not result["ok"] and "NaN" in result["accuracy"]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_results_are_compared(dtype):
    exact = torch.complex(torch.linspace(1, 2, 8).double(), torch.linspace(-1, 1, 8).double())
    eager = exact.to(dtype)
    assert common.compare(eager.clone(), eager, exact).ok
    for other in (eager.conj(), eager * (1 + 1e-3), eager + 1e-3j, eager.real.to(dtype)):
        assert not common.compare(other, eager, exact).ok, other
    broken = eager.clone()
    broken[3] = complex(1, float("nan"))
    assert common.compare(broken, eager, exact).bad
    assert common.to_double(eager).dtype == torch.complex128


# --- What torch itself does -----------------------------------------------------------------------


class Said:
    """A case for which each backend raises what it is told to, or nothing."""

    def __init__(self, mine: Exception | None, theirs: Exception | None, both: Exception | None):
        self._said = {("inkle", None): mine, ("aot_eager", None): theirs, ("inkle", "aot_eager"): both}

    def check(self, sample: Any, backend: str, against: str | None = None) -> None:
        error = self._said[backend, against]
        if error is not None:
            raise error


WRONG, OTHER = opdb_case.Wrong("result 0: by 1"), opdb_case.Wrong("result 0: by 2")
GRAPH = ValueError("no rule for inkle at 0x12")


@pytest.mark.parametrize("mine, theirs, both, outcome", [
    (None, WRONG, WRONG, "right"),
    (opdb_case.Near(), None, None, "near"),
    (WRONG, None, WRONG, "wrong"),
    (WRONG, OTHER, WRONG, "wrong"),  # both differ from eager, and from each other
    (WRONG, WRONG, None, "torch"),
    (WRONG, RuntimeError("aot_eager fails"), RuntimeError("aot_eager fails"), "wrong"),
    (GRAPH, ValueError("no rule for aot_eager at 0x34"), None, "untraced"),
    (GRAPH, None, None, "fault"),
    (GRAPH, WRONG, None, "fault"),
    (GRAPH, ValueError("another rule"), None, "fault"),
    (GRAPH, TypeError("no rule for inkle at 0x12"), None, "fault"),
])  # fmt: skip
def test_only_what_torch_does_too_is_torchs(mine, theirs, both, outcome):
    assert opdb_case._outcome(Said(mine, theirs, both), None)[0] == outcome


def test_cases_are_compared_with_another_backend():
    (entry,) = [e for e in opdb_case.every_entry() if e.name == "neg"]
    case = opdb_case.Case(entry, torch.float32, False, 1, "cpu")
    sample = case.samples()[0]

    def doubled(gm: Any, inputs: Any) -> Callable[..., Any]:
        return lambda *arguments: tuple(2 * t for t in gm(*arguments))

    case.check(sample, doubled, against=doubled)
    for backends in ((doubled, None), (doubled, "aot_eager"), (None, doubled)):
        with pytest.raises(opdb_case.Wrong):
            case.check(sample, *backends)


def test_random_programs_are_excused_by_equal_values_or_the_same_error(monkeypatch):
    program = places.Program(0)
    found = places._run(program, program, 0, "cpu")
    assert places._is_torchs(program, 0, "cpu", found, None)
    other = places.Outcome(tuple(r + 1 for r in found.results), found.memory)
    assert not places._is_torchs(program, 0, "cpu", other, None)
    assert not places._is_torchs(program, 0, "cpu", None, RuntimeError("ours alone"))

    def raises(*_: Any) -> None:
        raise RuntimeError("no kernel of aot_eager at 0x12")

    monkeypatch.setattr(places, "_run", raises)
    assert places._is_torchs(program, 0, "cpu", None, RuntimeError("no kernel of inkle at 0x34"))
    assert not places._is_torchs(program, 0, "cpu", None, RuntimeError("no kernel of inkle"))
    assert not places._is_torchs(program, 0, "cpu", None, TypeError("no kernel of inkle at 0x34"))
    assert not places._is_torchs(program, 0, "cpu", found, None)


@pytest.mark.parametrize("message, is_wrong", [
    ("no rows", True), ("\"sort\" not implemented for 'Half'", False),
])  # fmt: skip
def test_a_random_program_that_eager_refuses_is_refused(monkeypatch, message, is_wrong):
    run = places._run

    def refused(function: Any, *given: Any) -> Any:
        if isinstance(function, places.Program) or is_refused:
            raise RuntimeError(message)
        return run(function, *given)

    monkeypatch.setattr(places, "_run", refused)
    monkeypatch.setattr(places, "_is_torchs", lambda *_: False)
    is_refused = False
    text, _ = places.check(0, "cpu")
    assert (message in text) == is_wrong and bool(text) == is_wrong
    is_refused = True
    assert places.check(0, "cpu") == ("", False)


@pytest.mark.parametrize("mine, theirs, is_same", [
    (None, None, True),
    (ValueError("size s0 of u12 in __compiled_fn_3_ab"), ValueError("size s1 of u7 in __compiled_fn_5_cd"), True),
    (ValueError("backend='inkle' raised"), ValueError("backend='aot_eager' raised"), True),
    (ValueError("[Float [3]] is at version 1"), ValueError("[Float [3]], which is output 1 of F, is at version 1"), True),
    (ValueError("[Float [3]] is at version 1"), ValueError("[Float [4]], which is output 1 of F, is at version 1"), False),
    (ValueError("shape=[-6917529026399301648]"), ValueError("shape=[-6917388390272122984]"), True),
    (ValueError("size -9223372036854775807"), ValueError("size -9223372036854775806"), False),
    (ValueError("size 3"), ValueError("size 4"), False),
    (ValueError("size 3"), RuntimeError("size 3"), False),
    (ValueError("size 3"), None, False),
    (None, ValueError("size 3"), False),
])  # fmt: skip
def test_errors_are_the_same_but_for_names_that_are_made_up(mine, theirs, is_same):
    assert common.is_same_error(mine, theirs) == is_same


# --- What is near ---------------------------------------------------------------------------------


def test_what_is_near_must_be_listed(monkeypatch):
    monkeypatch.setattr(near, "_listed", lambda: near.parse(
        "# a comment\n\nfamilies | cpu f32 train | known | a reason\n"
        "opdb | cpu grad f32 | known | a reason\n"
    ))  # fmt: skip
    setting = families.setting_of(argparse.Namespace(device="cpu", dtype="f32", train=True))
    right = {"name": "timm/right", "ok": True}
    known, unknown = ({"name": f"timm/{n}", "ok": False, "by_chance": True} for n in ("known", "unknown"))
    assert families.failures([right, known], setting) == []
    assert families.failures([right, known, unknown], setting) == ["timm/unknown"]
    assert families.failures([known], "cpu f32 inference") == ["timm/known"]
    assert families.failures([{"name": "timm/known", "ok": False}], setting) == ["timm/known"]
    cases = [{"name": "known f32 grad", "outcome": "near"}, {"name": "known f32 forward", "outcome": "near"},
             {"name": "known f32 grad", "outcome": "wrong"}, {"name": "x f32 grad", "outcome": "right"}]  # fmt: skip
    assert opdb.failures(cases, "cpu") == cases[1:3]


def test_each_listed_name_has_a_reason():
    assert len(near._listed()) > 10
    with pytest.raises(ValueError, match="near.txt:1"):
        near.parse("families | cpu f32 train | bert |")
