"""A few of the random functions of bench/fuzz.py, what its judge and its reduction say of backends that
are wrong, and how it counts processes that die."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import sys
import threading
from typing import Any, Callable

import pytest
import torch

import inkle

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import fuzz  # noqa: E402
import fuzz_draw  # noqa: E402
import fuzz_ints  # noqa: E402
import fuzz_judge  # noqa: E402
import fuzz_reduce  # noqa: E402
from fuzz_draw import Argument, Block, Program  # noqa: E402


INTS = fuzz_ints.FIRST


@pytest.mark.parametrize("first", [0, 8, 16, INTS, INTS + 8])
def test_random_functions(first):
    inkle.reset()
    for seed in range(first, first + 8):
        torch._dynamo.reset()
        program = fuzz_draw.draw(seed)
        outcome, text = fuzz_judge.tried(program)
        assert outcome not in ("differs", "late"), f"{text}\n{program}"
    assert sum(r.compiled for r in inkle.reports()) >= 1


def test_a_seed_stands_for_one_function():
    for seed in range(30):
        assert str(fuzz_draw.draw(seed)) == str(fuzz_draw.draw(seed))
    drawn = "".join(fuzz_draw.draw(seed).source for seed in range(300))
    for part in ("if ", "for j", "graph_break", ".item()", "cond(", "while_loop(", "rand", "_(", "[...",
                 "complex", ".t()"):  # fmt: skip
        assert part in drawn, part


def test_ints_are_of_64_bits_and_stand_everywhere():
    programs = [fuzz_draw.draw(seed) for seed in range(INTS, INTS + 200)]
    assert str(programs[7]) == str(fuzz_draw.draw(INTS + 7))
    ints = [n for p in programs for a in p.arguments.values() if a.dtype == "int" for n in (a.value, *a.later)]
    assert all(len(a.later) == 2 for p in programs for a in p.arguments.values() if a.dtype == "int")
    assert {-1, 0, 3, fuzz_ints.LEAST, fuzz_ints.LARGEST} < set(ints)
    assert any(2**31 - 3 < n < 2**31 + 3 for n in ints) and any(2**33 < n < 2**60 for n in ints)
    drawn = "".join(p.source for p in programs)
    for part in (r"\[::min\([nm], 2 \*\* 56\)\]", r"\[[nm]:\]", r"\[:[nm]\]", r"roll\([nm]\)", r"tri[lu]\([nm]\)", r"\*\* [nm]\b", r"[nm] \*\* 2",
                 r"2 \*\* \([nm] % 8\)", r"[nm] // 3", r"7 // [nm]", r"[nm] % 5", r"\w // [nm]\b", r"\w % [nm]\b", r"[nm] > 3",
                 r"\w < [nm]\b", r"if [nm] "):  # fmt: skip
        assert re.search(part, drawn), part
    assert {p.dynamic for p in programs} == {False, None, True}


def test_steps_and_exponents_have_one_result_in_eager():
    """A step near 2^63 overflows in the size of a slice. An odd exponent that f32 does not hold is even in
    whole vectors alone."""
    drawn = "".join(fuzz_draw.draw(seed).source for seed in range(INTS, INTS + 400))
    assert "[::min(n, 2 ** 56)]" in drawn and not re.search(r"\[::[nmvk]\w*\]", drawn)
    exponent = fuzz_ints.exponent("n", True)
    assert f"** {exponent}" in drawn and fuzz_ints.exponent("n", False) == "n"

    def has_one(dtype, exponent):
        x = torch.full((67,), -1.0, dtype=dtype) ** exponent
        return torch.equal(x, x[-1:].expand(67))

    for n in (3, -3, 2**24 + 1, 2**53 + 1, -(2**24) - 1, fuzz_ints.LEAST, fuzz_ints.LARGEST):
        drawn_exponent = eval(exponent, {"n": n})  # noqa: S307
        assert has_one(torch.float32, drawn_exponent) and has_one(torch.float32, drawn_exponent - 1)
        assert has_one(torch.bfloat16, n) and has_one(torch.float64, n)


def program(*statements: Any, results: list[str], grad: bool = False, **arguments: Argument) -> Program:
    given = arguments or {"x": Argument("f32", (3, 4))}
    return Program(1, given, list(statements), results, grad=grad)


def judged(one: Program, monkeypatch: Any, wrong: Callable[..., Any]) -> str:
    """What the judge says of a backend that makes ``wrong`` of a graph and its arguments."""
    def compiled(p: Program, backend: str) -> Any:
        how: Any = backend
        if backend == "inkle":
            how = lambda gm, inputs: lambda *arguments: wrong(gm, *arguments)  # noqa: E731
        return torch.compile(fuzz_judge.function(p, False), backend=how, dynamic=p.dynamic)

    torch._dynamo.reset()
    monkeypatch.setattr(fuzz_judge, "_compiled", compiled)
    outcome, text = fuzz_judge.judge(one)
    return text if outcome == "differs" else outcome


def test_the_judge_sees_what_is_wrong(monkeypatch):
    view = program("v1 = x * 2", "v2 = v1[1:]", results=["v1", "v2"])
    assert judged(view, monkeypatch, lambda gm, *a: gm(*a)) == "right"
    assert "off by" in judged(view, monkeypatch, lambda gm, *a: (r := gm(*a), r[0].mul_(1.001))[0])
    assert "share" in judged(view, monkeypatch, lambda gm, *a: [t.clone() for t in gm(*a)])
    text = judged(view, monkeypatch, lambda gm, *a: [t.clone().t().contiguous().t() for t in gm(*a)])
    assert "strides" in text
    flat = program("v1 = x * 2", results=["v1.view(-1)", "v1"])
    text = judged(flat, monkeypatch, lambda gm, *a: (f := gm(*a)[0].clone(), f.view(3, 4)))
    assert text.endswith("views otherwise: [-1, 0], [1, -1] in eager")
    write = program("v1 = x * 1", "x.add_(1)", results=["v1"])
    assert "argument 0" in judged(write, monkeypatch, lambda gm, *a: gm(*[t.clone() for t in a]))
    integers = program("v1 = x + 1", results=["v1"], x=Argument("i64", (3,)))
    assert "off by 1" in judged(integers, monkeypatch, lambda gm, *a: [t + 1 for t in gm(*a)])
    numbers = program("v1 = x * 2j", results=["v1"], x=Argument("c64", (3,)))
    assert judged(numbers, monkeypatch, lambda gm, *a: gm(*a)) == "right"
    assert "off by" in judged(numbers, monkeypatch, lambda gm, *a: [t.conj() * 1 for t in gm(*a)])
    random = program("v1 = torch.rand(3)", results=["v1"])
    assert "random" in judged(random, monkeypatch, lambda gm, *a: (torch.rand(1), gm(*a))[1])


def said(one: Program, monkeypatch: Any, mine: Callable[..., Any], theirs: Callable[..., Any]) -> str:
    """What the judge says of a function in place of that which Inkle compiles, and another for AOTAutograd."""
    def compiled(p: Program, backend: Any) -> Any:
        made = mine if backend == "inkle" else theirs
        return getattr(made, "anew", lambda: made)()

    monkeypatch.setattr(fuzz_judge, "_compiled", compiled)
    return fuzz_judge.judge(one)[0]


def raising(error: Exception, from_call: int = 0) -> Callable[..., Any]:
    """Doubles its argument, and raises from that call on."""
    calls = 0

    def run(x: torch.Tensor) -> tuple[torch.Tensor]:
        nonlocal calls
        calls += 1
        if calls > from_call:
            raise error
        return (x * 2,)

    run.anew = lambda: raising(error, from_call)  # each compilation counts its own calls
    return run


def test_an_error_is_torchs_only_if_it_is_the_same(monkeypatch):
    doubled = program("v1 = x * 2", results=["v1"])
    mine, other_text, other_type = ValueError("size 3"), ValueError("size 4"), TypeError("size 3")
    assert said(doubled, monkeypatch, raising(mine), raising(ValueError("size 3"))) == "torch"
    for theirs in (other_text, other_type):
        assert said(doubled, monkeypatch, raising(mine), raising(theirs)) == "differs"
    right = lambda x: (x * 2,)  # noqa: E731
    assert said(doubled, monkeypatch, raising(mine), right) == "differs"
    assert said(doubled, monkeypatch, raising(mine, 1), raising(mine, 1)) == "torch"
    assert said(doubled, monkeypatch, raising(mine), raising(mine, 1)) == "differs"


def test_what_eager_alone_refuses_is_not_right(monkeypatch):
    """In a later call, which both refuse or one computes; in a backward."""
    later = Argument("int", value=1, later=(0, 0))
    divided = program("v1 = x + 7 // n", results=["v1"], x=Argument("f32", (3,)), n=later)
    assert said(divided, monkeypatch, fuzz_judge.function(divided, False), None) == "right"
    assert said(divided, monkeypatch, lambda x, n: (x + 7,), None) == "refused"
    written = program("v1 = x.exp()", "v2 = v1 * 1", "v1.add_(1)", results=["v2"], grad=True)
    assert said(written, monkeypatch, fuzz_judge.function(written, False), None) == "right"
    assert said(written, monkeypatch, lambda x: (x.exp() * 1,), None) == "refused"
    assert said(written, monkeypatch, lambda x: (x.exp() * 2,), lambda x: (x.exp(),)) == "differs"


def test_rounding_is_no_difference_and_cancellation_neither(monkeypatch):
    near = program("v1 = (x.exp() - 1) * 1e6", results=["v1"])
    assert judged(near, monkeypatch, lambda gm, *a: [t * (1 + 1e-7) for t in gm(*a)]) == "right"
    zero = program("v1 = (x.double().sin() + 1000).float() - 1000", results=["v1"])
    assert judged(zero, monkeypatch, lambda gm, *a: [t + 1e-4 * (t != 0) for t in gm(*a)]) == "right"


def test_terms_of_an_op_that_cancel_are_rounding(monkeypatch):
    """Eager normalises one element to the rounding error of x * r - mean * r."""
    one = program("v1 = F.layer_norm(x, x.shape[-1:])", "v2 = v1.reciprocal()", results=["v2"],
                  x=Argument("bf16", (4, 1)))  # fmt: skip
    assert judged(one, monkeypatch, lambda gm, x: [x * float("inf")]) == "right"
    two = dataclasses.replace(one, arguments={"x": Argument("bf16", (4, 2))})
    assert judged(two, monkeypatch, lambda gm, *a: gm(*a)) == "right"
    assert "off by" in judged(two, monkeypatch, lambda gm, x: [x * float("inf")])


def test_of_a_gpu_all_is_placed_and_defined():
    given = "v1 = torch.zeros(3).index_fill(0, torch.tensor([int(n / 2)]), 2)\n"
    placed = "v1 = torch.zeros(3, device='cuda').index_fill(0, torch.tensor([int(n / 2)], device='cuda'), 2)\n"
    assert fuzz_judge._placed(given, torch.device("cuda")) == placed
    assert fuzz_judge._placed(given, torch.device("cpu")) == given

    # A CPU refuses what has no value there.
    divided = program("v1 = x % n", results=["v1"], x=Argument("i64", (3,)), n=Argument("int", value=2, later=(0, 3)))
    with torch.device("meta"):
        assert [fuzz_judge._is_defined(divided, call) for call in range(3)] == [True, False, True]
    window = torch.zeros(4).to("meta").unfold(0, 2, 1)
    assert not fuzz_judge._has_own_elements(window)
    assert fuzz_judge._has_own_elements(torch.zeros(4, device="meta"))


def test_what_differs_is_reduced():
    big = program("v1 = x + 1", Block("if x.shape[0] > 2", ["v2 = x.sin()", "v3 = x * 3"]), "v4 = v1 * 2",
                  "v5 = v4.t()", results=["v1", "v4", "v5"])  # fmt: skip

    def differs(p: Program) -> bool:
        plain = fuzz_judge.function(p, True)
        try:
            plain(torch.ones(3, 4))
        except Exception:  # noqa: BLE001: no program
            return False
        return ".sin()" in p.source

    assert fuzz_reduce.reduced(big, differs).statements == ["v2 = x.sin()"]


def test_what_torch_does_alone_is_no_difference(monkeypatch):
    saved = program("v2 = x.sign()", "k = float(v2.nan_to_num().clamp(-9, 9).sum())", "v2.unsqueeze_(0)",
                    results=["v2"], grad=True)  # fmt: skip
    torch._dynamo.reset()
    raised = fuzz_judge._last_call(saved, fuzz_judge._PARTITIONS[1], 0)
    assert raised.error is None and "modified by an inplace" in str(raised.backward_error)

    attention = program("v1 = x * 0 + torch.tensor([float('nan'), 1.0])",
                        "v2 = F.scaled_dot_product_attention(*[v1[None, None]] * 3)", results=["v2"],
                        x=Argument("f32", (1, 2)))  # fmt: skip
    both = torch.full((1, 1, 1, 2), float("nan"))
    assert judged(attention, monkeypatch, lambda gm, *a: [both.clone()]) == "torch"
    assert "off by" in judged(attention, monkeypatch, lambda gm, *a: [both.nan_to_num(1.0)])

    split = program("v1 = x * 2", "v2 = v1.split(2)[0]", "v1.unsqueeze(0).unsqueeze_(0)", results=["v2"], grad=True)
    assert judged(split, monkeypatch, lambda gm, *a: gm(*a)) == "right"


def test_what_aotautograd_refuses_runs_in_eager(monkeypatch):
    """Torch's own is then a difference in the same values, not the refusal."""
    refused = program("v1 = torch.rand(3)", "k = float(x.sum())", "v2 = x.tanh()", "v2.mul_(2)",
                      results=["v2"], grad=True)  # fmt: skip
    torch._dynamo.reset()
    outcome, text = fuzz_judge.judge(refused)
    assert (outcome, text) == ("torch", "call 0: another state of the random numbers")
    assert "off by" in judged(refused, monkeypatch, lambda gm, *a: [t * 1.001 for t in gm(*a)])


