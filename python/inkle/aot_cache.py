"""Compiled graphs in AOTAutograd's cache: a later process skips all that lies below Dynamo.

AOTAutograd keeps the results of compilers that are an ``OutputCode``, by a hash of Dynamo's graph,
of the arguments and of torch's settings; ``torch.compiler.save_cache_artifacts`` carries them to
other machines. What else a program depends on is made part of that hash here.

``torch.compile(...).aot_compile`` makes files of the same results, with Dynamo's code and guards
(``is_saved``), and so does torch's ``caching_precompile``.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import hashlib
import pathlib
import pickle
import uuid
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
from torch._functorch import aot_autograd, config as functorch_config
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import config as inductor_config
from torch._inductor.codecache import BypassFxGraphCache, FxGraphCache
from torch._inductor.output_code import OutputCode

from inkle import _inkle, dumps, extensions, inductor_options, report as reporting
from inkle.eager_calls import MissingOp, OpCall
from inkle.eager_graph import EagerGraph, Results
from inkle.machine import as_strided, get_compiler, native_options
from inkle.options import Options

Compiler = Callable[[torch.fx.GraphModule, Sequence[Any]], Any]

_SERIALIZABLE = getattr(aot_autograd, "SerializableAOTDispatchCompiler", None)
_DETAILS = autograd_cache.AOTAutogradCacheDetails
# With an earlier torch (2.11) keys take two seconds, more than a graph takes without them: nothing
# is kept there.
HAS_SHORT_KEYS = _SERIALIZABLE is not None and hasattr(_DETAILS, "_init_fx_graph_hash_details")
_SETTINGS = ("enable_autograd_cache", "bundled_autograd_cache")
# Dynamo's graph has it as an attribute, which AOTAutograd hashes.
_IDENTITY = "_inkle_identity"


@functools.cache
def _sources() -> str:
    """A hash of this package's code, which decides what the compiler is given."""
    folder = pathlib.Path(__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_saved() -> bool:
    """Whether torch makes a file of what is compiled now: ``torch.compile(...).aot_compile``."""
    return bool(getattr(functorch_config, "force_autograd_cache", False))


# Identities that no other compilation has: the program goes to a file, and to no cache.
_FILE_ALONE = "file "


def identity(inputs: Sequence[Any], options: Options) -> str:
    """All that programs for these arguments depend on beside their graph; empty: none is kept."""
    name = _identity(inputs, options)
    return name or (_FILE_ALONE + uuid.uuid4().hex if is_saved() else "")


def _identity(inputs: Sequence[Any], options: Options) -> str:
    shows = options.dump or dumps.is_on(options)
    kept = options.cache and not (options.freeze or options.fail_stage or shows)
    known = HAS_SHORT_KEYS and all(hasattr(functorch_config, s) for s in _SETTINGS)
    if not kept or not known or not functorch_config.enable_autograd_cache:
        return ""
    if (of_users := extensions.uuid(options)) is None:
        return ""
    gpus = {t.device.index or 0 for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda}
    if len(gpus) > 1:
        return ""
    # Forward and backward differ in options, and are told apart by AOTAutograd.
    compiler = get_compiler(next(iter(gpus), None))
    made_by = compiler.identity(native_options(options, training=False))
    asked = {
        f.name: value
        for f in dataclasses.fields(options)
        if isinstance(value := getattr(options, f.name), (bool, str))
    }
    return made_by and f"{made_by}{_sources()}\n{asked}\n{options.asked}\n{of_users}"


@contextlib.contextmanager
def kept(gm: torch.fx.GraphModule, name: str) -> Iterator[None]:
    """AOTAutograd keeps whole programs meanwhile, ``name`` being part of their keys."""
    if not name:
        yield
        return
    setattr(gm, _IDENTITY, name)
    # The backward is compiled at once, as it is kept with its forward.
    settings = {"bundled_autograd_cache": True}
    if hasattr(functorch_config, "force_non_lazy_backward_lowering"):
        settings["force_non_lazy_backward_lowering"] = True
    with contextlib.ExitStack() as stack:
        if name.startswith(_FILE_ALONE):
            stack.enter_context(_unwritten())
        stack.enter_context(functorch_config.patch(settings))
        stack.enter_context(_own_functions())
        if HAS_SHORT_KEYS:
            stack.enter_context(_short_keys())
        yield


@contextlib.contextmanager
def _unwritten() -> Iterator[None]:
    """AOTAutograd's cache makes what is saved, also where it is off, and gets no file of its own.
    Dynamo compiles on one thread at a time."""
    cache = autograd_cache.AOTAutogradCache
    write, is_on = cache._write_to_local_cache, aot_autograd.should_use_local_autograd_cache
    cache._write_to_local_cache = staticmethod(lambda key, content: None)
    aot_autograd.should_use_local_autograd_cache = lambda: True
    try:
        yield
    finally:
        cache._write_to_local_cache = staticmethod(write)
        aot_autograd.should_use_local_autograd_cache = is_on


# Calls of these replace calls of torch's in Dynamo's graphs. What they do is part of the key:
# ``_sources``.
_OWN_FUNCTIONS = ("inkle.attend.differentiable", "inkle.loss.cross_entropy")


def _own_functions() -> contextlib.AbstractContextManager[Any]:
    """AOTAutograd keeps graphs that call functions of ours."""
    marked = inductor_config.unsafe_marked_cacheable_functions
    ours = dict.fromkeys(_OWN_FUNCTIONS, "inkle")
    return inductor_config.patch(unsafe_marked_cacheable_functions={**marked, **ours})


class Details(_DETAILS):
    """What AOTAutograd hashes, but for what TorchInductor's programs depend on: its settings,
    sources, templates and Triton, which take a second to look at."""

    def _init_fx_graph_hash_details(
        self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], fx_config: Any
    ) -> None:
        try:
            FxGraphCache._check_can_cache(gm, example_inputs, fx_config)
        except BypassFxGraphCache as error:
            raise autograd_cache.BypassAOTAutogradCache(str(error)) from error
        self.gm, self.example_inputs = gm, list(example_inputs)
        self.torch = torch.__version__, torch.version.git_version
        self.tag = torch.compiler.config.cache_key_tag
        self.default = torch.get_default_dtype(), str(torch.get_default_device())
        self.fills = torch.utils.deterministic.fill_uninitialized_memory
        matmul = torch.backends.cuda.matmul
        self.products = (
            matmul.allow_tf32,
            matmul.allow_fp16_reduced_precision_reduction,
            matmul.allow_bf16_reduced_precision_reduction,
            torch.backends.cudnn.allow_tf32,
            torch.backends.mkldnn.enabled,
        )
        if torch.cuda.is_available():
            self.gpu = torch.cuda.current_device()


