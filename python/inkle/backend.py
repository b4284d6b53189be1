"""The backend of torch.compile: what Dynamo calls, and what it falls back to."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import time
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
from torch._dynamo.exc import RestartAnalysis, SkipFrame
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

from inkle import _inkle, aot_cache, attention, dropout, extensions, inductor_options, joint, layouts
from inkle import loss, machine
from inkle import report as reporting
from inkle import pair, restrided, returned, segments
from inkle.importer import GraphImporter, nodes_of
from inkle.machine import get_compiler, gpu_of, gpus_of, native_options, warm_up
from inkle.options import WHY_NO_GRAPHS_IN_TRAINING, Options, parse
from inkle.report import Failure, GraphReport, add, fault_of, reports, warn
from inkle.returned import Callers, by_result

__all__ = ["GraphReport", "inkle", "reports", "reset"]


def reset() -> None:
    """Forgets reports and warnings, and all compiled kernels."""
    reporting.forget()
    machine.forget()


@dataclasses.dataclass(frozen=True)
class Strides:
    """Of arguments and results of a graph, by position, where they are not those that FX states."""

    arguments: dict[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    results: dict[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)


NO_STRIDES = Strides()

# Looks at each compiled graph and its calls, while ``bisect.py`` runs a script.
watch: Any = None


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
    one warning (or an exception with ``options={"strict": True}``): also all of ``gm``, where
    AOTAutograd raises. UserError: options or settings that there are not.
    """
    parsed = parse(mode, options)
    if watch is not None:
        parsed = watch.options(parsed)
    machine.check_settings()
    aot_cache.check_saved(parsed)
    label = name or "graph"
    failure = Failure("replacement")
    as_given = copy.deepcopy(gm.graph)
    try:
        extensions.before_autograd(gm, parsed)
        _replace(gm, parsed)
        warm_up(gm, example_inputs)
        failure.stage = _AOT
        with _no_collection():
            return _through_aot(gm, example_inputs, label, parsed)
    except (RestartAnalysis, SkipFrame):
        raise  # Dynamo's own ways
    except Exception as error:  # noqa: BLE001: whatever happens in here, the user's program runs
        report = GraphReport(label)
        add(report)
        plain = torch.fx.GraphModule(gm, as_given)
        _tell(plain, report, parsed, error, failure)
        return aot_cache.in_eager(plain)


# The stage in which nothing raises but AOTAutograd: what Inkle does for it has exceptions of its own.
_AOT = "AOTAutograd"


def _replace(gm: torch.fx.GraphModule, options: Options) -> None:
    """Ops of a Dynamo graph of which there are better ones, in place."""
    dropout.leave_out(gm)
    if options.numerics == "bitwise":
        return  # those below have other bits than eager
    attention.replace(gm, options.random)
    loss.replace(gm)
    if options.random == "fast":
        dropout.replace(gm)


