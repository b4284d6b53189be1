"""Options of the backend: ``torch.compile(model, backend="inkle", options={...})``."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping

from inkle import _inkle


@dataclasses.dataclass
class Options:
    """What a user may ask for; each is a key of ``options``."""

    freeze: bool = False
    """Weights become constants: folded and packed for inference."""
    strict: bool = False
    """A graph that cannot be compiled raises instead of running in eager."""
    numerics: str = "eager"
    """"eager" keeps the rounding after each op in f16 and bf16, "fast" drops those inside kernels."""
    random: str = "fast"
    """"eager" draws the same random numbers as eager does."""
    partition: str = "auto"
    """In training, what the forward keeps for the backward: "own" computes again what is faster to
    compute than to keep, "smallest" whatever may be where that keeps fewer bytes, "default" is
    AOTAutograd's own partition; "auto" is "own"."""
    fail_stage: str = ""
    """For tests: the stage of this name fails ("run": each call does). "codegen/PASS": that kernel
    pass fails; "codegen/PASS/wrong": it makes a kernel that does not verify."""
    graphs: bool = False
    """On a GPU, calls of equal shapes are recorded once and replayed (mode "reduce-overhead"); in
    inference."""
    cache: bool = True
    """Machine code of earlier processes is taken from the user's cache, and left there."""
    tune: bool = False
    """On a GPU, schedules of kernels are measured (modes "max-autotune...")."""
    dump: Callable[[str, str], None] | None = None
    """Called with the name and the text of each stage."""


_PASSES = dict.fromkeys(_inkle.kernel_passes(gpu=False) + _inkle.kernel_passes(gpu=True))
_STAGES = (
    *("", "frontend", "passes", "lower", "schedule", "codegen", "run"),
    *(f"codegen/{name}{wrong}" for name in _PASSES for wrong in ("", "/wrong")),
)
_CHOICES = {
    "numerics": ("eager", "fast"),
    "random": ("eager", "fast"),
    "partition": ("auto", "own", "smallest", "default"),
    "fail_stage": _STAGES,
}

# What `graphs` says of training.
WHY_NO_GRAPHS_IN_TRAINING = "in training, what is kept for the backward would have to stay where it lies"
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def parse(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """Checks ``mode`` and ``options``; ValueError names what is wrong and what is allowed."""
    if mode not in _MODES:
        raise ValueError(f"inkle: unknown mode {mode!r}; one of {', '.join(map(str, _MODES))}")
    known = {field.name for field in dataclasses.fields(Options)}
    for key in options or {}:
        if key not in known:
            raise ValueError(f"inkle: unknown option {key!r}; one of {', '.join(sorted(known))}")
    result = Options(**(options or {}))
    if mode in ("reduce-overhead", "max-autotune") and "graphs" not in (options or {}):
        result.graphs = True
    if mode is not None and mode.startswith("max-autotune") and "tune" not in (options or {}):
        result.tune = True
    for key in ("freeze", "strict", "graphs", "tune", "cache"):
        if not isinstance(getattr(result, key), bool):
            raise ValueError(f"inkle: option {key}={getattr(result, key)!r}; one of True, False")
    for key, choices in _CHOICES.items():
        if getattr(result, key) not in choices:
            raise ValueError(
                f"inkle: option {key}={getattr(result, key)!r}; one of {', '.join(map(repr, choices))}"
            )
    return result
