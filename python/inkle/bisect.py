"""``python -m inkle bisect SCRIPT``: which pass makes which node of a compiled graph wrong.

The script runs once, with every call of a compiled graph compared with the same graph in eager. The
first graph that differs is compiled again with fewer passes, until one pass makes the difference, then
with fewer nodes. What is left is written as a case for the command ``inkle``: text of a graph, inputs,
expected results. Where no graph differs but the script fails, it is run again with fewer passes in all
graphs, and its exit status tells.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import runpy
import shlex
import shutil
import subprocess
import sys
from typing import Any, Callable, Sequence

import torch
from torch.utils import _pytree as pytree

from inkle import backend, layouts, machine, segments
from inkle.importer import source_line
from inkle.options import Options
from inkle.report import reports

# Parts of a tensor's largest magnitude by which rounding alone may move it.
_TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3, torch.complex64: 1e-3, torch.float16: 2e-2,
              torch.bfloat16: 5e-2}  # fmt: skip
_ENVIRONMENT = "INKLE_PASS_LIMIT"


# --- Watching the script --------------------------------------------------------------------------


@dataclasses.dataclass
class Finding:
    """A call of a compiled graph that differs from eager: the graph, its arguments before."""

    gm: torch.fx.GraphModule
    options: Options
    training: bool
    parameters: set[int]
    strides: Any
    arguments: list[Any]
    difference: str


class _Found(BaseException):
    """Ends the script."""


class Watch:
    """Compares each call of each compiled graph with eager, until one differs."""

    def __init__(self, tolerance: float | None):
        self.tolerance = tolerance
        self.finding: Finding | None = None
        self.calls = 0

    def options(self, options: Options) -> Options:
        """Those of a user, so that graphs can be compared: eager's random numbers; forward and
        backward as AOTAutograd partitions them; no calls that are captured or come from a cache."""
        return dataclasses.replace(
            options, random="eager", partition="default", graphs=False, cache=False
        )

    def watched(
        self, compiled: Callable[..., Any], gm: torch.fx.GraphModule, options: Options,
        training: bool, parameters: set[int], strides: Any,
    ) -> Callable[..., Any]:  # fmt: skip
        def run(args: list[Any]) -> Any:
            if self.finding is not None:
                return compiled(args)
            before, given = copied(args), list(args)
            state = RandomState()
            found = compiled(args)
            self.calls += 1
            after = RandomState()
            state.restore()
            plain = copied(before)
            wanted = in_eager(gm, plain, strides)
            after.restore()
            text = difference([*found, *given], [*wanted, *plain], self.tolerance)
            if text:
                self.finding = Finding(gm, options, training, parameters, strides, before, text)
                raise _Found
            return found

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


class RandomState:
    """Of torch's generators: the processor's, and each GPU's where the program uses one."""

    def __init__(self) -> None:
        self._state = torch.get_rng_state()
        self._gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def restore(self) -> None:
        torch.set_rng_state(self._state)
        if self._gpus:
            torch.cuda.set_rng_state_all(self._gpus)


def in_eager(gm: torch.fx.GraphModule, arguments: list[Any], strides: Any) -> list[Any]:
    with torch.no_grad(), torch._C._DisableAutocast():
        return list(gm.forward(*layouts.as_traced(gm, arguments, strides.arguments)))


def copied(values: Sequence[Any]) -> list[Any]:
    """With the same strides; tensors that share memory, each for itself."""
    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return value
        value = value.detach()
        if any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape)):
            return value.clone()
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype,
                                   device=value.device).copy_(value)  # fmt: skip

    return [copy(v) for v in values]