def test_attention_beyond_its_operands_is_not_drawn():
    drawing = fuzz_draw.Drawing(0)
    drawing.values |= {"q": torch.ones(2, 3), "k": torch.ones(4, 3), "v": torch.ones(5, 3)}
    call = "v1 = F.scaled_dot_product_attention(q[None, None], k[None, None], {}[None, None])"
    assert drawing._runs(call.format("k")) and not drawing._runs(call.format("v"))


class DyingWorkers:
    """In place of bench/workers.py: processes that answer by the seed's remainder by 10."""

    def __init__(self, *_: Any):
        self._is_closed = threading.Event()

    def run(self, line: str) -> dict[str, Any]:
        if line == "start":
            return {"torch": "2.15"}
        if line.endswith("1"):
            return {"ok": False, "error": "crash, exit status -11"}
        if line.endswith("2"):
            return {"ok": False, "error": "timeout of 9 s"}
        if line.endswith("3"):
            return {"outcome": "differs", "text": "off", "program": "long", "reduced": "short"}
        if line == "39":
            self._is_closed.wait()  # hangs until the time limit
            return {"ok": False, "error": "crash, exit status -9"}
        return {"outcome": "right"}

    def close(self) -> None:
        self._is_closed.set()


def test_processes_that_die_are_counted_and_the_rest_goes_on(monkeypatch, capsys, tmp_path):
    out = tmp_path / "results.jsonl"
    given = f"--seed 10 --count 30 --jobs 3 --seconds 1 --out {out}"
    monkeypatch.setattr(fuzz, "Workers", DyingWorkers)
    monkeypatch.setattr(fuzz, "_GRACE", 0.0)
    monkeypatch.setattr(sys, "argv", ["fuzz.py", *given.split()])
    assert fuzz.main() == 1
    told = capsys.readouterr().out
    counts = "20 right, 3 differ, 3 end their process, 3 take too long, 0 AOTAutograd's own, 0 that eager refuses"
    assert f"seeds 10 to 38: 29 functions, 0 s of processes, torch 2.15: {counts}" in told
    assert "begun and not ended: 39" in told
    assert "seed 23 differs: off\nshort" in told
    looked = "11 (crash), 12 (late), 13 (differs), 21 (crash), 22 (late), 23 (differs), 31 (crash), 32 (late), 33 (differs)"
    assert sorted(re.findall(r"\d+ \(\w+\)", told)) == looked.split(", ")
    lines = out.read_text().splitlines()
    assert sorted(json.loads(line)["seed"] for line in lines) == list(range(10, 39))

    cut = tmp_path / "cut.jsonl"  # of a run that was killed
    cut.write_text("\n".join([*lines[:9], lines[9][:7]]))
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--merge", str(cut), str(out)])
    assert fuzz.main() == 1
    told = capsys.readouterr().out
    assert f"{cut}: " in told and " 9 functions" in told
    assert told.splitlines()[-1].startswith("seeds 10 to 38: 29 functions") and counts in told.splitlines()[-1]
