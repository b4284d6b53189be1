"""Programs by fork run as those of `python -c`."""

import os
import subprocess

import forked
import pytest

THREADS = {"OMP_NUM_THREADS": "2"}
SHOWN = """
import os, sys
assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
print(sys.argv, sys.path[0] == "", os.environ.get("INKLE_LOG"), "inkle" in sys.modules)
print("said", file=sys.stderr)
import torch, inkle
torch.compile(torch.sin, backend="inkle", options={"strict": True})(torch.ones(1 << 20))
print(torch.get_num_threads(), len(inkle.reports()))
"""


def test_a_program_runs_as_in_a_process_of_its_own():
    """With its arguments, environment and threads, and nothing of the program before."""
    for number in range(2):
        done = forked.python(SHOWN, "a b", number, INKLE_LOG="cache", **THREADS)
        assert done.returncode == 0, done.stderr
        wanted = min(2, len(os.sched_getaffinity(0)))
        assert done.stdout == f"['-c', 'a b', '{number}'] True cache False\n{wanted} 1\n"
        assert done.stderr.startswith("said\n") and "forked" not in done.stderr  # loops have their threads


@pytest.mark.parametrize("text, status", [("raise SystemExit(3)", 3), ("raise SystemExit('no')", 1), ("1 / 0", 1), ("import os; os.abort()", -6)])
def test_the_end_of_a_program_is_told(text, status):
    done = forked.python(text, **THREADS)
    assert done.returncode == status
    assert ("ZeroDivisionError" in done.stderr) == (text == "1 / 0")


def test_a_program_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(forked, "_LONGEST", 2.0)
    with pytest.raises(subprocess.TimeoutExpired):
        forked.python("import time; time.sleep(1000)", **THREADS)


def test_what_torch_reads_when_it_is_imported_is_refused():
    assert "TORCH_LOGS" not in os.environ
    with pytest.raises(AssertionError, match="start a process"):
        forked.python("", TORCH_LOGS="inkle")