def difference(found: Sequence[Any], wanted: Sequence[Any], tolerance: float | None) -> str:
    """Which value differs by more than rounding, "" if none."""
    for number, (x, y) in enumerate(zip(found, wanted)):
        if not isinstance(y, torch.Tensor):
            if isinstance(y, (int, float, bool)) and x != y and y == y:
                return f"result {number}: {x}, {y} in eager"
            continue
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"result {number}: {x.dtype} {list(x.shape)}, {y.dtype} {list(y.shape)} in eager"
        if y.layout != torch.strided or y.numel() == 0 or torch.equal(x, y):
            continue
        a, b = (t.detach().resolve_conj().to("cpu") for t in (x, y))
        if not (b.is_floating_point() or b.is_complex()):
            return f"result {number}: {int((a != b).sum())} of {b.numel()} elements differ"
        a, b = (torch.view_as_real(t.to(torch.complex128)) if t.is_complex() else t.double()
                for t in (a, b))  # fmt: skip
        allowed = tolerance if tolerance is not None else _TOLERANCE.get(y.dtype, 5e-2)
        scale = b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 0.0
        same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= allowed * scale)
        if not bool(same.all()):
            at = int((~same).flatten().nonzero()[0])
            return (f"result {number}: {int((~same).sum())} of {same.numel()} numbers differ; number {at} is "
                    f"{a.flatten()[at]:.6g}, {b.flatten()[at]:.6g} in eager")  # fmt: skip
    return ""


# --- Pass and node --------------------------------------------------------------------------------


@dataclasses.dataclass
class Part:
    """Some nodes of a graph as a graph of its own, with the values that it reads and those that
    eager makes of them."""

    module: torch.fx.GraphModule
    arguments: list[Any]
    parameters: set[int]
    text: str = ""  # in the compiler's IR, once it is compiled


class Bisection:
    def __init__(self, finding: Finding, tolerance: float | None, say: Callable[[str], None]):
        self.finding, self._tolerance, self._say = finding, tolerance, say
        self.runs = 1  # of the script
        self.passes: list[str] = []
        self.limit: int | None = None
        self.culprit = ""
        self._groups = _groups(finding.gm)
        self._values = _values(finding)

    def find(self) -> Part | None:
        """Sets what pass it is, and gives the smallest part that differs; None where the graph by
        itself does not."""
        whole = Part(self.finding.gm, self.finding.arguments, self.finding.parameters)
        if not self._differs(whole, None):
            return None
        count = len(self.passes)
        self._say(f"the graph: {len(self._groups)} nodes, {count} passes that may be left out")
        if self._differs(whole, 0):
            self.limit, self.culprit = 0, "none that may be left out: lowering, scheduling or code"
        else:
            self.limit = _first(0, count, lambda n: self._differs(whole, n))
            self.culprit = self.passes[self.limit - 1]
        self._say(f"wrong from pass {self.limit} of {count} on: {self.culprit}")
        return self._shrunk()

    def _shrunk(self) -> Part:
        """The last node whose graph differs, with as few of those before it as needed."""
        count = len(self._groups)
        last = _first(0, count, lambda n: self._differs(self._part(0, n), self.limit))
        for nodes in (1, 3):
            part = self._part(max(0, last - nodes), last)
            if nodes < last and self._differs(part, self.limit):
                return part
        return self._smallest

    def describe(self) -> str:
        """The node, and where the user has written it."""
        node = self._groups[self._last - 1][0]
        return f"{node.format_node()} at {source_line(node)}"

    def tolerance_of(self, results: list[Any]) -> float:
        if self._tolerance is not None:
            return self._tolerance
        return max((_TOLERANCE.get(r.dtype, 0.0) for r in results if isinstance(r, torch.Tensor)),
                   default=0.0)  # fmt: skip

    def _part(self, first: int, last: int) -> Part:
        self._last = last
        nodes = [n for group in self._groups[first:last] for n in group]
        made = segments.make_part(self.finding.gm, nodes)
        weights = [n for n in self.finding.gm.graph.nodes if n.op == "placeholder"]
        positions = {i for i, n in enumerate(made.inputs)
                     if n in weights and weights.index(n) in self.finding.parameters}  # fmt: skip
        return Part(made.module, [self._values[n] for n in made.inputs], positions)

    def _differs(self, part: Part, limit: int | None) -> bool:
        """Compiles a part with so many of the passes and calls it."""
        self.runs += 1
        machine.forget()
        f = self.finding
        is_whole = part.module is f.gm
        texts: dict[str, str] = {}
        options = dataclasses.replace(f.options, pass_limit=_ALL if limit is None else limit, strict=True,
                                      dump=lambda stage, text: texts.setdefault(stage, text))  # fmt: skip
        strides = f.strides if is_whole else backend.NO_STRIDES
        given, plain = copied(part.arguments), copied(part.arguments)
        state = RandomState()
        wanted = in_eager(part.module, plain, strides)
        state.restore()
        before = len(reports())
        at = f"{len(_groups(part.module))} nodes, {'all' if limit is None else limit} passes"
        try:
            run = backend.compile_alone(part.module, options, f.training, part.parameters, strides)
            found = list(run(list(given)))
        except Exception as error:  # noqa: BLE001: so few passes are not enough for this graph
            self._say(f"run {self.runs}: {at}: {str(error).splitlines()[0]}")
            return False
        state.restore()
        part.text = texts.get("graph", "")
        if is_whole and limit is None:
            self.passes = next((r.optional_passes for r in reports()[before:]), [])
        text = difference([*found, *given], [*wanted, *plain], self._tolerance)
        self._say(f"run {self.runs}: {at}: {text or 'as eager'}")
        if text:
            self._smallest = part
        return bool(text)


