"""The backend of torch.compile: what Dynamo calls, and what it falls back to."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from typing import Any, Callable, Mapping, Sequence

import torch
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

from inkle import _inkle, attention
from inkle.importer import GraphImporter, UnsupportedGraph, named_nodes
from inkle.options import Options, parse

_log = logging.getLogger("inkle")


@dataclasses.dataclass
class GraphReport:
    """What became of one graph: times in seconds, counts, and what ran in eager and why."""

    name: str
    compiled: bool = False
    reason: str = ""
    frontend_seconds: float = 0.0
    stages: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    steps: list[dict[str, str]] = dataclasses.field(default_factory=list)
    kernels: int = 0
    kernels_reused: int = 0
    launches: int = 0
    library_calls: int = 0
    # Of one call at the sizes that it was compiled for; and inputs, outputs and operands of
    # contractions once.
    bytes_moved: int = 0
    bytes_lower_bound: int = 0
    eager: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    callable: Any = None

    @property
    def seconds(self) -> float:
        """Inkle's own share of the compile time."""
        return self.frontend_seconds + sum(s for _, s in self.stages)


_reports: list[GraphReport] = []
_lock = threading.Lock()
_compiler: Any = None
_warned: set[str] = set()


def reports() -> list[GraphReport]:
    """Reports of all graphs compiled since the start or the last reset(), in order."""
    with _lock:
        return list(_reports)


def reset() -> None:
    """Forgets reports and warnings, and all compiled kernels."""
    global _compiler
    with _lock:
        _reports.clear()
        _warned.clear()
        _compiler = None


def _get_compiler() -> Any:
    global _compiler
    with _lock:
        if _compiler is None:
            _compiler = _inkle.Compiler()
        return _compiler


def inkle(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Backend of torch.compile.

    ``options`` are those of ``inkle.options.Options``. What cannot be compiled runs in eager, with
    one warning (or an exception with ``options={"strict": True}``).
    """
    parsed = parse(mode, options)
    label = name or "graph"
    attention.replace(gm)

    def compile_inference(g: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(g, label, parsed, training=False)

    def compile_training(g: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(g, label, parsed, training=True)

    return aot_module_simplified(
        gm,
        example_inputs,
        fw_compiler=compile_training,
        bw_compiler=compile_training,
        inference_compiler=compile_inference,
        keep_inference_input_mutations=True,
    )


def _parameter_positions(gm: torch.fx.GraphModule) -> set[int]:
    """Placeholders that are weights: the same tensor from call to call, and not written here."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None) if context else None
    static = set(getattr(metadata, "static_input_indices", None) or [])
    written = set()
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node in gm.graph.nodes:
        if node.op == "call_function" and str(node.target).endswith("copy_.default"):
            written.add(node.args[0])
    return {i for i, n in enumerate(placeholders) if i in static and n not in written}


def _as_strided(base: Any, sizes: list[int], strides: list[int], byte_offset: int) -> Any:
    offset = base.storage_offset() + byte_offset // base.element_size()
    return torch.as_strided(base, sizes, strides, offset)


def compile_graph(
    gm: torch.fx.GraphModule, name: str, options: Options, training: bool
) -> Callable[..., Any]:
    """An AOTAutograd graph -> a boxed callable: compiled, or eager with the reason reported."""
    report = GraphReport(name)
    with _lock:
        _reports.append(report)
    try:
        compiled = _compile(gm, name, options, training, report)
    except Exception as error:  # noqa: BLE001: whatever happens in here, the user's program runs
        return _fall_back(gm, report, options, error)
    report.compiled = True
    report.callable = compiled
    compiled._boxed_call = True
    return compiled


# A graph in which more nodes than this turn out, one after another, not to be supported is not
# worth compiling.
_MAX_ATTEMPTS = 12


def _compile(
    gm: torch.fx.GraphModule, name: str, options: Options, training: bool, report: GraphReport
) -> Any:
    """Compiles; nodes that a later stage does not support are left to eager in a new attempt."""
    parameters = set() if training else _parameter_positions(gm)
    in_eager: dict[str, str] = {}
    while True:
        start = time.perf_counter()
        walker = GraphImporter(gm, name, parameters, in_eager)
        if options.fail_stage == "frontend":
            raise RuntimeError("made to fail by option fail_stage")
        walker.run()
        native = _inkle.Options()
        native.training = training
        native.freeze = options.freeze
        native.fast_numerics = options.numerics == "fast"
        native.fail_stage = options.fail_stage
        native.dump = options.dump or _dump_to_folder()
        report.frontend_seconds += time.perf_counter() - start
        start = time.perf_counter()
        try:
            compiled, facts = _get_compiler().compile(
                walker.importer, native, walker.targets, _as_strided
            )
        except _inkle.Unsupported as error:
            nodes = named_nodes(str(error), gm) - in_eager.keys()
            if not nodes or len(in_eager) + len(nodes) > _MAX_ATTEMPTS:
                raise
            report.stages.append(("retry", time.perf_counter() - start))
            in_eager.update((node, str(error).splitlines()[0]) for node in nodes)
            continue
        report.stages += facts["stages"]
        report.steps = facts["steps"]
        for key in (
            "kernels",
            "kernels_reused",
            "launches",
            "library_calls",
            "bytes_moved",
            "bytes_lower_bound",
        ):
            setattr(report, key, facts[key])
        report.eager = walker.importer.eager
        return compiled


def _fall_back(
    gm: torch.fx.GraphModule, report: GraphReport, options: Options, error: Exception
) -> Callable[..., Any]:
    report.reason = str(error)
    if options.strict:
        raise error
    expected = isinstance(error, (UnsupportedGraph, _inkle.Unsupported))
    text = " ".join(str(error).split())
    if text not in _warned:
        _warned.add(text)
        kind = "not supported" if expected else "a fault in the compiler"
        _log.warning("inkle: a graph runs in eager (%s): %s", kind, text)
    return make_boxed_func(gm.forward)


_dump_count = 0


def _dump_to_folder() -> Callable[[str, str], None] | None:
    """Numbered files of every stage in the folder that INKLE_DUMP_DIR names."""
    folder = os.environ.get("INKLE_DUMP_DIR")
    if not folder:
        return None
    os.makedirs(folder, exist_ok=True)

    def write(stage: str, text: str) -> None:
        global _dump_count
        _dump_count += 1
        with open(os.path.join(folder, f"{_dump_count:03}-{stage}.txt"), "w") as file:
            file.write(text)

    return write
