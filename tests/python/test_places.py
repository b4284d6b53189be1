"""A few of the random programs of bench/places.py: arguments at odd places, read, written, returned."""

from __future__ import annotations

import pathlib
import sys

import pytest
import torch

import inkle

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import places  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_arguments_at_odd_places(first):
    device = torch.get_default_device().type
    inkle.reset()
    for seed in range(first, first + 10):
        text, is_torchs = places.check(seed, device)
        assert is_torchs or not text
    assert sum(r.compiled for r in inkle.reports()) >= 10
    assert not any(r.fault for r in inkle.reports())