_ALL = 1 << 30


def _first(right: int, wrong: int, is_wrong: Callable[[int], bool]) -> int:
    """The least number that is wrong, between one that is right and one that is wrong."""
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if is_wrong(middle):
            wrong = middle
        else:
            right = middle
    return wrong


def _groups(gm: torch.fx.GraphModule) -> list[list[torch.fx.Node]]:
    """The calls in order, each with what takes its results apart."""
    made: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in gm.graph.nodes:
        if node.op not in ("call_function", "get_attr"):
            continue
        source = node.args[0] if segments.takes_apart(node) else None
        if source in made:
            made[source].append(node)
        else:
            made[node] = [node]
    return list(made.values())


def _values(finding: Finding) -> dict[torch.fx.Node, Any]:
    """What eager makes of each node, as it is then."""
    values: dict[torch.fx.Node, Any] = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            made = super().run_node(n)
            if n.op != "output":
                leaves, form = pytree.tree_flatten(made)
                values[n] = pytree.tree_unflatten(copied(leaves), form)
            return made

    given = layouts.as_traced(finding.gm, copied(finding.arguments), finding.strides.arguments)
    with torch.no_grad(), torch._C._DisableAutocast():
        Recorder(finding.gm).run(*given)
    return values


# --- The case -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Case:
    """A graph in a folder, and what `inkle run` is told of it."""

    folder: str
    inputs: list[str]  # names of tensors, each a file
    results: int  # files of expected ones
    options: Options
    tolerance: float
    training: bool = False
    limit: int | None = None  # of passes
    gpu: int | None = None  # None: the processor

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def command(self) -> list[str]:
        words = ["inkle", "run", self.path("graph.ir")]
        if self.gpu is not None:
            words += ["--device", f"cuda:{self.gpu}"]
        for name in self.inputs:
            words += ["--input", f"{name}={self.path(name)}.npy"]
        for number in range(self.results):
            words += ["--expect", self.path(f"expected_{number}.npy")]
        if self.limit is not None:
            words += ["--pass-limit", str(self.limit)]
        words += ["--tolerance", str(self.tolerance)]
        if self.training:
            words.append("--training")
        if self.options.numerics != "eager":
            words += ["--numerics", self.options.numerics]
        if self.options.fail_stage:
            words += ["--fail-stage", self.options.fail_stage]
        return words


def write_case(part: Part, bisection: Bisection, folder: str) -> list[str]:
    """Graph text, inputs and expected results in a folder; the command that shows the difference."""
    wanted = in_eager(part.module, copied(part.arguments), backend.NO_STRIDES)
    names = [n.name for n in part.module.graph.nodes if n.op == "placeholder"]
    inputs = {n: v for n, v in zip(names, part.arguments) if isinstance(v, torch.Tensor)}
    results = [w for w in wanted if isinstance(w, torch.Tensor)]
    finding = bisection.finding
    case = Case(
        folder, list(inputs), len(results), finding.options, bisection.tolerance_of(wanted),
        finding.training, bisection.limit, gpu_among([*inputs.values(), *results]),
    )  # fmt: skip
    os.makedirs(folder, exist_ok=True)
    with open(case.path("graph.ir"), "w") as file:
        file.write(part.text)
    for name, value in inputs.items():
        _save(case.path(f"{name}.npy"), value)
    for number, value in enumerate(results):
        _save(case.path(f"expected_{number}.npy"), value)
    with open(case.path("command"), "w") as file:
        file.write(shlex.join(case.command()) + "\n")
    return case.command()


