"""Which of torch's attention backends (``SDPBackend``) runs a call on a GPU: flash, efficient or cuDNN,
whichever was measured to be the fastest; once for each kind of call and process.

In inference the choice is made in the first call, with its tensors and on its stream
(``device_ops.attention``); under autograd while the graph is traced, for forward and backward
together, as what one backend saves (rows' logarithms, the state of the random numbers) only its own
backward reads (``attention.differentiable``). A backend is chosen by putting it first in torch's
order of preference for the time of one call: where it cannot take the call torch takes the next, and
backends that the user has switched off stay off.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import torch
import torch.nn.functional as F

_log = logging.getLogger("inkle")

# By the number that torch gives them.
_NAMES = {1: "flash", 2: "efficient", 3: "cuDNN"}
# Another backend than torch's choice must be faster by so much: times vary by 1 to 2 per cent.
_LEAST_GAIN = 0.03
_RUNS = 5
# The GPU waits so long before the runs that are timed, while the host queues them: 2 ms, as the host
# takes 0.1 ms for cuDNN's forward and 0.3 ms with the gradient.
_HOST_CYCLES = 4_000_000
# Calls of fewer operations take about as long as a launch, whatever runs them.
_LEAST_OPERATIONS = 1 << 30
# What torch runs where no backend supports a call (math): a dozen launches over all scores.
_MATH = 0
# Shapes of one kind that are measured; a sequence that grows with each call passes through
# thousands.
_MOST_SHAPES = 8

Geometry = tuple[tuple[int, ...], tuple[int, ...]]


class Call(NamedTuple):
    """All that the choice depends on; sizes and strides of query, key, value, mask and result."""

    device: int
    dtype: torch.dtype
    query: Geometry
    key: Geometry
    value: Geometry
    mask: Geometry | None
    mask_dtype: torch.dtype | None
    dropout: float
    is_causal: bool
    scale: float | None
    has_gradient: bool
    # What the result must have; a backend whose result has others pays for a copy.
    result: tuple[int, ...] | None

    def operations(self) -> float:
        sizes, keys = self.query[0], self.key[0]
        scores = sizes[0] * sizes[1] * sizes[2] * keys[2]
        return 4.0 * scores * sizes[3] / (2 if self.is_causal else 1)

    def family(self) -> tuple[Any, ...]:
        """The same for all lengths and batches."""
        mask = None if self.mask is None else len(self.mask[0])
        return (self.device, self.dtype, self.query[0][1], self.query[0][3], self.key[0][1], mask,
                self.mask_dtype, self.dropout > 0, self.is_causal, self.has_gradient)  # fmt: skip


_lock = threading.Lock()
_order_lock = threading.Lock()
_known: dict[Call, int | None] = {}
_shapes: dict[tuple[Any, ...], int] = {}


def forget() -> None:
    with _lock:
        _known.clear()
        _shapes.clear()


def known() -> dict[Call, int | None]:
    """What has been chosen; None: torch's own choice."""
    with _lock:
        return dict(_known)


def geometry(tensor: torch.Tensor) -> Geometry:
    return tuple(tensor.shape), tuple(tensor.stride())


@functools.cache
def _settle_order() -> None:
    """Torch replaces the order once, when it first chooses a backend in a process: by cuDNN's first on the
    cards where that is fastest. What is set before would be lost then."""
    if torch.cuda.is_available():
        x = torch.empty(1, 1, 8, 8, dtype=torch.float16, device="cuda")
        torch._fused_sdp_choice(x, x, x)


@contextlib.contextmanager
def preferring(backend: int | None) -> Iterator[None]:
    """Within, torch tries this backend first. The order is the process's: a call of another thread
    may run on this backend, too, if it can."""
    if backend is None:
        yield
        return
    with _order_lock:
        _settle_order()
        before = torch._C._get_sdp_priority_order()
        torch._C._set_sdp_priority_order([backend, *(b for b in before if b != backend)])
        try:
            yield
        finally:
            torch._C._set_sdp_priority_order(before)


