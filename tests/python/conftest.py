"""Devices: a test with the fixture `device` runs on each, there as torch's default device."""

from __future__ import annotations

import atexit
import os
import pathlib
import shutil
import sys
import tempfile

import pytest
import torch

import inkle

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from hurry import hurry  # noqa: E402

if "INKLE_CACHE_DIR" not in os.environ:  # of this session, not the user's
    os.environ["INKLE_CACHE_DIR"] = tempfile.mkdtemp(prefix="inkle-tests-")
    atexit.register(shutil.rmtree, os.environ["INKLE_CACHE_DIR"], ignore_errors=True)
os.environ.pop("INKLE_REMOTE_CACHE", None)

# What another test has compiled is compiled again, as the tests look at how. test_cache.py has it.
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")
torch._functorch.config.enable_autograd_cache = os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] == "1"

ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=ON_GPU)])
def device(request):
    if request.param == "cpu":
        yield "cpu"
        return
    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False  # eager picks other algorithms for other layouts
    torch.set_default_device(request.param)
    yield request.param
    torch.set_default_device(None)
    torch.backends.cudnn.allow_tf32 = tf32


@pytest.fixture
def on_gpu():
    """Torch's default device, and compilers that know nothing."""
    torch._dynamo.reset()
    inkle.reset()
    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False  # eager picks other algorithms for other layouts
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)
    torch.backends.cudnn.allow_tf32 = tf32


def pytest_collection_finish():
    """Every module of tests is imported by then."""
    hurry()


def pytest_collection_modifyitems(items):
    """A test or a case marked `cpu_only` is none on another device."""
    items[:] = [
        item for item in items
        if not item.get_closest_marker("cpu_only")
        or getattr(item, "callspec", None) is None
        or item.callspec.params.get("device", "cpu") == "cpu"
    ]  # fmt: skip
