"""A sample of the cases of bench/opdb.py; the whole runs by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[2] / "bench" / "opdb.py"


@pytest.mark.parametrize("how", [["--dtypes", "f32,i64,bf16", "--count", "60"],
                                 ["--grad", "--count", "25"]], ids=["forward", "gradients"])  # fmt: skip
def test_a_sample_of_op_db(how):
    ran = subprocess.run([sys.executable, str(RUNNER), "--seed", "3", "--samples", "2", *how],
                         capture_output=True, text=True, timeout=170)  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-1000:]
    assert "right" in ran.stdout
