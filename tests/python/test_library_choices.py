"""What cuBLASLt and cuDNN were measured to do best outlives the process, and so do the bits."""
import os
import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")]

PROGRAM = """
import hashlib, torch, inkle
torch.manual_seed(0)
layers = [torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3), torch.nn.Flatten(),
          torch.nn.Linear(64 * 14 * 14, 500), torch.nn.ReLU(), torch.nn.Linear(500, 100)]
model = torch.nn.Sequential(*layers).cuda().to(torch.bfloat16).eval()
x = torch.randn(8, 16, 16, 16, device="cuda", dtype=torch.bfloat16)
with torch.no_grad():
    run = torch.compile(model, backend="inkle")
    y = run(x).float().cpu()
print(hashlib.sha256(y.numpy().tobytes()).hexdigest())
with torch.no_grad():  # what the first call measured is what the second runs
    assert torch.equal(run(x).float().cpu(), y)
"""


def _run(folder):
    environment = os.environ | {"INKLE_CACHE_DIR": str(folder), "INKLE_LOG": "runtime",
                                "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stderr)  # which choices were made and why, where an assertion fails
    timed = [line for line in done.stderr.splitlines() if line.endswith(" us")]
    return done.stdout, {what for what in ("GEMM", "convolution") if any(f" {what} " in line for line in timed)}


def test_a_later_process_measures_nothing_and_has_the_same_bits(tmp_path):
    first, measured = _run(tmp_path)
    assert measured == {"GEMM", "convolution"}
    for _ in range(2):
        assert _run(tmp_path) == (first, set())


def test_damaged_entries_are_measured_again(tmp_path):
    _run(tmp_path)
    for entry in tmp_path.rglob("*.entry"):
        data = bytearray(entry.read_bytes())
        data[-1] ^= 1
        entry.write_bytes(data)
    again, measured = _run(tmp_path)
    assert measured == {"GEMM", "convolution"}
    assert _run(tmp_path) == (again, set())


def test_without_a_folder_each_process_measures():
    for _ in range(2):
        assert _run("")[1] == {"GEMM", "convolution"}
