"""Capturing the work of a call on a GPU as a CUDA graph, in memory that all captures share."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable

import torch

# By device and stream: graphs replayed on one stream never run concurrently, so they share memory. The
# empty capture keeps the pool when there is no other: results of earlier ones may lie in it.
_pools: dict[tuple[int, int], tuple[Any, torch.cuda.CUDAGraph]] = {}


# torch's allocator still queries a graph whose capture has failed, so such graphs are kept alive.
_failed: list[torch.cuda.CUDAGraph] = []


def _end(graph: torch.cuda.CUDAGraph, device: int, pool: Any) -> None:
    try:
        graph.capture_end()
    except RuntimeError:
        _failed.append(graph)
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(device, pool)
        raise


def _pool(device: int, stream: int, side: torch.cuda.Stream) -> Any:
    if (device, stream) not in _pools:
        handle, anchor = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(side), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its being empty
            anchor.capture_begin(pool=handle, capture_error_mode="thread_local")
            anchor.capture_end()
        _pools[device, stream] = (handle, anchor)
    return _pools[device, stream][0]


def capture(
    run: Callable[[Callable[[], None]], None], device: int, stream: int
) -> torch.cuda.CUDAGraph:
    """The work that ``run(begin)`` queues after it has called ``begin``, for replays on ``stream``;
    raises what stops it."""
    graph = torch.cuda.CUDAGraph()
    current = torch.cuda.current_stream(device)
    side = torch.cuda.Stream(device)
    pool = _pool(device, stream, side)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        has_begun = False

        def begin() -> None:
            nonlocal has_begun
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            has_begun = True

        try:
            run(begin)
        except BaseException:
            with contextlib.suppress(RuntimeError):  # what stopped the capture has made it invalid
                if has_begun:
                    _end(graph, device, pool)
            raise
        _end(graph, device, pool)
    current.wait_stream(side)
    return graph


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of a tensor that has gaps in memory, or repeats, which ``clone`` drops."""
    made = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    fill(made, tensor)
    return made


def fill(to: torch.Tensor, tensor: torch.Tensor, non_blocking: bool = False) -> None:
    """Copies ``tensor``; where elements of ``to`` repeat, those of ``tensor`` do, too."""
    for dim, stride in enumerate(to.stride()):
        if stride == 0 and to.shape[dim] > 1:
            tensor, to = tensor.narrow(dim, 0, 1), to.narrow(dim, 0, 1)
    to.copy_(tensor, non_blocking=non_blocking)


def on_device(tensor: torch.Tensor, device: int) -> torch.Tensor:
    """A copy of a CPU tensor, with its strides."""
    made = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=f"cuda:{device}"
    )
    fill(made, tensor)
    return made


def send(to: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copies a CPU tensor without waiting for the device. The driver has read pageable memory, such as
    that of a clone, when it returns."""
    fill(to, tensor.clone(), non_blocking=True)
