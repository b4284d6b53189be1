"""The page of ``inkle inspect`` for a graph that torch.compile gave to Inkle."""

from __future__ import annotations

import os
import time
from typing import Any, Iterable, Mapping, Sequence

import torch

from inkle import _inkle
from inkle.backend import GraphReport

_DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "c128": torch.complex128,
}


def inspect(
    compiled: Any,
    path: str | os.PathLike[str],
    *,
    inputs: Sequence[Any] | None = None,
    texts: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    run: bool = True,
    seconds: float = 1.0,
) -> None:
    """Writes a page about a compiled graph to ``path``.

    ``compiled`` is a report of ``inkle.reports()``, or its ``callable``. ``inputs`` is the flat list
    that the graph takes, weights included; without it random floats and zeros are made, which needs
    sizes that are all known. ``texts`` are the texts of the stages, as collected by
    ``options={"dump": texts.__setitem__}`` with a dict. ``run=False`` writes no times. ValueError if
    the graph was not compiled.
    """
    native, callable_, facts = _facts(compiled, texts)
    facts["not_run"] = "" if run else "the program was not run."
    arguments = list(inputs) if inputs is not None else _make_arguments(native)
    if arguments is None:
        facts["not_run"] = "sizes are symbolic, and no inputs were given."
    else:
        _add_shapes(native, arguments, facts)
        if run:
            _measure(native, callable_, arguments, seconds, facts)
    page = _inkle.inspect_page(native, facts)
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)


class Profile(list):
    """Rows of a profile, the dearest first; printed as a table."""

    text = ""

    def __str__(self) -> str:
        return self.text


def profile(
    compiled: Any, *, inputs: Sequence[Any] | None = None, seconds: float = 0.5
) -> Profile:
    """Times each kernel and library call of a compiled graph against the machine's limits.

    ``compiled``, ``inputs``: as for ``inspect``. Steps that are alike are one row, a dict: kind,
    name, label, source, calls, microseconds of all of these, bytes read and written, flops, the
    least that the machine's limits allow in microseconds, and the limit that binds.
    """
    native, callable_, facts = _facts(compiled, ())
    arguments = list(inputs) if inputs is not None else _make_arguments(native)
    if arguments is None:
        raise ValueError("inkle.profile: sizes are symbolic, and no inputs were given")
    _add_shapes(native, arguments, facts)
    _measure(native, callable_, arguments, seconds, facts)
    if facts["not_run"]:
        raise RuntimeError(f"inkle.profile: {facts['not_run']}")
    text, rows = _inkle.profile_table(native, facts)
    result = Profile(rows)
    result.text = text
    return result


def _facts(compiled: Any, texts: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The compiled program, how it is called, and what is known of it before it runs."""
    report = compiled if isinstance(compiled, GraphReport) else GraphReport("graph", True)
    callable_ = compiled.callable if isinstance(compiled, GraphReport) else compiled
    native = _native(callable_)
    if native is None and not isinstance(compiled, GraphReport):
        raise TypeError(f"inkle: a {type(compiled).__name__} is no report of inkle.reports()")
    if native is None:
        reason = f": {report.reason}" if report.reason else ""
        raise ValueError(f"inkle: graph {report.name} was not compiled{reason}")
    facts: dict[str, Any] = {
        "title": report.name,
        "stages": [("frontend", report.frontend_seconds), *map(tuple, report.stages)],
        "steps": report.steps,
        "schedules": report.schedules,
        "kernels": report.kernels,
        "kernels_reused": report.kernels_reused,
        "bytes_moved": report.bytes_moved,
        "bytes_lower_bound": report.bytes_lower_bound,
        "eager": [str(entry[0]) for entry in report.eager],
        "texts": _texts(texts),
        "step_microseconds": [],
        "call_microseconds": 0.0,
        "runs": 0,
        "not_run": "",
        "arguments": None,
    }
    return native, callable_, facts


def _add_shapes(native: Any, arguments: list[Any], facts: dict[str, Any]) -> None:
    shapes = [_shape(a) for a in arguments]
    if len(shapes) == len(_inkle.plan_arguments(native)):
        facts["arguments"] = shapes


def _native(callable_: Any) -> Any:
    """The compiled program in a report's callable, which may be a wrapper of it."""
    if isinstance(callable_, _inkle.TorchCallable):
        return callable_
    for name in ("native", "compiled", "__wrapped__"):
        inner = getattr(callable_, name, None)
        if isinstance(inner, _inkle.TorchCallable):
            return inner
    return None


def _texts(texts: Mapping[str, str] | Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    pairs = texts.items() if isinstance(texts, Mapping) else texts
    return [(s, t) for s, t in pairs if s not in ("kernels", "plan")]


def _shape(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return (list(argument.shape), list(argument.stride()))
    return int(argument)


def _make_arguments(native: Any) -> list[Any] | None:
    arguments = []
    for described in _inkle.plan_arguments(native):
        if described is None:
            return None
        name, sizes, strides, device = described
        # Elements may share a place: what is filled is the memory behind them.
        places = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
        memory = torch.zeros(0 if 0 in sizes else places, dtype=_DTYPES[name], device=device)
        if memory.dtype.is_floating_point:
            memory = (torch.rand(memory.numel(), device=device) * 2 - 1).to(memory.dtype)
        arguments.append(memory.as_strided(sizes, strides))
    return arguments


def _measure(
    native: Any, callable_: Any, arguments: list[Any], seconds: float, facts: dict[str, Any]
) -> None:
    """Least times of calls and of each step, after a call to warm up. A program that writes into
    its arguments gets the same ones in every call."""
    on_gpu = any(isinstance(a, torch.Tensor) and a.is_cuda for a in arguments)
    wait = torch.cuda.synchronize if on_gpu else (lambda: None)
    try:
        with torch.no_grad():
            callable_(list(arguments))
            wait()
            calls = []
            start = time.perf_counter()
            while len(calls) < 5 or time.perf_counter() - start < seconds / 2:
                before = time.perf_counter()
                callable_(list(arguments))
                wait()
                calls.append(time.perf_counter() - before)
            steps = native.profile(arguments)
            start = time.perf_counter()
            while time.perf_counter() - start < seconds / 2:
                steps = list(map(min, steps, native.profile(arguments)))
    except Exception as error:  # noqa: BLE001: the page says why there are no times
        facts["not_run"] = str(error)
        return
    facts.update(runs=len(calls), call_microseconds=min(calls) * 1e6, step_microseconds=steps)
