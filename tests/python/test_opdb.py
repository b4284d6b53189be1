"""A sample of the cases of bench/opdb.py, the whole of which runs by hand, and their judge."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import torch

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from opdb_case import Judge, Wrong  # noqa: E402


@pytest.mark.parametrize("how", [["--dtypes", "f32,i64,bf16", "--count", "60"],
                                 ["--grad", "--count", "25"]], ids=["forward", "gradients"])  # fmt: skip
def test_a_sample_of_op_db(how):
    ran = subprocess.run([sys.executable, str(BENCH / "opdb.py"), "--seed", "3", "--samples", "2", *how],
                         capture_output=True, text=True, timeout=170)  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-1000:]
    assert "right" in ran.stdout

def drawn(seed, off, eager_off):
    """Values in f32 that are off by parts of theirs, those of eager, and the exact ones."""
    exact = torch.rand(64, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 1
    return [exact.mul(1 + off).float()], [exact.mul(1 + eager_off).float()], lambda: [exact]


def judged(*samples):
    judge = Judge()
    for found, wanted, exact in samples:
        judge.compare(found, wanted, "result", False, exact)
    return judge.misses()


def test_the_judge_says_what_is_wrong():
    assert not judged(drawn(0, 1e-7, 0))  # within torch's tolerance
    assert not judged(drawn(0, 1e-4, -1e-4))  # no further off than eager
    assert "rms" in judged(drawn(0, 2e-4, 1e-4))[0]
    for found in ([], [torch.ones(63)], [torch.full((64,), torch.nan)], [torch.ones(64).double()], [1]):
        _, wanted, exact = drawn(0, 0, 0)
        with pytest.raises(Wrong):
            judged((found, wanted, exact))
    with pytest.raises(Wrong):  # nothing tells which of the two is better
        judged((*drawn(0, 1e-4, -1e-4)[:2], None))


def test_the_judge_pools_arguments():
    """By chance one may miss; what is worse on the whole may not hide behind one that is right."""
    miss, right = drawn(0, 2e-4, 1e-4), [drawn(seed, 1e-4, -1e-4) for seed in range(1, 5)]
    assert judged(miss) and not judged(miss, *right)
    assert judged(miss, drawn(1, 0, 0), drawn(2, 2e-4, 1e-4), drawn(3, 2e-4, 1e-4))