@contextlib.contextmanager
def _short_keys() -> Iterator[None]:
    """Keys of ``Details``. Dynamo compiles on one thread at a time."""
    autograd_cache.AOTAutogradCacheDetails = Details
    try:
        yield
    finally:
        autograd_cache.AOTAutogradCacheDetails = _DETAILS


def in_eager(gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """What runs Dynamo's graph in eager, which can be saved where that is asked for."""
    if not is_saved():
        return gm.forward
    from torch._dynamo.aot_compile_types import GraphModuleSerializableCallable

    return GraphModuleSerializableCallable(gm)


def check_saved(options: Options) -> None:
    """UserError for options that what is saved cannot have."""
    if options.freeze and is_saved():
        raise _inkle.UserError(
            "inkle: a program that is compiled with freeze=True cannot be saved: the module that it "
            "is loaded for may have other weights"
        )


def serializable(compile_one: Compiler, name: str) -> Compiler:
    """``compile_one`` as AOTAutograd wants compilers whose results it keeps."""
    if not name:
        return compile_one
    return _SERIALIZABLE(StoredProgram, compile_one)


@dataclasses.dataclass
class State:
    """What a restored program is told beside its bytes."""

    name: str
    gpu: int | None
    # A call that fails runs the graph in eager.
    falls_back: bool = True
    # But not once steps have begun, which write to arguments in eager.
    writes_in_eager: bool = False
    # As reports have it: what is left to PyTorch, and why.
    eager: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    # What is called there, by number.
    calls: dict[int, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    donates_arguments: bool = False
    # Makes a result in the memory of another.
    share: Callable[..., Any] = as_strided
    # Which results are the very same tensor as an earlier one, as set_repeats() takes it.
    repeats: list[int] = dataclasses.field(default_factory=list)
    # What results are views of to autograd, and which are not what made their memory, as set_views() takes it.
    view_of: list[int] = dataclasses.field(default_factory=list)
    apart: list[int] = dataclasses.field(default_factory=list)
    # Which integer results are bools, as set_conditions() takes it.
    conditions: list[int] = dataclasses.field(default_factory=list)
    # Why calls are never captured as CUDA graphs; None: that was not asked for.
    why_no_graphs: str | None = None
    training: bool = False
    # As of ``Options``: told once in each process.
    asked: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


class NotRestored(getattr(autograd_cache, "FXGraphCacheMiss", RuntimeError)):
    """A stored program is damaged, of another build or machine, or calls an op that is not there."""


def _why_not_kept(call: Any) -> str | None:
    try:
        pickle.dumps(call)
    except Exception as error:  # noqa: BLE001: constants of ops are of any type
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def _targets(calls: dict[int, Callable[..., Any]]) -> list[Any]:
    """The table of callables of a program; None for nodes that it computes itself."""
    return [calls.get(number) for number in range(max(calls, default=-1) + 1)]


def keep(program: Any, state: State) -> Any:
    """The program, which AOTAutograd keeps."""
    program.__wrapped__ = StoredProgram(state, program)
    return program


def never_kept(run: Callable[[list[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    """What runs a graph in another way; AOTAutograd is told so as late as it asks."""

    def call(arguments: list[Any]) -> Any:
        return run(arguments)

    call._boxed_call = True
    call.__wrapped__ = StoredProgram(State(name, None))
    return call


class StoredProgram(OutputCode):
    """A program as AOTAutograd keeps it: bytes; or restored, to be called.

    ``__call__`` is a slot that holds the ``_inkle.TorchCallable``, so that calls go there without
    another frame.
    """

    __slots__ = ("__call__", "_restored")

    def __init__(self, state: State, program: Any = None, stored: bytes = b""):
        self.state, self.stored = state, stored
        self._restored: tuple[Any, dict[str, Any], str] | None = None
        self._boxed_call = True  # of the object: wrappers copy its attributes
        if program is not None:
            self.__call__ = program

    def __copy__(self) -> StoredProgram:
        return StoredProgram(self.state, getattr(self, "__call__", None), self.stored)

    def __deepcopy__(self, memo: dict[int, Any]) -> StoredProgram:
        return StoredProgram(copy.deepcopy(self.state, memo), None, self.stored)

    def __getstate__(self) -> dict[str, Any]:
        return {"state": self.state, "stored": self.stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)
        if getattr(torch._dynamo.config, "caching_precompile", False):
            # Later Dynamo would not take an error for a miss.
            self._restored = self._restore()

    def prepare_for_serialization(self) -> None:
        """Raises BypassAOTAutogradCache for a program that cannot be kept."""
        program = getattr(self, "__call__", None)
        if not self.stored and isinstance(program, _inkle.TorchCallable):
            self.stored = program.stored(is_saved()) or b""
        if not self.stored:
            raise autograd_cache.BypassAOTAutogradCache(f"inkle: {self.state.name} is not one program")
        for number, call in self.state.calls.items():
            if (why := _why_not_kept(call)) is not None:
                op = getattr(call, "name", f"call {number}")
                raise autograd_cache.BypassAOTAutogradCache(f"inkle: {op} cannot be stored: {why}")
        del self.__call__

    def post_compile(
        self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any
    ) -> None:
        """Raises NotRestored, which AOTAutograd takes for a miss."""
        state = self.state
        program, facts, graph = self._restored or self._restore()
        self._restored = None
        report = reporting.GraphReport(state.name)
        reporting.add(report)
        report.take(facts)
        report.eager = list(state.eager)
        report.compiled, report.callable = True, program
        reporting.tell(report)
        inductor_options.tell_without_effect(state.asked, state.gpu is not None, state.training)
        program._boxed_call = True
        program.donates_arguments = state.donates_arguments
        program.set_repeats(state.repeats)
        program.set_views(state.view_of, state.apart)
        program.set_conditions(state.conditions)
        if state.falls_back and graph:
            targets = _targets(state.calls)
            run = _at_run_time(graph, report, targets, Results.of(state))
            program.set_fallback(run, state.writes_in_eager)
        if state.why_no_graphs is not None:
            program.use_graphs(why_not=state.why_no_graphs)
        self.stored = b""
        self.__call__ = program

    def _restore(self) -> tuple[Any, dict[str, Any], str]:
        """The program, what is known of it, and its graph. Raises NotRestored."""
        state = self.state
        try:
            for call in state.calls.values():
                if isinstance(call, OpCall):
                    call.resolve()
            compiler = get_compiler(state.gpu)
            return compiler.restore(self.stored, _targets(state.calls), state.share)
        except (MissingOp, _inkle.UserError, _inkle.Unsupported) as error:
            raise NotRestored(f"inkle: {state.name} cannot be used here: {error}") from error


def _at_run_time(
    graph: str, report: reporting.GraphReport, targets: list[Any], told: Results
) -> Callable[[list[Any], str, bool], Any]:
    """What runs instead of a call that failed before it wrote anything."""

    def run(arguments: list[Any], message: str, is_fault: bool) -> Any:
        report.call_failed(message, is_fault)
        kind = "a fault at run time" if is_fault else "not supported"
        failure = reporting.Failure("run")
        reporting.warn(None, report, "a call runs in eager", kind, message, failure)
        return EagerGraph(_inkle.Partition.of_text(graph), False, targets, told)(arguments)

    return run
