"""The compiler of each device, and what it is asked for."""

from __future__ import annotations

import atexit
import os
import re
import threading
from typing import Any, Callable, Sequence

import torch

from inkle import _inkle, dumps
from inkle.options import Options
from inkle.sizes import LARGEST_INTEGER, UnsupportedGraph

_lock = threading.Lock()
_compilers: dict[int | None, Any] = {}  # by number of the GPU; None: the processor


def forget() -> None:
    """Forgets all compiled kernels."""
    with _lock:
        _compilers.clear()


def get_compiler(gpu: int | None) -> Any:
    with _lock:
        if gpu not in _compilers:
            _compilers[gpu] = _inkle.Compiler() if gpu is None else _inkle.Compiler.cuda(gpu)
        return _compilers[gpu]


def check_settings() -> None:
    """UserError names a variable of the environment that is wrong, and what is allowed.

    Within a compilation it would send the graph to eager, as a fault of the compiler.
    """
    _inkle.check_settings()


@atexit.register
def _settle() -> None:
    """What compilers have started beside their callers is over before the libraries go."""
    for gpu, compiler in list(_compilers.items()):
        if gpu is not None:
            compiler.settle()


_CONVOLUTION = re.compile(r"conv(_transpose)?[123]d|convolution")
_warm: set[tuple[int, str]] = set()  # GPU and what was opened for it


def warm_up(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Opens what a GPU's first compilation and call need, on another thread, while the caller traces.

    ``gm``: Dynamo's graph.
    """
    gpus = {t.device.index or 0 for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda}
    if not gpus:
        return
    convolves = any(_CONVOLUTION.search(str(n.target)) for n in gm.graph.nodes)
    for gpu in gpus:
        try:
            compiler = get_compiler(gpu)
        except Exception:  # noqa: BLE001: reported when the graph is compiled
            continue
        _once(gpu, "kernels", compiler.warm_up)
        what = "convolutions" if convolves else "GEMMs"
        _once(gpu, what, lambda c=compiler: c.warm_up_libraries(convolves))


def _once(gpu: int, what: str, run: Callable[[], None]) -> None:
    if (gpu, what) not in _warm:
        _warm.add((gpu, what))
        threading.Thread(target=run, name=f"inkle warm up {what}").start()


def gpus_of(gm: torch.fx.GraphModule) -> set[int]:
    """The numbers of the GPUs that a graph computes on."""
    found = set()
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, torch.Tensor) and one.device.type == "cuda":
                found.add(one.device.index or 0)
    return found


def gpu_of(gm: torch.fx.GraphModule) -> int | None:
    """The number of the GPU that a graph computes on; None if it uses none."""
    found = gpus_of(gm)
    if len(found) > 1:
        raise UnsupportedGraph(f"the graph uses several GPUs: {sorted(found)}")
    return next(iter(found), None)


def native_options(options: Options, training: bool, freeze: bool = False) -> Any:
    native = _inkle.Options()
    native.training = training
    native.freeze = freeze
    native.tune = options.tune
    native.deterministic = options.deterministic or torch.are_deterministic_algorithms_enabled()
    native.numerics = options.numerics
    native.cache = options.cache
    native.fail_stage = options.fail_stage
    limit = os.environ.get("INKLE_PASS_LIMIT") if options.pass_limit is None else options.pass_limit
    if limit not in (None, ""):
        native.pass_limit = int(limit)
    native.dump = dumps.writer(options)
    return native


# What a result that shares memory is a view of to autograd, where it is not an earlier result: what made its
# memory, or an argument; nothing.
OF_ITS_MEMORY, OF_NOTHING = -1, -2


def as_strided(
    base: Any, sizes: Sequence[int], strides: Sequence[int], byte_offset: int, is_detached: bool = True
) -> Any:
    """A tensor in the memory of ``base``, with its version counter, but no view to autograd: what a
    program returns may be written to outside of it, where autograd forbids writes to such views."""
    return torch.as_strided(base, sizes, strides, _begin(base, sizes, byte_offset)).detach()


def viewed(
    base: Any, sizes: Sequence[int], strides: Sequence[int], byte_offset: int, is_detached: bool
) -> Any:
    """As ``as_strided``, but a view of ``base`` to autograd, too, unless the program detaches it.
    Gradients are on while it is made, as autograd forbids some writes to views that are made without."""
    if is_detached or base.requires_grad:
        return as_strided(base, sizes, strides, byte_offset)
    with torch.enable_grad():
        return torch.as_strided(base, sizes, strides, _begin(base, sizes, byte_offset))


def _begin(base: Any, sizes: Sequence[int], byte_offset: int) -> int:
    """Storage offset of a view. Of one without elements FX may state one that has left 64 bits."""
    offset = base.storage_offset() + byte_offset // base.element_size()
    has_left = not 0 <= offset <= LARGEST_INTEGER
    return base.storage_offset() if has_left and 0 in sizes else offset
