"""Options of the backend: ``torch.compile(model, backend="inkle", options={...})``."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Sequence

from inkle import _inkle, inductor_options


@dataclasses.dataclass
class Options:
    """What a user may ask for; each is a key of ``options``."""

    freeze: bool = False
    """Weights become constants: folded and packed for inference."""
    strict: bool = False
    """A graph that cannot be compiled raises instead of running in eager."""
    numerics: str = "eager"
    """Whose bits results have (docs/numerics.md): "eager" rounds after each op in f16 and bf16, "fast"
    only where a kernel ends; "bitwise" has eager's bits, "batch_invariant" the same ones for a row
    whatever the batch around it."""
    random: str = "fast"
    """"eager" draws the same random numbers as eager does."""
    partition: str = "auto"
    """In training, what the forward saves for the backward: "own" recomputes what is faster to
    recompute than to save, "smallest" all that saves fewer bytes that way, "default" is
    AOTAutograd's own partition; "auto" is "own"."""
    fail_stage: str = ""
    """For tests: the stage of this name fails ("run": each call does). "codegen/PASS": that kernel
    pass fails; "codegen/PASS/wrong": it makes a kernel that does not verify. "passes/PASS/miscompile",
    "schedule/PASS/miscompile" and "codegen/PASS/miscompile": a pass makes another program."""
    graphs: bool = False
    """On a GPU, calls of equal shapes are captured once and replayed (mode "reduce-overhead"); in
    inference."""
    cache: bool = True
    """Machine code of earlier processes is taken from the user's cache, and left there."""
    tune: bool = False
    """On a GPU, schedules of kernels are measured (modes "max-autotune...")."""
    pass_limit: int | None = None
    """For bisection: of the passes that may be left out, over graphs, nests and kernels, only the
    first, so many, run."""
    dump: Callable[[str, str], None] | None = None
    """Called with the name and the text of each stage."""
    debug: bool = False
    """The texts of each stage go to torch's debug directory (TORCH_COMPILE_DEBUG=1)."""
    deterministic: bool = False
    """The same results in each run on the same machine; also where torch asks for it
    (torch.use_deterministic_algorithms)."""
    pre_grad_pass: Sequence[Callable[..., Any]] = ()
    """Called with Dynamo's graph (torch.fx.Graph), which they change in place: one or a list."""
    joint_pass: Sequence[Callable[..., Any]] = ()
    """The same for the joint graph of forward and backward, in inference the graph alone."""
    post_grad_pass: Sequence[Callable[..., Any]] = ()
    """The same for forward, backward and inference graphs; AOTAutograd partitions the joint graph."""
    patterns: Sequence[tuple[Callable[..., Any], ...]] = ()
    """Pairs of functions (search, replacement), with a third one that looks at each match."""
    partitioner: Callable[..., Any] | None = None
    """Partitions the joint graph, as a ``partition_fn`` of AOTAutograd."""
    asked: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """No key: what modes and keys of TorchInductor's turn on (``inductor_options.turned_on``)."""


_PASSES = dict.fromkeys(_inkle.kernel_passes(gpu=False) + _inkle.kernel_passes(gpu=True))
_STAGES = (
    *("", "frontend", "passes", "lower", "schedule", "codegen", "run"),
    *(f"codegen/{name}{wrong}" for name in _PASSES for wrong in ("", "/wrong", "/miscompile")),
    *(f"passes/{name}/miscompile" for name in _inkle.graph_passes()),
    *(f"schedule/{name}{wrong}" for name in _inkle.nest_passes() for wrong in ("", "/miscompile")),
)
_CHOICES = {
    "numerics": _inkle.NUMERICS,
    "random": ("eager", "fast"),
    "partition": ("auto", "own", "smallest", "default"),
    "fail_stage": _STAGES,
}

# What `graphs` says of training.
WHY_NO_GRAPHS_IN_TRAINING = "in training, tensors saved for the backward would need fixed addresses"
_FLAGS = ("freeze", "strict", "graphs", "tune", "cache", "debug", "deterministic")
_PASSES_OF_USERS = ("pre_grad_pass", "joint_pass", "post_grad_pass")
_OWN = frozenset(field.name for field in dataclasses.fields(Options)) - {"asked"}


def parse(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """Checks ``mode`` and ``options``; ValueError names what is wrong and what is allowed."""
    asked = inductor_options.translate(options or {}, _OWN)
    inductor_options.of_config(asked)
    result = Options(**{**inductor_options.of_mode(mode), **asked})
    if result.numerics == "bitwise" and "random" not in asked:
        result.random = "eager"
    if result.numerics == "batch_invariant":
        result.deterministic = asked.get("deterministic", True)
    for key in _FLAGS:
        if not isinstance(getattr(result, key), bool):
            raise ValueError(f"inkle: option {key}={getattr(result, key)!r}; one of True, False")
    limit = result.pass_limit
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ValueError(f"inkle: option pass_limit={limit!r}; a number from 0 on, or None")
    for key, choices in _CHOICES.items():
        if getattr(result, key) not in choices:
            raise ValueError(
                f"inkle: option {key}={getattr(result, key)!r}; one of {', '.join(map(repr, choices))}"
            )
    for key in _PASSES_OF_USERS:
        given = getattr(result, key)
        given = tuple(given) if isinstance(given, (list, tuple)) else (given,)
        if not all(callable(one) for one in given):
            raise ValueError(f"inkle: option {key}={given!r}; one of a function or a list of them")
        setattr(result, key, given)
    if result.partitioner is not None and not callable(result.partitioner):
        raise ValueError(f"inkle: option partitioner={result.partitioner!r}; one of None, a function")
    result.patterns = tuple(map(tuple, result.patterns))
    if not all(len(p) in (2, 3) and all(map(callable, p)) for p in result.patterns):
        raise ValueError("inkle: option patterns; one of a list of (search, replacement)")
    result.asked = inductor_options.turned_on(mode, options or {}, _OWN, result)
    return result
