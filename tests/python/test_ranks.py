"""Ranks of one job share what they compile: the first makes it, the others read it, whatever their process
groups, ports and GPUs are called."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from checks import compiled, same

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
RANKS = 4


def step(x, w, group):
    from torch.distributed._functional_collectives import all_reduce

    return (all_reduce((x @ w).sin() * 2, "sum", group) + 1).exp()


def worker(rank, store, result, backend):
    import inkle

    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    # As in a mesh of two by two: each rank has a group, under a name that only its members use.
    group = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    torch.manual_seed(0)
    x, w = torch.randn(6, 8).to(device), torch.randn(8, 8).to(device).requires_grad_()
    dist.barrier()
    found = []
    for run in (compiled(step), step):
        out = run(x, w, group)
        (grad,) = torch.autograd.grad(out.square().sum(), w)
        found.append((out.detach().cpu(), grad.cpu()))
    stages = [[s for s, _ in r.stages] for r in inkle.reports()]
    with open(f"{result}{rank}", "wb") as file:
        pickle.dump((found, stages, group.group_name), file)
    dist.barrier()
    dist.destroy_process_group()


_GPUS = pytest.mark.skipif(torch.cuda.device_count() < RANKS, reason=f"less than {RANKS} GPUs")


@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=[pytest.mark.gpu, _GPUS])])
def test_one_rank_compiles(tmp_path, backend):
    store, result = tmp_path / "store", tmp_path / "result"
    environment = os.environ | {"INKLE_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    processes = [
        subprocess.Popen([sys.executable, __file__, str(rank), store, result, backend], env=environment,
                         stderr=subprocess.PIPE)
        for rank in range(RANKS)
    ]  # fmt: skip
    errors = [p.communicate(timeout=400)[1].decode() for p in processes]
    assert all(p.returncode == 0 for p in processes), "\n".join(errors)[-3000:]
    made, read, names = 0, 0, set()
    for rank in range(RANKS):
        with open(f"{result}{rank}", "rb") as file:
            (ours, eager), stages, name = pickle.load(file)
        for a, b in zip(ours, eager, strict=True):
            same(a, b, 1e-4)
        made += sum("codegen" in s for s in stages)
        read += sum("cache" in s for s in stages)
        names.add(name)
    assert len(names) == 2
    assert (made, read) == (2, 2 * (RANKS - 1))  # a forward and a backward


if __name__ == "__main__":
    worker(int(sys.argv[1]), *sys.argv[2:5])
    sys.stderr.flush()
    # Threads of gloo may still hold tensors, and abort a process whose interpreter is gone
    # (https://github.com/pytorch/pytorch/pull/179291); results are written.
    os._exit(0)
