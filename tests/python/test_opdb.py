"""A sample of the cases of bench/opdb.py, the whole of which runs by hand, and their judge."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import torch

from checks import IS_OLDER_TORCH

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from opdb_case import Case, Judge, Near, Wrong, every_entry  # noqa: E402


@pytest.mark.parametrize("how", [["--dtypes", "f32,i64,bf16", "--count", "60"],
                                 ["--grad", "--count", "25"]], ids=["forward", "gradients"])  # fmt: skip
def test_a_sample_of_op_db(how):
    if IS_OLDER_TORCH and "--grad" not in how:
        pytest.skip("torch foresees other strides of Fourier transforms than they have")
    ran = subprocess.run([sys.executable, str(BENCH / "opdb.py"), "--seed", "3", "--samples", "2", "--workers", "1", *how],
                         capture_output=True, text=True, timeout=170)  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-1000:]
    assert "right" in ran.stdout

def drawn(off, eager_off):
    """Values in f32 that are off by parts of theirs, those of eager, and the exact ones."""
    exact = torch.rand(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    return [exact.mul(1 + off).float()], [exact.mul(1 + eager_off).float()], lambda: [exact]


def judged(found, wanted, exact):
    judge = Judge()
    judge.compare(found, wanted, "result", False, exact)
    return judge.misses()


def test_the_judge_says_what_is_wrong():
    assert not judged(*drawn(1e-7, 0))  # within torch's tolerance
    assert not judged(*drawn(1e-4, -1e-4))  # no further off than eager
    assert judged(*drawn(2e-4, 1e-4)).keys() == {"result 0"}
    _, wanted, exact = drawn(0, 0)
    assert judged([torch.full((64,), torch.nan)], wanted, exact)
    for found in ([], [torch.ones(63)], [torch.ones(64).double()], [1]):
        with pytest.raises(Wrong):
            judged(found, wanted, exact)
    with pytest.raises(Wrong):  # nothing tells which of the two is better
        judged(*drawn(1e-4, -1e-4)[:2], None)


def backend_off_by(part):
    """Eager, with results that are off by a part of theirs."""
    def backend(gm, inputs):
        return lambda *arguments: tuple(t + part * t.detach() for t in gm(*arguments))

    return backend


def test_only_what_disturbed_arguments_explain_is_near():
    (entry,) = [e for e in every_entry() if e.name == "diff"]
    case = Case(entry, torch.float32, False, 3, "cpu")
    sample = case.samples()[0]
    sample.args, sample.kwargs = (), {}
    sample.input = 1000 + torch.rand(60)  # a last bit is 1e-4 of a difference
    case.check(sample, backend_off_by(0))
    with pytest.raises(Near):
        case.check(sample, backend_off_by(1e-4))
    with pytest.raises(Wrong):
        case.check(sample, backend_off_by(1e-2))
    sample.input = torch.tensor([1.0, -1.5]).repeat(30)
    with pytest.raises(Wrong):
        case.check(sample, backend_off_by(1e-4))