def choose(call: Call, measure: Callable[[Call], int | None]) -> int | None:
    """The backend for a call, as known or by ``measure``; None: torch's own choice."""
    if call in _known:
        return _known[call]
    with _lock:
        if call in _known:
            return _known[call]
        family = call.family()
        is_small = call.operations() < _LEAST_OPERATIONS
        if is_small or _shapes.get(family, 0) >= _MOST_SHAPES:
            return None
        _shapes[family] = _shapes.get(family, 0) + 1
        backend = measure(call)
        _known[call] = backend
        return backend


# What runs a call: the arguments of F.scaled_dot_product_attention are those of the call.
Run = Callable[[], Any]


def fastest(call: Call, choice: Callable[[], int], run: Run, time: Callable[[Run], float]) -> int | None:
    """``choice`` tells which backend torch would take; ``time`` gives microseconds."""
    own = choice()
    if own not in _NAMES:
        return None
    times: dict[int, float] = {}
    for backend in (own, *(b for b in _NAMES if b != own)):
        try:
            with preferring(backend):
                if choice() == backend:
                    times[backend] = time(run)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            _log.info("attention by %s: no memory to measure it", _NAMES[backend])
        except RuntimeError as error:
            _log.info("attention by %s: %s", _NAMES[backend], str(error).splitlines()[:1])
    if not times:
        return None
    best = min(times, key=lambda backend: times[backend])
    is_worth_it = best != own and times[best] < (1 - _LEAST_GAIN) * times.get(own, float("inf"))
    found = ", ".join(f"{_NAMES[backend]} {us:.1f} us" for backend, us in times.items())
    _log.info("attention %s keys %d%s%s: %s; %s", "x".join(map(str, call.query[0])), call.key[0][2],
              " causal" if call.is_causal else "", " and its gradient" if call.has_gradient else "",
              found, _NAMES[best if is_worth_it else own])  # fmt: skip
    return best if is_worth_it else None


def microseconds(run: Run) -> float:
    """The lesser of two times of one run on the current stream, after a first one."""
    run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(2):
        torch.cuda._sleep(_HOST_CYCLES)
        start.record()
        for _ in range(_RUNS):
            run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / _RUNS)
    return min(times)


# --- In inference ---------------------------------------------------------------------------------


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    scale: float,
    strides: tuple[int, ...],
) -> torch.Tensor:
    """The attention of these tensors on the current stream; ``strides``: what the caller would like
    of the result, which it copies if they differ."""
    grouped = k.shape[1] != q.shape[1]
    # Not with a mask: backends differ in their results for fully masked rows.
    if grouped and mask is None and _wants_repeated(q, k, v, is_causal, scale):
        each = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        grouped = False

    def run() -> torch.Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=grouped
        )

    def run_and_copy() -> None:
        result = run()
        if result.stride() != strides:
            wanted = torch.empty_strided(
                result.shape, strides, dtype=result.dtype, device=result.device
            )
            wanted.copy_(result)

    call = Call(q.get_device(), q.dtype, geometry(q), geometry(k), geometry(v),
                None if mask is None else geometry(mask), None if mask is None else mask.dtype,
                0.0, is_causal, scale, False, strides)  # fmt: skip

    def measure(call: Call) -> int | None:
        def choice() -> int:
            return torch._fused_sdp_choice(
                q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=grouped
            )

        return fastest(call, choice, run_and_copy, microseconds)

    if call not in _known and torch.cuda.is_current_stream_capturing():
        return run()
    backend = choose(call, measure)
    if backend is None:
        return run()
    with preferring(backend):
        return run()


def _wants_repeated(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float
) -> bool:
    """Whether one of torch's backends takes these tensors, without a mask, once each head of key and
    value is there for each of the query's that reads it, and none as they are: so in f32."""
    heads, shared = q.shape[1], k.shape[1]
    if q.dtype != torch.float32:
        return False
    if shared == 0 or heads % shared != 0 or v.shape[1] != shared:
        return False
    arguments = (None, 0.0, is_causal)
    if torch._fused_sdp_choice(q, k, v, *arguments, scale=scale, enable_gqa=True) != _MATH:
        return False
    repeated = [t[:, :1].expand(-1, heads, -1, -1) for t in (k, v)]
    return torch._fused_sdp_choice(q, *repeated, *arguments, scale=scale) != _MATH


# --- Under autograd -------------------------------------------------------------------------------


