"""Tests that lack a right are left out, but not where all rights are to be there."""
import os

import pytest
from rights import lacks, needs_program


@pytest.mark.parametrize("ci, user, outcome", [
    ("true", 0, pytest.fail.Exception), ("true", 1000, pytest.skip.Exception),
    ("", 0, pytest.skip.Exception), (None, 0, pytest.skip.Exception)])  # fmt: skip
def test_ci_as_root_leaves_nothing_out(monkeypatch, ci, user, outcome):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.delenv("CI", raising=False) if ci is None else monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no file system"):
        lacks("no file system")
    with pytest.raises(outcome, match="no no-such-program .scripts/setup"):
        needs_program("no-such-program")
    assert needs_program("sh").endswith("/sh")
