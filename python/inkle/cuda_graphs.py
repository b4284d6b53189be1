"""Recording the work of a call on a GPU into a CUDA graph, in memory that all recordings share."""

from __future__ import annotations

from typing import Callable

import torch

# By device and stream: what is replayed on one stream never runs at once, so it may share memory. A
# pool outlives the recordings in it: results of theirs may.
_pools: dict[tuple[int, int], torch.cuda.MemPool] = {}


def capture(run: Callable[[], None], device: int, stream: int) -> torch.cuda.CUDAGraph:
    """The work that ``run`` queues, for replays on ``stream``; raises what stops it."""
    if (device, stream) not in _pools:
        _pools[device, stream] = torch.cuda.MemPool()
    graph = torch.cuda.CUDAGraph()
    current = torch.cuda.current_stream(device)
    side = torch.cuda.Stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        graph.capture_begin(pool=_pools[device, stream].id, capture_error_mode="thread_local")
        try:
            run()
        except BaseException:
            try:
                graph.capture_end()
            except RuntimeError:
                pass  # what stopped the recording has made it invalid
            raise
        graph.capture_end()
    current.wait_stream(side)
    return graph
