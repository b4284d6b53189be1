"""TorchInductor's option keys and modes, for those who come from it: what Inkle has is mapped, the
rest is accepted with one line of log. So is what is mapped to an option that has no effect in a graph.
``docs/from-inductor.md`` has the table."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import logging
import threading
from typing import Any, Mapping, Sequence

import torch._inductor
from torch._inductor import config as inductor_config

_log = logging.getLogger("inkle")
_lock = threading.Lock()
_told: set[str] = set()  # keys and modes without effect that this process was told of


@dataclasses.dataclass(frozen=True)
class Mapped:
    """A key that sets an option of Inkle's."""

    option: str
    # What its values mean there; None: any value, as it is.
    values: Mapping[Any, Any] | None = None
    # For the table of the documentation: what is not the same.
    note: str = ""
    # Any other key of the option wins.
    yields: bool = False


_FLAG = {False: False, True: True}
_RANDOM = {False: "fast", True: "eager"}
# Values of TorchInductor's `numerics`; the key is one of Inkle's, too.
_NUMERICS = {
    "default": "eager",
    "strict": "bitwise",
    "strict_pointwise": "bitwise",
    "strict_reduction": "bitwise",
}

MAPPED = {
    "batch_invariant": Mapped(
        "numerics", {False: None, True: "batch_invariant"}, "on a CPU; with `deterministic`"
    ),
    "coordinate_descent_tuning": Mapped("tune", _FLAG, "on a GPU"),
    "custom_partitioner_fn": Mapped("partitioner"),
    "debug": Mapped("debug", _FLAG),
    "deterministic": Mapped("deterministic", _FLAG),
    "emulate_precision_casts": Mapped(
        "numerics", {False: None, True: "eager"}, "the default", yields=True
    ),
    "fallback_random": Mapped("random", _RANDOM),
    "align_random_eager": Mapped("random", _RANDOM),
    "force_disable_caches": Mapped("cache", {False: None, True: False}),
    "freezing": Mapped("freeze", _FLAG, "in inference"),
    "fx_graph_cache": Mapped("cache", _FLAG),
    "joint_custom_post_pass": Mapped("joint_pass", note="after `joint_custom_pre_pass`"),
    "joint_custom_pre_pass": Mapped("joint_pass"),
    "max_autotune": Mapped("tune", _FLAG, "on a GPU"),
    "max_autotune_pointwise": Mapped("tune", _FLAG, "on a GPU"),
    "numerics": Mapped("numerics", _NUMERICS, "or a value of Inkle's own"),
    "post_grad_custom_post_pass": Mapped("post_grad_pass", note="after `post_grad_custom_pre_pass`"),
    "post_grad_custom_pre_pass": Mapped("post_grad_pass"),
    "pre_grad_custom_pass": Mapped("pre_grad_pass"),
    "trace.enabled": Mapped("debug", _FLAG),
    "triton.cudagraphs": Mapped("graphs", _FLAG, "in inference, on a GPU"),
}


@dataclasses.dataclass(frozen=True)
class Conditional:
    """Where an option of Inkle's, on, has an effect."""

    gpu_only: bool = False
    inference_only: bool = False

    def is_void(self, on_gpu: bool, training: bool) -> bool:
        return (self.gpu_only and not on_gpu) or (self.inference_only and training)


_CONDITIONAL = {
    "freeze": Conditional(inference_only=True),
    "graphs": Conditional(gpu_only=True, inference_only=True),
    "tune": Conditional(gpu_only=True),
}
# Passes of several keys are joined in this order.
PASS_KEYS = {
    "pre_grad_pass": ("pre_grad_custom_pass",),
    "joint_pass": ("joint_custom_pre_pass", "joint_custom_post_pass"),
    "post_grad_pass": ("post_grad_custom_pre_pass", "post_grad_custom_post_pass"),
}
# Options of Inkle's that each mode sets; those that are not here have no effect.
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"graphs": True},
    "max-autotune": {"graphs": True, "tune": True},
    "max-autotune-no-cudagraphs": {"tune": True},
}


@functools.cache
def keys() -> frozenset[str]:
    """All that TorchInductor of this torch takes, and what there is a mapping for."""
    return frozenset(torch._inductor.list_options()) | MAPPED.keys()


@functools.cache
def modes() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*MODES, *torch._inductor.list_mode_options())))


def of_mode(mode: str | None) -> dict[str, Any]:
    """ValueError names the modes there are."""
    if mode is None:
        return {}
    if mode not in MODES:
        if mode not in modes():
            raise ValueError(f"inkle: unknown mode {mode!r}; one of None, {', '.join(modes())}")
        _has_no_effect(f"mode {mode!r}")
    return dict(MODES.get(mode, {}))


def translate(options: Mapping[str, Any], own: frozenset[str]) -> dict[str, Any]:
    """``options`` with the keys of Inkle alone, ``own``; these win over those that are mapped.

    ValueError: a key that neither has, or a value that a mapping does not know.
    """
    result: dict[str, Any] = {}
    passes: dict[str, Any] = {}
    for key, value in options.items():
        name = key.replace("-", "_") if isinstance(key, str) else key
        if name in own:
            continue
        if name not in keys():
            raise ValueError(_unknown(key, own))
        mapped = MAPPED.get(name)
        if mapped is None:
            _has_no_effect(f"option {name!r} of TorchInductor")
        elif mapped.option in PASS_KEYS:
            passes[name] = value
        else:
            _set(result, name, mapped, value)
    for option, names in PASS_KEYS.items():
        # Those of torch._inductor.config count, too, unless the key is given here.
        given = [passes.get(n, getattr(inductor_config, n, None)) for n in names]
        if any(p is not None for p in given):
            result[option] = [one for p in given for one in _as_list(p)]
    for key, value in options.items():
        name = key.replace("-", "_")
        if name in own:
            result[name] = [*_as_list(result.get(name)), *_as_list(value)] if name in PASS_KEYS else value
    if "numerics" in result:
        given = {key.replace("-", "_"): value for key, value in options.items()}
        _set_numerics(result, given.get("numerics"), given.get("batch_invariant", False))
    return result