def gpu_among(values: Sequence[torch.Tensor]) -> int | None:
    """The number of the GPU that one of these tensors lies on, None if none does."""
    return next((v.device.index or 0 for v in values if v.device.type == "cuda"), None)


def _save(path: str, value: torch.Tensor) -> None:
    import numpy

    value = value.detach().cpu().contiguous()
    if value.dtype == torch.bfloat16:  # as the command reads it
        numpy.save(path, value.view(torch.int16).numpy().view("V2"))
    else:
        numpy.save(path, value.numpy())


# --- The command ----------------------------------------------------------------------------------


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m inkle bisect", description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", default="inkle-case", help="folder of the case")
    parser.add_argument("--tolerance", type=float, default=None,
                        help="a part of a result's largest magnitude that rounding may move it by")  # fmt: skip
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(words)
    torch._functorch.config.enable_autograd_cache = False
    watch = Watch(arguments.tolerance)
    status = _run_script(arguments, watch)
    if watch.finding is None:
        if not status:
            print(f"nothing differs: {watch.calls} calls of compiled graphs are as in eager")
            return 0
        return _by_exit_status(arguments, watch)
    finding = watch.finding
    print(f"call {watch.calls} of a compiled graph differs from eager: {finding.difference}")
    bisection = Bisection(finding, arguments.tolerance, print)
    part = bisection.find()
    if part is None:
        print("the graph by itself does not differ: what it was given, or what ran before, matters")
        return 1
    command = write_case(part, bisection, arguments.output)
    print(f"pass: {bisection.culprit}\nnode: {bisection.describe()}\n\n{part.text}\n{shlex.join(command)}")
    if program := shutil.which("inkle"):
        bisection.runs += 1
        ran = subprocess.run([program, *command[1:]], capture_output=True, text=True)
        is_shown = ran.returncode == 1 and "differ" in ran.stderr
        print(f"{'reproduced' if is_shown else 'NOT reproduced'} by the command: {ran.stderr.strip()}")
    print(f"{bisection.runs} runs")
    return 1


def _run_script(arguments: argparse.Namespace, watch: Watch) -> int:
    """Runs it under the watch; its exit status."""
    sys.argv = [arguments.script, *arguments.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(arguments.script)))
    backend.watch = watch
    try:
        runpy.run_path(arguments.script, run_name="__main__")
    except _Found:
        pass
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:  # noqa: BLE001: the script's own
        print(f"the script ends with {type(error).__name__}: {error}")
        return 1
    finally:
        backend.watch = None
    return 0


def _by_exit_status(arguments: argparse.Namespace, watch: Watch) -> int:
    """Which pass makes the script fail, of all graphs together, joint ones too."""
    runs = 1

    def fails(limit: int) -> bool:
        nonlocal runs
        runs += 1
        environment = {**os.environ, _ENVIRONMENT: str(limit)}
        ran = subprocess.run([sys.executable, arguments.script, *arguments.arguments], env=environment,
                             capture_output=True)  # fmt: skip
        print(f"run {runs}: {limit} passes: exit status {ran.returncode}")
        return ran.returncode != 0

    print("the script fails, though no call of a compiled graph differs from eager")
    names = max((r.optional_passes for r in reports()), key=len, default=[])
    if not names or not fails(_ALL) or fails(0):
        print("it does so with no pass, or with other settings does not: no pass makes the difference")
        return 1
    first = _first(0, len(names), fails)
    print(f"it fails from pass {first} of {len(names)} on: {names[first - 1]}\n{runs} runs")
    return 1
