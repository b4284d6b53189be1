"""What became of each graph, and the one place that tells the user."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import weakref
from typing import Any, Iterator

import torch

from inkle import _inkle, dumps
from inkle.importer import source_line
from inkle.sizes import UnsupportedGraph


class ExtensionFailed(RuntimeError):
    """A pass of the user raised, or left a graph that is none."""


_log = logging.getLogger("inkle")


# What reasons to leave an op to eager for its bits begin with.
BITWISE = "numerics=bitwise: "


@dataclasses.dataclass
class GivenUp:
    """An attempt that was given up: the nodes that are left to eager since, as (op, source, reason),
    and the seconds that it took."""

    nodes: list[tuple[str, str, str]]
    seconds: float


@dataclasses.dataclass
class GraphReport:
    """What became of one graph: times in seconds, counts, and what ran in eager and why."""

    name: str
    compiled: bool = False
    reason: str = ""
    # What Inkle itself did wrong, while compiling or in a call; a bug.
    fault: str = ""
    frontend_seconds: float = 0.0
    stages: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    steps: list[dict[str, str]] = dataclasses.field(default_factory=list)
    optional_passes: list[str] = dataclasses.field(default_factory=list)
    # By kernel of the plan: the fused kernel and its schedule as text.
    schedules: list[str] = dataclasses.field(default_factory=list)
    kernels: int = 0
    kernels_reused: int = 0
    launches: int = 0
    library_calls: int = 0
    # Of one call at the sizes that it was compiled for; and inputs, outputs and operands of
    # contractions once.
    bytes_moved: int = 0
    bytes_lower_bound: int = 0
    eager: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    # At most one.
    given_up: list[GivenUp] = dataclasses.field(default_factory=list)
    # (op, source, reason) of what is not as option "numerics" promises.
    not_held: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    # Of a forward graph that Inkle has partitioned: what the forward keeps for the backward alone.
    kept_bytes: int | None = None
    _program: Any = dataclasses.field(default=None, repr=False)  # a weak reference

    @property
    def callable(self) -> Any:
        """The ``_inkle.TorchCallable``; None where nothing was compiled, or no caller holds it any
        more: a report keeps neither its kernels nor its copies of weights."""
        return None if self._program is None else self._program()

    @callable.setter
    def callable(self, program: Any) -> None:
        self._program = weakref.ref(program)

    def take(self, facts: dict[str, Any]) -> None:
        """What the compiler tells."""
        for key, value in facts.items():
            if key == "stages":
                self.stages += value
            elif key != "eager" and hasattr(self, key):
                setattr(self, key, value)

    @property
    def numerics(self) -> list[tuple[str, str, str]]:
        """(op, source, reason) of what option "numerics" does not hold, or holds by leaving it to
        eager."""
        left = [e for e in self.eager if e[2].startswith(BITWISE)]
        return [*self.not_held, *left]

    def tell_numerics(self, numerics: str) -> None:
        """One line of log, where there is something to tell."""
        found = self.numerics
        if not found:
            return
        ops = ", ".join(dict.fromkeys(op for op, _, _ in found))
        what = "left to eager for its bits" if numerics == "bitwise" else "not held"
        text = f"inkle: numerics={numerics}: {self.name}: {what}: {ops}"
        _log.info("%s", text[:_MAX_WARNING])

    def call_failed(self, message: str, is_fault: bool) -> None:
        """A call ran in eager."""
        self.reason = message
        if is_fault:
            self.fault = message

    def give_up(
        self, gm: torch.fx.GraphModule, nodes: dict[str, str], frontend: float, compiler: float
    ) -> None:
        """These nodes go to eager in another attempt, and what the last one took is lost."""
        named = {node.name: node for node in gm.graph.nodes}
        told = [(str(named[n].target), source_line(named[n]), why) for n, why in nodes.items()]
        self.given_up.append(GivenUp(told, frontend + compiler))
        self.stages.append(("retry", compiler))
        for op, source, why in told:
            _log.info("%s at %s runs in eager: %s", op, source, why)
        _log.info("an attempt of %.3f s is given up for them", frontend + compiler)

    @property
    def seconds(self) -> float:
        """Inkle's own share of the compile time."""
        return self.frontend_seconds + sum(s for _, s in self.stages)


    @property
    def is_foreseen(self) -> bool:
        """Whether torch is known to foresee the sizes of all that eager returns: of attention's
        kernels. A call that returns others is repeated in eager, which needs its arguments."""
        return all("attention" in op for op, _, _ in self.eager)


