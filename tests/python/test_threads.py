"""What several threads do first: each test runs in a process of its own, in which nothing has been
looked up in torch yet, and which is ended if it hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

THREADS = """
import threading

def at_once(work, count=16):
    barrier = threading.Barrier(count)

    def run(i):
        barrier.wait()
        work(i)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""

READ = """
import torch
from inkle import _inkle

tensors = [torch.randn(3, i + 1) for i in range(16)]
found = [None] * 16

def work(i):
    for _ in range(200):
        found[i] = _inkle.read_tensor(tensors[i])

at_once(work)
assert [f[4] for f in found] == [[3, i + 1] for i in range(16)], found
"""

CALL = """
import torch
import inkle
from inkle.backend import inkle as backend

programs = []

def keep(graph, inputs):
    programs.append(backend(graph, inputs))
    return graph.forward

for i in range(16):
    torch._dynamo.reset()
    torch.compile(lambda x, w: torch.relu(x @ w) * i + 1, backend=keep, dynamic=False)(
        torch.randn(4, 4), torch.randn(4, 4)
    )
assert len(programs) == 16 and all(r.compiled for r in inkle.reports())
x, w = torch.randn(4, 4), torch.randn(4, 4)
found = [None] * 16

def work(i):
    for _ in range(50):
        (found[i],) = programs[i](x, w)

at_once(work)
for i in range(16):
    torch.testing.assert_close(found[i], torch.relu(x @ w) * i + 1)
"""


@pytest.mark.parametrize("program", [READ, CALL], ids=["reading", "calling"])
def test_first_uses_at_once(program):
    done = subprocess.run(
        [sys.executable, "-c", THREADS + program],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