def _set_numerics(result: dict[str, Any], value: Any, batch_invariant: bool) -> None:
    """``value`` is Inkle's or TorchInductor's; ValueError where the latter's contradict each other."""
    if not isinstance(value, str) or value not in _NUMERICS:
        return
    if not batch_invariant:
        result["numerics"] = _NUMERICS[value]
    elif value == "default":
        result["numerics"] = "batch_invariant"
    else:
        raise ValueError(
            f"inkle: options numerics={value!r} and batch_invariant=True; one of them, since "
            "eager's own results depend on the batch"
        )


def _set(result: dict[str, Any], key: str, mapped: Mapped, value: Any) -> None:
    """Where keys of one option disagree, the one that asks for something wins."""
    if mapped.values is not None:
        if not isinstance(value, bool):
            raise ValueError(f"inkle: option {key}={value!r}; one of True, False")
        if (meant := mapped.values[value]) is None:
            return
        if mapped.option in result and (mapped.yields or not value):
            return
        value = meant
    result[mapped.option] = value


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def of_config(result: dict[str, Any]) -> None:
    """What torch's own settings ask for, where no option says otherwise."""
    if getattr(inductor_config, "fallback_random", False):
        result.setdefault("random", "eager")
    if getattr(inductor_config, "batch_invariant", False):
        result.setdefault("numerics", "batch_invariant")
    elif (numerics := getattr(inductor_config, "numerics", "default")) != "default":
        result.setdefault("numerics", _NUMERICS.get(numerics, numerics))
    if (partitioner := getattr(inductor_config, "custom_partitioner_fn", None)) is not None:
        result.setdefault("partitioner", partitioner)
    if getattr(torch.compiler.config, "force_disable_caches", False):
        result.setdefault("cache", False)
    if inductor_config.trace.enabled:
        result.setdefault("debug", True)


def _unknown(key: Any, own: frozenset[str]) -> str:
    near = difflib.get_close_matches(str(key), sorted(own | keys()), n=1, cutoff=0.6)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    return (
        f"inkle: unknown option {key!r}{hint} one of {', '.join(sorted(own))}, or a key of "
        "torch._inductor.list_options()"
    )


def turned_on(
    mode: str | None, options: Mapping[str, Any], own: frozenset[str], result: Any
) -> dict[str, tuple[str, ...]]:
    """By mode and key of TorchInductor, which of ``_CONDITIONAL`` they turn on in ``result``, the
    options as parsed; without those that a key of Inkle's decides."""
    given = {key.replace("-", "_"): value for key, value in options.items()}
    left = [o for o in _CONDITIONAL if getattr(result, o) and not (o in own and o in given)]
    found: dict[str, tuple[str, ...]] = {}
    if of := tuple(o for o in left if MODES.get(mode or "default", {}).get(o)):
        found[f"mode {mode!r}"] = of
    for key, value in given.items():
        mapped = MAPPED.get(key)
        if mapped is not None and mapped.option in left and value is True:
            found[f"option {key!r} of TorchInductor"] = (mapped.option,)
    return found


def tell_without_effect(asked: Mapping[str, Sequence[str]], on_gpu: bool, training: bool) -> None:
    """One line for each of ``asked``, as ``turned_on`` gives them, with an option that has no effect
    in such a graph."""
    for what, options in asked.items():
        void = [o for o in options if _CONDITIONAL[o].is_void(on_gpu, training)]
        if void:
            where = "CPU" if not on_gpu and _CONDITIONAL[void[0]].gpu_only else "training"
            named = ", ".join(map(repr, void))
            _has_no_effect(what, f" (Inkle's {named})", f" in a {where} graph")


def _has_no_effect(what: str, meaning: str = "", where: str = "") -> None:
    with _lock:
        if what in _told:
            return
        _told.add(what)
    _log.warning("inkle: %s%s has no effect%s (docs/from-inductor.md)", what, meaning, where)


def table() -> str:
    """The mapping as the documentation has it."""
    rows = ["| key of TorchInductor | option of Inkle | |", "|---|---|---|"]
    for key, mapped in sorted(MAPPED.items()):
        rows.append(f"| `{key}` | {_meaning(mapped)} | {mapped.note} |")
    rows += ["", "| mode | options of Inkle |", "|---|---|"]
    for mode, options in MODES.items():
        named = ", ".join(f"`{name}`" for name in options)
        rows.append(f"| `{mode}` | {named or 'none'} |")
    rows.append("| `lite` | none, with a line of log |")
    return "\n".join(rows)


def _meaning(mapped: Mapped) -> str:
    if mapped.values in (None, _FLAG):
        return f"`{mapped.option}`"
    said = {given: meant for given, meant in mapped.values.items() if meant is not None}
    return ", ".join(f"`{given}`: `{mapped.option}={meant!r}`" for given, meant in said.items())