def _through_aot(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], label: str, options: Options
) -> Callable[..., Any]:
    given = list(example_inputs)

    def compile_inference(g: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        extensions.over_inference(g, options)
        restrided.correct(g)
        callers = returned.forward_callers()
        return compile_graph(g, label, options, training=False, given=given, callers=callers)

    def compile_forward(g: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        extensions.over_half(g, options)
        saved, callers = Strides(results=layouts.saved_strides(g)), returned.saving_callers()
        return compile_graph(g, label, options, training=True, strides=saved, callers=callers)

    def compile_backward(g: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        extensions.over_half(g, options)
        saved = Strides(arguments=layouts.argument_strides(g, inputs))
        callers = returned.BACKWARD
        compiled = compile_graph(g, label, options, training=True, strides=saved, callers=callers)
        if isinstance(compiled, _inkle.TorchCallable) and gpu_of(g) is not None:
            made = [r for r in reports() if r.callable is compiled]
            compiled.donates_arguments = all(r.is_foreseen for r in made)
        return compiled

    key = aot_cache.identity(example_inputs, options)

    def compiler(compile_one: aot_cache.Compiler, training: bool) -> aot_cache.Compiler:
        made = _or_eager(compile_one, label, options, training, bool(key))
        return aot_cache.serializable(made, key)

    with aot_cache.kept(gm, key):
        return aot_module_simplified(
            gm,
            example_inputs,
            fw_compiler=compiler(compile_forward, training=True),
            bw_compiler=compiler(compile_backward, training=True),
            inference_compiler=compiler(compile_inference, training=False),
            partition_fn=extensions.partition_function(pair.Partition(label, options), options),
            keep_inference_input_mutations=True,
        )


def _or_eager(
    compile_one: Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]],
    label: str,
    options: Options,
    training: bool,
    is_kept: bool,
) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
    """``compile_one`` for AOTAutograd, which keeps the program; a graph for which it raises runs in
    eager."""

    def compile_or_fall_back(
        g: torch.fx.GraphModule, inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        inductor_options.tell_without_effect(options.asked, bool(gpus_of(g)), training)
        try:
            compiled = compile_one(g, inputs)
            return _keep(compiled, g, options, training) if is_kept else compiled
        except Exception as error:  # noqa: BLE001
            report = GraphReport(label)
            add(report)
            _tell(g, report, options, error, Failure())

        def run(args: list[Any]) -> Any:
            # What a compiled forward has kept may lie otherwise than this graph was traced with.
            given = list(layouts.as_traced(g, args, layouts.argument_strides(g, args)))
            args.clear()
            return g.forward(*given)

        run._boxed_call = True
        return aot_cache.never_kept(run, label) if is_kept else run

    return compile_or_fall_back


def _keep(compiled: Any, gm: torch.fx.GraphModule, options: Options, training: bool) -> Any:
    """``compiled``, which AOTAutograd keeps if that program is all there is to the graph."""
    made = [r for r in reports() if r.callable is compiled]
    if not isinstance(compiled, _inkle.TorchCallable) or len(made) != 1 or options.freeze:
        return aot_cache.never_kept(compiled, made[0].name if made else "a graph")
    graphs = compiled.graphs
    return aot_cache.keep(
        compiled,
        aot_cache.State(
            name=made[0].name,
            gpu=gpu_of(gm),
            falls_back=compiled.falls_back,
            writes_in_eager=compiled.writes_in_eager,
            eager=made[0].eager,
            calls=compiled.calls,
            donates_arguments=compiled.donates_arguments,
            share=compiled.share,
            repeats=compiled.repeats,
            view_of=compiled.view_of,
            apart=compiled.apart,
            conditions=compiled.conditions,
            why_no_graphs=None if graphs is None else graphs[2],
            training=training,
            asked=options.asked,
        ),
    )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without the cyclic garbage collector: torch and the model's libraries are a million objects,
    and tracing makes so many more that each compilation looks at all of them several times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # What was made joins the old objects, without the look at each of them that the next
            # allocation would take (0.25 s for gpt2); the next full collection sees it.
            if gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _parameter_positions(gm: torch.fx.GraphModule) -> set[int]:
    """Placeholders that are weights: the same tensor from call to call, and not written here."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None) if context else None
    static = set(getattr(metadata, "static_input_indices", None) or [])
    written = set()
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node in gm.graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
            written.update(a for a in node.all_input_nodes)
    return {i for i, n in enumerate(placeholders) if i in static and n not in written}


def compile_graph(
    gm: torch.fx.GraphModule,
    name: str,
    options: Options,
    training: bool,
    given: Sequence[Any] = (),
    strides: Strides = NO_STRIDES,
    callers: Callers = Callers(),
) -> Callable[..., Any]:
    """An AOTAutograd graph -> a boxed callable: compiled, or eager with the reason reported.

    ``given``: the arguments that Dynamo traced with; the weights among them are what ``freeze``
    makes constants of.
    """
    if (compiled := joint.compiled_graph(gm)) is not None:
        return compiled
    parameters = set() if training else _parameter_positions(gm)
    if segments.must_split(gm):

        def compile_part(
            part: torch.fx.GraphModule, weights: set[int], of_part: Callers
        ) -> Callable[..., Any]:
            made = _compile_or_fall_back(
                part, name, options, training, weights, {}, callers=of_part
            )
            return _watched(made, part, options, training, weights, NO_STRIDES)

        return segments.compile_segments(gm, parameters, compile_part, callers)
    frozen: dict[int, torch.Tensor] = {}
    if options.freeze and not training:
        frozen = _frozen(gm, parameters, given)
    compiled = _compile_or_fall_back(
        gm, name, options, training, parameters, frozen, strides, callers
    )
    if frozen and isinstance(compiled, _inkle.TorchCallable):
        _hold_frozen(gm, name, options, parameters, frozen, compiled)
    return _watched(compiled, gm, options, training, parameters, strides)


def _watched(
    compiled: Callable[..., Any], gm: torch.fx.GraphModule, options: Options, training: bool,
    parameters: set[int], strides: Strides,
) -> Callable[..., Any]:  # fmt: skip
    if watch is None or not isinstance(compiled, _inkle.TorchCallable):
        return compiled
    return watch.watched(compiled, gm, options, training, parameters, strides)


def compile_alone(
    gm: torch.fx.GraphModule, options: Options, training: bool, parameters: set[int], strides: Strides
) -> Callable[..., Any]:
    """As ``compile_graph``, of a graph or a part of one that is looked at for itself."""
    return _compile_or_fall_back(gm, "case", options, training, parameters, {}, strides)


def _compile_or_fall_back(
    gm: torch.fx.GraphModule,
    name: str,
    options: Options,
    training: bool,
    parameters: set[int],
    frozen: dict[int, torch.Tensor],
    strides: Strides = NO_STRIDES,
    callers: Callers = Callers(),
) -> Callable[..., Any]:
    report = GraphReport(name)
    add(report)
    failure = Failure()
    try:
        compiled = _compile(
            gm, name, options, training, report, parameters, frozen, strides, callers, failure
        )
    except Exception as error:  # noqa: BLE001: whatever happens in here, the user's program runs
        return _fall_back(gm, report, options, strides, error, failure)
    report.compiled = True
    report.callable = compiled
    reporting.tell(report)
    compiled._boxed_call = True
    return compiled


def _frozen(
    gm: torch.fx.GraphModule, parameters: set[int], given: Sequence[Any]
) -> dict[int, torch.Tensor]:
    """The weights that may become constants, by position; none where positions do not agree."""
    values = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    if len(values) != len(given):
        return {}
    result = {}
    for i, (value, real) in enumerate(zip(values, given)):
        same_kind = isinstance(value, torch.Tensor) == isinstance(real, torch.Tensor)
        if not same_kind or (
            isinstance(real, torch.Tensor)
            and (value.dtype != real.dtype or value.dim() != real.dim())
        ):
            return {}
        is_plain = type(real) in (torch.Tensor, torch.nn.Parameter)
        if i in parameters and is_plain and real.layout == torch.strided:
            result[i] = real
    return result


# So many sets of weights are compiled for one graph (instances of a module share it); others run in
# eager.
_MAX_FROZEN_SETS = 8


def _hold_frozen(
    gm: torch.fx.GraphModule,
    name: str,
    options: Options,
    parameters: set[int],
    frozen: dict[int, torch.Tensor],
    first: Any,
) -> None:
    """Calls with other weights than those that became constants go to a callable of their own."""
    count = sum(1 for n in gm.graph.nodes if n.op == "placeholder")
    positions = sorted(frozen)
    made: dict[tuple[int, ...], Callable[..., Any]] = {}

    def hold(compiled: Any, weights: dict[int, torch.Tensor]) -> None:
        compiled.set_frozen([weights.get(i) for i in range(count)], other)
        made[tuple(id(weights[i]) for i in positions)] = compiled

    def other(args: list[Any]) -> Any:
        key = tuple(id(args[i]) for i in positions)
        run = made.get(key)
        if run is None and len(made) < _MAX_FROZEN_SETS:
            weights = {i: args[i] for i in positions}
            run = _compile_or_fall_back(gm, name, options, False, parameters, weights)
            if isinstance(run, _inkle.TorchCallable):
                hold(run, weights)
        return run(args) if run is not None else gm.forward(*args)

    hold(first, frozen)


def _compile(
    gm: torch.fx.GraphModule,
    name: str,
    options: Options,
    training: bool,
    report: GraphReport,
    parameters: set[int],
    frozen: dict[int, torch.Tensor],
    strides: Strides,
    callers: Callers,
    failure: Failure,
) -> Any:
    """Compiles; the nodes that the compiler does not support, which it names all at once, are left
    to eager in a second attempt, the last."""
    in_eager: dict[str, str] = {}
    while True:
        start = time.perf_counter()
        failure.stage = "frontend"
        walker = GraphImporter(
            gm, name, parameters, in_eager, frozen, strides.arguments, strides.results,
            own_random=options.random == "fast", callers=callers, numerics=options.numerics,
        )  # fmt: skip
        if options.fail_stage == "frontend":
            raise RuntimeError("made to fail by option fail_stage")
        try:
            walker.run()
        except Exception:
            failure.node = walker.current
            raise
        native = native_options(options, training, freeze=bool(frozen))
        frontend_seconds = time.perf_counter() - start
        report.frontend_seconds += frontend_seconds
        start = time.perf_counter()
        failure.stage = ""  # the message names it
        try:
            compiled, facts = get_compiler(gpu_of(gm)).compile(
                walker.importer, native, walker.targets, callers.share
            )
        except (_inkle.Unsupported, _inkle.UserError) as error:
            nodes = nodes_of(error, gm)
            if not nodes or in_eager:
                raise
            report.give_up(gm, nodes, frontend_seconds, time.perf_counter() - start)
            in_eager = nodes
            continue
        report.take(facts)
        report.eager = walker.importer.eager
        report.tell_numerics(options.numerics)
        compiled.calls = walker.calls(walker.importer.eager_targets)
        compiled.share = callers.share
        compiled.repeats = by_result(walker.repeats)
        compiled.set_repeats(compiled.repeats)
        compiled.view_of, compiled.apart = by_result(walker.view_of), walker.apart
        compiled.set_views(compiled.view_of, compiled.apart)
        compiled.conditions = walker.conditions
        compiled.set_conditions(compiled.conditions)
        compiled.falls_back = not options.strict
        compiled.writes_in_eager = walker.writes_in_eager
        if compiled.falls_back:
            compiled.set_fallback(_at_run_time(gm, report, strides), compiled.writes_in_eager)
        compiled.fails = options.fail_stage == "run"
        if options.graphs:
            compiled.use_graphs(why_not=_why_no_graphs(training, walker.writes_in_eager))
        layouts.report(gm, walker.output_strides)
        return compiled


def _why_no_graphs(training: bool, writes_in_eager: bool) -> str:
    """Why calls are never captured as CUDA graphs, or ""."""
    if training:
        return WHY_NO_GRAPHS_IN_TRAINING
    return "an op in eager writes to memory that it is given" if writes_in_eager else ""


def _at_run_time(
    gm: torch.fx.GraphModule, report: GraphReport, strides: Strides
) -> Callable[[list[Any], str, bool], Any]:
    """What runs instead of a call that failed before it wrote anything."""

    def run(args: list[Any], message: str, is_fault: bool) -> Any:
        report.call_failed(message, is_fault)
        kind = "a fault at run time" if is_fault else "not supported"
        warn(gm, report, "a call runs in eager", kind, message, Failure("run"))
        with torch._C._DisableAutocast():
            return gm.forward(*layouts.as_traced(gm, args, strides.arguments))

    return run


def _fall_back(
    gm: torch.fx.GraphModule,
    report: GraphReport,
    options: Options,
    strides: Strides,
    error: Exception,
    failure: Failure,
) -> Callable[..., Any]:
    _tell(gm, report, options, error, failure)
    if not strides.arguments:
        return make_boxed_func(gm.forward)

    def run(args: list[Any]) -> Any:
        given = layouts.as_traced(gm, args, strides.arguments)
        args.clear()
        return gm.forward(*given)

    run._boxed_call = True
    return run


def _tell(
    gm: torch.fx.GraphModule,
    report: GraphReport,
    options: Options,
    error: Exception,
    failure: Failure,
) -> None:
    """That all of a graph runs in eager; with ``strict`` raises ``error``."""
    report.reason = str(error)
    if options.strict:
        raise error
    kind, message = fault_of(error)
    if failure.stage == _AOT and kind != reporting.FAULT_OF_USER:
        kind = reporting.NOT_SUPPORTED
    if kind not in (reporting.NOT_SUPPORTED, reporting.FAULT_OF_USER):
        report.fault = report.reason
    reporting.tell(report)
    warn(gm, report, "a graph runs in eager", kind, message, failure)