def for_training(
    tensors: Sequence[torch.Tensor],
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    grouped: bool,
) -> int | None:
    """The backend for forward and backward of query, key and value with these geometries, which may be
    symbolic; asked while tracing."""
    described = [_hinted(t) for t in (*tensors, *([] if mask is None else [mask]))]
    if None in described or torch.are_deterministic_algorithms_enabled():
        return None
    q, k, v = described[:3]
    device = tensors[0].device.index or 0
    call = Call(device, tensors[0].dtype, q, k, v, described[3] if mask is not None else None,
                None if mask is None else mask.dtype, dropout, is_causal, scale, True, None)  # fmt: skip
    stream = torch.cuda.current_stream(device)

    def measure(call: Call) -> int | None:
        # A thread of its own has none of the modes that tracing has switched on.
        return _in_thread(lambda: _measure_training(call, stream, grouped))

    return choose(call, measure)


def _hinted(tensor: torch.Tensor) -> Geometry | None:
    """The geometry of a tensor, symbols at their hints; None where there is none."""

    def number(size: Any) -> int | None:
        return size if isinstance(size, int) else size.node.hint

    sizes = tuple(number(s) for s in tensor.shape)
    strides = tuple(number(s) for s in tensor.stride())
    return None if None in sizes or None in strides else (sizes, strides)


def _in_thread(function: Callable[[], int | None]) -> int | None:
    results: list[int | None] = []

    def body() -> None:
        try:
            results.append(function())
        except Exception as error:  # noqa: BLE001: torch's own choice is as right
            _log.info("attention is not measured: %s: %s", type(error).__name__, error)

    thread = threading.Thread(target=body, name="inkle attention")
    thread.start()
    thread.join()
    return results[0] if results else None


def _measure_training(call: Call, stream: Any, grouped: bool) -> int | None:
    device = torch.device("cuda", call.device)
    with torch.cuda.device(device), torch.cuda.stream(stream), torch.random.fork_rng([call.device]):
        generator = torch.Generator(device)

        def made(shape: Geometry, dtype: torch.dtype) -> torch.Tensor:
            span = 1 + sum((n - 1) * s for n, s in zip(*shape))
            if dtype == torch.bool:
                return torch.ones(span, dtype=dtype, device=device).as_strided(*shape)
            flat = torch.empty(span, dtype=dtype, device=device).normal_(generator=generator)
            return flat.as_strided(*shape).detach()

        q, k, v = (made(g, call.dtype).requires_grad_() for g in (call.query, call.key, call.value))
        mask = None if call.mask is None else made(call.mask, call.mask_dtype or call.dtype)
        # Gradients arrive as the result's heads are joined: by row, head, feature. What torch keeps of
        # them is of this thread alone (``cudnn_attention``).
        batch, heads, rows, _ = call.query[0]
        width = call.value[0][3]
        seed = made(
            ((batch, heads, rows, width), (rows * heads * width, width, heads * width, 1)), call.dtype
        )
        arguments = (q, k, v, mask, call.dropout, call.is_causal)

        def choice() -> int:
            return torch._fused_sdp_choice(*arguments, scale=call.scale, enable_gqa=grouped)

        def run() -> None:
            result = F.scaled_dot_product_attention(
                *arguments, scale=call.scale, enable_gqa=grouped
            )
            torch.autograd.grad(result, (q, k, v), seed)

        return fastest(call, choice, run, microseconds)


def efficient_in_eager(*arguments: Any, **keywords: Any) -> tuple[torch.Tensor, ...]:
    """``aten::_scaled_dot_product_efficient_attention`` with its states on the CPU, where compiled
    programs expect them. While a stream is captured torch makes them on the GPU. Without dropout nothing
    reads them; with dropout they stay where they are, and the program says so."""
    op = torch.ops.aten._scaled_dot_product_efficient_attention.default
    results = tuple(op(*arguments, **keywords))
    dropout = keywords.get("dropout_p", arguments[5] if len(arguments) > 5 else 0.0)
    if dropout != 0.0:
        return results
    on_cpu = (r if r.is_cpu else torch.zeros(r.shape, dtype=r.dtype) for r in results[2:])
    return (*results[:2], *on_cpu)