_reports: list[GraphReport] = []
_lock = threading.Lock()
_warned: set[str] = set()


def reports() -> list[GraphReport]:
    """Reports of all graphs compiled since the start or the last reset(), in order."""
    with _lock:
        return list(_reports)


def forget() -> None:
    """Forgets reports and warnings."""
    with _lock:
        _reports.clear()
        _warned.clear()


def add(report: GraphReport) -> None:
    with _lock:
        _reports.append(report)


def tell(report: GraphReport) -> None:
    """What became of a graph, for TORCH_LOGS="inkle" and "+inkle", and for TORCH_TRACE."""
    if _log.isEnabledFor(logging.INFO):
        for level, line in _lines(report):
            _log.log(level, "inkle: %s", line)
    if dumps.is_traced():
        facts = {f.name: getattr(report, f.name) for f in dataclasses.fields(report)}
        facts.pop("_program")
        dumps.trace("inkle_report", "json", json.dumps(facts, default=str, indent=1))
        fallbacks = [f"{op} at {source}: {reason}" for op, source, reason in report.eager]
        if not report.compiled:
            fallbacks.append(f"the whole graph: {report.reason}")
        if fallbacks:
            dumps.trace("inkle_fallbacks", "string", "\n".join(fallbacks))


def _lines(report: GraphReport) -> Iterator[tuple[int, str]]:
    name = report.name
    if not report.compiled:
        yield logging.INFO, f"{name} runs in eager: {report.reason}"
        return
    yield logging.INFO, (
        f"{name} is compiled in {report.seconds * 1e3:.0f} ms: {report.launches} launches of "
        f"{report.kernels} kernels, {report.library_calls} library calls, {len(report.eager)} ops "
        "in eager"
    )
    for op, source, reason in report.eager:
        yield logging.INFO, f"{name}: {op} at {source} runs in eager: {reason}"
    for stage, seconds in report.stages:
        yield logging.DEBUG, f"{name}: {stage} took {seconds * 1e3:.2f} ms"
    for number, step in enumerate(report.steps):
        what = step["kernel"] or step["label"]
        yield logging.DEBUG, f"{name}: step {number}, {step['kind']} {what} {step['source']}"


@dataclasses.dataclass
class Failure:
    """Where a compilation stood."""

    stage: str = "frontend"
    node: torch.fx.Node | None = None


# Errors whose message says all.
INKLE_ERRORS = (UnsupportedGraph, _inkle.Unsupported, _inkle.InternalError, _inkle.UserError)
_MAX_MESSAGE = 160


def warn(
    gm: torch.fx.GraphModule | None,
    report: GraphReport,
    what: str,
    kind: str,
    message: str,
    failure: Failure,
) -> None:
    """One line for each distinct reason: what was wrong, then stage, op and source line, the
    first of ``gm`` if no other is known."""
    lines = message.splitlines() or [""]
    first = lines[0] if len(lines[0]) <= _MAX_MESSAGE else lines[0][: _MAX_MESSAGE - 3] + "..."
    places = [line.strip() for line in lines[1:] if line.startswith("  in ")]
    if failure.stage:
        places.append(f"in stage {failure.stage}")
    if failure.node is not None:
        places.insert(0, f"in op {failure.node.target} at {source_line(failure.node)}")
    with _lock:
        key = f"{kind}: {first} {places[-1:]}"
        if key in _warned:
            return
        _warned.add(key)
    if gm is not None and not any(" at " in place for place in places):
        ops = [n for n in gm.graph.nodes if n.op == "call_function" and n.meta.get("stack_trace")]
        if ops:
            places.append(f"in the graph of op {ops[0].target} at {source_line(ops[0])}")
    text = f"inkle: {what} ({kind}): {first} {' '.join(places)}"
    _log.warning("%s", " ".join(text.split())[:_MAX_WARNING])


_MAX_WARNING = 300


# Kinds of failure that are no fault of Inkle's.
NOT_SUPPORTED, FAULT_OF_USER = "not supported", "a fault in a pass of the user"


def fault_of(error: Exception) -> tuple[str, str]:
    """What kind of failure it is, and the message."""
    if isinstance(error, ExtensionFailed):
        return FAULT_OF_USER, str(error)
    expected = isinstance(error, (UnsupportedGraph, _inkle.Unsupported))
    message = str(error) if isinstance(error, INKLE_ERRORS) else f"{type(error).__name__}: {error}"
    return NOT_SUPPORTED if expected else "a fault in the compiler", message
