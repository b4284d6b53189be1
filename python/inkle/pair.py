"""The ``partition_fn`` that compiles a forward and its backward together."""

from __future__ import annotations

import time
from typing import Any, Callable

import torch
from torch._functorch.partitioners import default_partition

from inkle import _inkle, restrided
from inkle.eager_calls import OpCall
from inkle.eager_graph import EagerGraph, Results
from inkle.importer import GraphImporter, nodes_of
from inkle.library_attention import LibraryAttention
from inkle.joint import TrainingGraphs, Joint, Kept, examine, stubs
from inkle.machine import as_strided, get_compiler, gpu_of, native_options, viewed
from inkle.options import WHY_NO_GRAPHS_IN_TRAINING, Options
from inkle.report import Failure, GraphReport, add, fault_of, tell, warn
from inkle.returned import by_result, joint_callers
from inkle.sizes import UnsupportedGraph

class Partition:
    """Where a joint graph is partitioned by the compiler; by AOTAutograd where that cannot be, with the
    reason told."""

    def __init__(self, name: str, options: Options):
        self._name, self._options = name, options

    def __call__(
        self, gm: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **named: Any
    ) -> TrainingGraphs:
        failure = Failure()
        try:
            restrided.correct(gm)
            joint = examine(gm, num_fwd_outputs, named.get("static_lifetime_input_indices"))
            return self.compile(joint, failure)
        except Exception as error:  # noqa: BLE001: the default partition serves all graphs
            kind, message = fault_of(error)
        # Where that raises too, nothing is told here: all runs in eager, and the backend tells why.
        graphs = default_partition(gm, inputs, num_fwd_outputs=num_fwd_outputs, **named)
        report = GraphReport(self._name)
        warn(gm, report, "a joint graph has the default partition", kind, message, failure)
        return graphs

    def compile(self, joint: Joint, failure: Failure) -> TrainingGraphs:
        """The nodes that the compiler does not support are left to eager in a second attempt, the
        last."""
        reports = GraphReport(self._name), GraphReport(self._name)
        start = time.perf_counter()
        try:
            graphs = self._attempt(joint, {}, reports, failure)
        except (_inkle.Unsupported, _inkle.UserError) as error:
            nodes = nodes_of(error, joint.gm)
            if not nodes:
                raise
            before = reports[0].seconds
            reports[0].give_up(joint.gm, nodes, before, time.perf_counter() - start - before)
            graphs = self._attempt(joint, nodes, reports, failure)
        for report in reports:
            report.compiled = True
            add(report)
            tell(report)
        return graphs

    def _attempt(
        self, joint: Joint, in_eager: dict[str, str], reports: tuple[GraphReport, ...],
        failure: Failure,
    ) -> TrainingGraphs:  # fmt: skip
        start = time.perf_counter()
        failure.stage = "frontend"
        walker = GraphImporter(
            joint.gm, self._name, set(), in_eager, own_random=self._options.random == "fast",
            keep=joint.keep, callers=joint_callers(joint.gm, joint.num_forward_outputs, joint.tangent_outputs),
            numerics=self._options.numerics,
        )  # fmt: skip
        try:
            walker.run()
        except Exception:
            failure.node = walker.current
            raise
        native = native_options(self._options, training=True)
        failure.stage = ""
        reports[0].frontend_seconds += time.perf_counter() - start
        gpu = gpu_of(joint.gm)
        compiler = get_compiler(gpu)
        library = None
        if gpu is not None and self._options.numerics != "bitwise":
            library = LibraryAttention(walker, joint.mode, joint.symbols)
        partition = compiler.partition(
            walker.importer, native, forward_outputs=joint.num_forward_outputs,
            tangents=joint.tangents, written=joint.written, fixed=joint.fixed,
            saved_inputs=joint.saved_inputs, saved_outputs=joint.saved_outputs,
            tangent_outputs=joint.tangent_outputs,
            pure_calls=[isinstance(t, OpCall) and t.is_pure for t in walker.targets],
            most_bytes=joint.default_bytes, by_bytes=self._options.partition == "smallest",
            attention=library,
        )  # fmt: skip
        reports[0].stages += partition.stages
        start = time.perf_counter()
        kept = Kept(joint, walker, partition)
        reports[0].frontend_seconds += time.perf_counter() - start
        both = compiler.compile_training(partition, native, walker.targets, viewed, as_strided)
        compiled = []
        for is_backward, report, (made, facts) in zip((False, True), reports, both):
            report.take(facts)
            sources = set(partition.eager_sources(is_backward))
            calls = [] if library is None else library.calls
            report.eager = [e for e in (*walker.importer.eager, *calls) if e[1] in sources]
            report.tell_numerics(self._options.numerics)
            report.callable = made
            made.calls = walker.calls(partition.eager_targets(is_backward))
            made.share = as_strided if is_backward else viewed
            made.view_of, made.apart = ([], []) if is_backward else (by_result(walker.view_of), walker.apart)
            made.set_views(made.view_of, made.apart)
            made.conditions = [] if is_backward else walker.conditions
            made.set_conditions(made.conditions)
            # By results of the joint graph: those of the forward come first. Behind them the forward
            # returns what it keeps.
            repeats = {} if is_backward else walker.repeats
            made.repeats = by_result(
                {at: first for at, first in repeats.items() if at < joint.num_forward_outputs}
            )
            made.set_repeats(made.repeats)
            made.falls_back = not self._options.strict
            made.writes_in_eager = walker.writes_in_eager
            report.kept_bytes = partition.bytes
            made._boxed_call = True
            made.donates_arguments = is_backward and gpu is not None and report.is_foreseen
            if made.falls_back:
                graph = (partition, is_backward, walker.targets, Results.of(made))
                made.set_fallback(_at_run_time(joint.gm, report, graph), made.writes_in_eager)
            made.fails = self._options.fail_stage == "run"
            if self._options.graphs:
                made.use_graphs(why_not=WHY_NO_GRAPHS_IN_TRAINING)
            compiled.append(made)
        return stubs(joint, kept, *compiled)


def _at_run_time(
    gm: torch.fx.GraphModule, report: GraphReport, graph: tuple[Any, ...]
) -> Callable[[list[Any], str, bool], Any]:
    """What runs instead of a call that failed before it wrote anything."""

    def run(arguments: list[Any], message: str, is_fault: bool) -> Any:
        report.call_failed(message, is_fault)
        kind = "a fault at run time" if is_fault else "not supported"
        warn(gm, report, "a call runs in eager", kind, message, Failure("run"))
        return EagerGraph(*graph)(arguments)

    return run
