"""Data parallel training and collectives, over two processes that talk through gloo, or through NCCL
with a GPU each."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile

import pytest
import torch
import torch.distributed as dist
from torch import nn

from checks import compiled, same

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64),
                         nn.Tanh(), nn.Linear(64, 5))  # fmt: skip


def batch(rank, step):
    torch.manual_seed(100 * rank + step)
    return torch.randn(16, 20), torch.randint(0, 5, (16,))


def train(rank, wrap, device):
    """Weights after some steps of data parallel training."""
    parallel = nn.parallel.DistributedDataParallel(model().to(device))
    run, optimizer = wrap(parallel), torch.optim.AdamW(parallel.parameters(), lr=0.01)
    step = wrap(optimizer.step)
    for number in range(4):
        x, y = (t.to(device) for t in batch(rank, number))
        nn.functional.cross_entropy(run(x), y).backward()
        step()
        optimizer.zero_grad()
    return [p.detach().cpu().clone() for p in parallel.parameters()]


def reduced(x):
    from torch.distributed._functional_collectives import all_gather_tensor, all_reduce

    total = all_reduce(x.sin() * 2, "sum", dist.group.WORLD)
    parts = all_gather_tensor(x.relu(), 0, dist.group.WORLD)
    return (total + 1).exp(), parts * 3


def worker(rank, store, result, backend):
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    found = {"weights": (train(rank, compiled, device), train(rank, lambda f: f, device))}
    torch._dynamo.reset()
    x = batch(rank, 0)[0].to(device)
    results = [compiled(reduced)(x), reduced(x)]
    found["collectives"] = tuple([t.cpu() for t in found] for found in results)
    with open(f"{result}{rank}", "wb") as file:
        pickle.dump(found, file)
    dist.destroy_process_group()


_TWO_GPUS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="less than two GPUs")


@pytest.fixture(
    scope="module", params=["gloo", pytest.param("nccl", marks=[pytest.mark.gpu, _TWO_GPUS])]
)
def results(request):
    with tempfile.TemporaryDirectory() as folder:
        store, result = os.path.join(folder, "store"), os.path.join(folder, "result")
        processes = [
            subprocess.Popen([sys.executable, __file__, str(rank), store, result, request.param],
                             stderr=subprocess.PIPE)
            for rank in range(2)
        ]  # fmt: skip
        errors = [p.communicate(timeout=150)[1].decode() for p in processes]
        assert all(p.returncode == 0 for p in processes), "\n".join(errors)[-3000:]
        found = []
        for rank in range(2):
            with open(f"{result}{rank}", "rb") as file:
                found.append(pickle.load(file))
        return found


@pytest.mark.parametrize("what", ["weights", "collectives"])
def test_two_processes_agree_with_eager(results, what):
    for ours, wanted in (result[what] for result in results):
        assert len(ours) == len(wanted) > 0
        for a, b in zip(ours, wanted):
            same(a, b, 1e-4)


def test_both_processes_have_the_same_weights(results):
    for a, b in zip(results[0]["weights"][0], results[1]["weights"][0]):
        assert torch.equal(a, b)


if __name__ == "__main__":
    worker(int(sys.argv[1]), *sys.argv[2:5])
    sys.stderr.flush()
    # Threads of gloo may still hold tensors, and abort a process whose interpreter is gone
    # (https://github.com/pytorch/pytorch/pull/179291); results are written.
    os._exit(0)
