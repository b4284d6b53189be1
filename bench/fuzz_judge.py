"""What a random function (``fuzz_draw.py``) gives compiled and in eager, compared (``fuzz.py``).

Results, their strides, which of them and of the arguments share memory, the arguments afterwards, gradients
and the state of torch's random numbers must be eager's; then each result is written to, and all are compared
again. An element may be off by what eager's own moves, once each value on its way is off by its last bit. What
differs and AOTAutograd gives without a compiler in the same values, or raises with the same text in the same
call, is torch's own and counted apart. So is what eager refuses, and Inkle computes.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import linecache
import os
import re
import signal
import sys
from typing import Any, Callable, Iterator

import torch
from functorch.compile import default_partition, nop
from torch._decomp import get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import RestartAnalysis, SkipFrame
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common  # noqa: E402
import fuzz_draw  # noqa: E402
import inkle  # noqa: E402
from fuzz_draw import Program  # noqa: E402
from inkle import report  # noqa: E402

# Of a tensor's largest magnitude; noise of the last bit of each value tells the rest.
_CLOSE = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 8e-3, torch.float16: 1e-3,
          torch.complex64: 2e-6, torch.complex128: 1e-14}  # fmt: skip
_NOISY_RUNS = 8
_NOISE_FACTOR = 10.0
numerics = "eager"  # option of Inkle


@dataclasses.dataclass
class Outcome:
    """Of one call: tensors (results, arguments, gradients), and what was raised."""

    results: list[Any] = dataclasses.field(default_factory=list)
    arguments: list[Any] = dataclasses.field(default_factory=list)
    gradients: list[Any] = dataclasses.field(default_factory=list)
    random: torch.Tensor | None = None
    error: BaseException | None = None
    backward_error: BaseException | None = None


# What makes a tensor of no other tensor.
_FACTORY = re.compile(r"torch\.(?:arange|empty|eye|full|linspace|normal|ones|rand|randint|randn|randperm|tensor|zeros)\(")


def _placed(source: str, device: torch.device) -> str:
    """With all tensors on the device by name: tracing does not place all of them on torch's default device."""
    if device.type == "cpu":
        return source
    for match in reversed(list(_FACTORY.finditer(source))):
        end, depth = match.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        source = f"{source[: end - 1]}, device='{device.type}'{source[end - 1 :]}"
    return source


def function(program: Program, is_eager: bool) -> Callable[..., Any]:
    name = f"<program {program.seed} {'eager' if is_eager else 'compiled'}>"
    source = _placed(program.source, torch.get_default_device())
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    values = fuzz_draw.namespace(is_eager)
    exec(compile(source, name, "exec"), values)  # noqa: S102: text that was drawn here
    return values["f"]


def _call(run: Callable[..., Any], program: Program, call: int) -> Outcome:
    grows = {n: n + 2 for n in range(2, 9)} if call == 2 else None
    outcome = Outcome()
    for number, argument in enumerate(program.arguments.values()):
        made = argument.make(program.seed + number + 1000 * call, grows, call)
        if program.grad and isinstance(made, torch.Tensor) and made.is_floating_point():
            made = made.detach().clone().requires_grad_()
        outcome.arguments.append(made)
    torch.manual_seed(program.seed + call)
    try:
        with torch.set_grad_enabled(program.grad):
            outcome.results = list(run(*outcome.arguments))
    except _Timeout:
        raise
    except Exception as error:  # noqa: BLE001: compared
        outcome.error = error
        return outcome
    outcome.random = _random_state()
    if program.grad:
        _differentiate(outcome)
    return outcome


def _random_state() -> torch.Tensor:
    if torch.get_default_device().type == "cpu":
        return torch.get_rng_state()
    return torch.cat([torch.get_rng_state(), torch.cuda.get_rng_state()])


def _differentiate(outcome: Outcome) -> None:
    leaves = [a for a in outcome.arguments if isinstance(a, torch.Tensor) and a.requires_grad and a.is_leaf]
    try:
        total = sum(_weighted(r) for r in outcome.results if isinstance(r, torch.Tensor) and r.requires_grad)
        if isinstance(total, torch.Tensor) and leaves:
            outcome.gradients = list(torch.autograd.grad(total, leaves, allow_unused=True))
    except Exception as error:  # noqa: BLE001: a write to what the backward reads, or to a base of views
        outcome.backward_error = error


def _weighted(result: torch.Tensor) -> torch.Tensor:
    one = result.abs() if result.is_complex() else result
    weights = torch.arange(one.numel(), device=one.device).reshape(one.shape).remainder(5).to(one.dtype) - 1
    return (one * weights).sum().double()


# --- What differs ---------------------------------------------------------------------------------


# Of several steps: eager's kernel adds rounding errors of large terms that cancel, torch's own formula others.
_FORMULAS = [torch.ops.aten.native_layer_norm.default, torch.ops.aten.native_group_norm.default]
_FORMULA = get_decompositions(_FORMULAS)


class Noise(TorchDispatchMode):
    """Each float that an op makes is off by up to its last bit. With odd seeds an op of several steps is
    computed by torch's formula instead of its kernel."""

    def __init__(self, seed: int):
        super().__init__()
        self._formula = _FORMULA if seed % 2 else {}
        self._generator = torch.Generator("cpu").manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = self._formula.get(func, func)(*args, **(kwargs or {}))
        if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
            return made
        if func in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default):
            return made
        for leaf in pytree.tree_leaves(made):
            if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
                self._disturb(leaf)
        return made

    def _disturb(self, leaf: torch.Tensor) -> None:
        if any(s == 0 and n > 1 for s, n in zip(leaf.stride(), leaf.shape)) or leaf.numel() == 0:
            return
        off = torch.rand(leaf.shape, generator=self._generator, dtype=torch.float64, device="cpu").to(leaf.device)
        factor = 1 + (2 * off - 1) * torch.finfo(leaf.dtype).eps
        with torch.no_grad():
            wide = torch.complex128 if leaf.is_complex() else torch.float64
            leaf.copy_((leaf.to(wide) * factor).to(leaf.dtype))


def _values(outcome: Outcome) -> list[Any]:
    return [*outcome.results, *outcome.arguments, *outcome.gradients]


def _layout(found: Any, wanted: Any) -> str:
    if type(found) is not type(wanted):
        return f"{type(found).__name__}, {type(wanted).__name__} in eager"
    if not isinstance(wanted, torch.Tensor):
        same = found == wanted or (found != found and wanted != wanted)
        return "" if same else f"{found}, {wanted} in eager"
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype} {list(found.shape)}, {wanted.dtype} {list(wanted.shape)} in eager"
    if found.device != wanted.device:
        return f"on {found.device}, on {wanted.device} in eager"
    if found.requires_grad != wanted.requires_grad:
        return f"requires_grad {found.requires_grad}, {wanted.requires_grad} in eager"
    strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (found, wanted)]
    if wanted.numel() and strides[0] != strides[1]:
        return f"strides {found.stride()}, {wanted.stride()} in eager"
    return ""


def _wide(t: torch.Tensor) -> torch.Tensor:
    # Views of a base that was written to since cannot be detached.
    t = t.data.resolve_conj().resolve_neg()
    return torch.view_as_real(t.to(torch.complex128)) if t.is_complex() else t.double()


def _unlike(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor | None:
    """_off, but numerics="bitwise" must have the bits."""
    if numerics == "bitwise":
        return other.double() if (other := common.unequal_bits(found, wanted)).any() else None
    return _off(found, wanted)


def _off(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor | None:
    """By how much elements are off, infinity where a NaN or an infinity is one-sided; None: equal."""
    if found.dtype != torch.complex32 and torch.equal(found.data, wanted.data):  # which torch cannot compare
        return None
    if not (wanted.is_floating_point() or wanted.is_complex()):
        a, b = found.data, wanted.data
        if a.dtype == torch.bool:
            return (a != b).double()
        return torch.where(a == b, 0.0, (a.double() - b.double()).abs().clamp(min=1))
    a, b = _wide(found), _wide(wanted)
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs().nan_to_num(float("inf")))


def _scale(t: torch.Tensor) -> float:
    t = _wide(t)
    t = t[t.isfinite()].abs()
    return t.max().item() if t.numel() else 0.0


def _sharing(outcome: Outcome) -> list[tuple[int, int, int]]:
    tensors = [*outcome.results, *outcome.arguments]
    made = []
    for i, a in enumerate(tensors):
        for j, b in enumerate(tensors[:i]):
            if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
                continue
            if a is b:
                made.append((j, i, -1))
            elif a.numel() and b.numel() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
                made.append((j, i, a.data_ptr() - b.data_ptr()))
    return made


def _bases(outcome: Outcome) -> list[int]:
    """Of each result: which result or argument it is a view of; -1 if it is none, or of another tensor."""
    at = {id(t): i for i, t in enumerate([*outcome.results, *outcome.arguments]) if isinstance(t, torch.Tensor)}
    return [at.get(id(t._base), -1) if isinstance(t, torch.Tensor) else -1 for t in outcome.results]


def _views_otherwise(found: Outcome, wanted: Outcome) -> str:
    """Results that share memory and are views to autograd where eager's are not, or of others. Those with a
    gradient are AOTAutograd's to make. Of views of what is not returned one may be their base."""
    mine, theirs = _bases(found), _bases(wanted)
    shared = {i for pair in _sharing(wanted) for i in pair[:2] if i < len(theirs)}
    for i in shared:
        ours, eagers = found.results[i], wanted.results[i]
        is_other = mine[i] != theirs[i] if theirs[i] >= 0 else ours._is_view() and not eagers._is_view()
        if is_other and not eagers.requires_grad:
            return f"views otherwise: {mine}, {theirs} in eager"
    return ""


def difference(found: Outcome, wanted: Outcome, program: Program, call: int) -> str:
    """What differs, or "": values first, as wrong ones are worse than another layout."""
    for name in ("error", "backward_error"):
        mine, theirs = getattr(found, name), getattr(wanted, name)
        if mine is not None and type(mine) is not type(theirs):
            other = f" ({type(theirs).__name__} in eager)" if theirs is not None else ""
            return f"{name} {type(mine).__name__}: {' '.join(str(mine).split())[:300]}{other}"
    a, b = _values(found), _values(wanted)
    if wanted.backward_error is not None:
        a, b = a[: len(b)], b
    if len(a) != len(b):
        return f"{len(a)} values, {len(b)} in eager"
    texts, loose, layouts = [], [], []
    for number, (x, y) in enumerate(zip(a, b)):
        name = _name(number, wanted)
        if text := _layout(x, y):
            # Of gradients the compiler takes what FX states, which is not always what eager's ops make.
            if not (name.startswith("gradient") and text.startswith("strides")):
                layouts.append(f"{name}: {text}")
                continue
        off = _unlike(x, y) if isinstance(y, torch.Tensor) else None
        if off is not None and numerics == "bitwise":
            texts.append(f"{name}: other bits in {int(off.sum())} elements")
        elif off is not None and float(off.max()) > _CLOSE.get(y.dtype, 0) * max(_scale(y), 1e-3):
            loose.append((number, off))
    if _sharing(found) != _sharing(wanted):
        layouts.append(f"shares memory otherwise: {_sharing(found)}, {_sharing(wanted)} in eager")
    elif text := _views_otherwise(found, wanted):
        layouts.append(text)
    if found.random is not None and not torch.equal(found.random, wanted.random):
        texts.append("another state of the random numbers")
    if loose:
        texts = _beyond_noise(loose, wanted, program, call) + texts
    return "; ".join([*texts[:3], *layouts[:3]])


def _name(number: int, outcome: Outcome) -> str:
    for what, values in (("result", outcome.results), ("argument", outcome.arguments)):
        if number < len(values):
            return f"{what} {number}"
        number -= len(values)
    return f"gradient {number}"


def _beyond_noise(loose: list[Any], wanted: Outcome, program: Program, call: int) -> list[str]:
    moved: dict[int, torch.Tensor] = {n: torch.zeros_like(off) for n, off in loose}
    plain = function(program, True)
    for seed in range(_NOISY_RUNS):
        with Noise(seed):
            other = _call(plain, program, call)
        values = _values(other)
        for number, off in moved.items():
            y = _values(wanted)[number]
            if number >= len(values) or _layout(values[number], y):
                moved[number] = torch.full_like(off, float("inf"))  # a branch went another way
            elif (by := _off(values[number], y)) is not None:
                moved[number] = torch.maximum(off, by)
    texts = []
    for number, off in loose:
        y = _values(wanted)[number]
        floor = _CLOSE.get(y.dtype, 0) * max(_scale(y), 1e-3)
        # The largest of the tensor stands in for an element that noise has not met.
        allowed = _NOISE_FACTOR * torch.maximum(moved[number], moved[number].max() / 4) + floor
        if bool((off > allowed).any()):
            at = int((off - allowed).nan_to_num(0, 1e300).argmax())
            texts.append(f"{_name(number, wanted)}: off by {off.flatten()[at]:.3g}, "
                         f"{allowed.flatten()[at]:.3g} allowed, scale {_scale(y):.3g}")  # fmt: skip
    return texts


def _is_defined(program: Program, call: int) -> bool:
    """Whether a call has one result on a GPU: not what eager raises for on a CPU, as an integer by 0 or an
    index out of range, by which a GPU's process ends."""
    if torch.get_default_device().type == "cpu":
        return True
    with torch.device("cpu"):
        return _call(function(program, True), program, call).error is None


def _has_own_elements(t: torch.Tensor) -> bool:
    """Not where a GPU writes to one place more than once, in any order."""
    return t.device.type == "cpu" or torch._debug_has_internal_overlap(t) == 0


def _written(t: Any, number: int) -> str:
    """Writes other numbers to all of a result; why that is refused, or ""."""
    try:
        with torch.no_grad():
            if t.dtype == torch.bool:
                t.logical_not_()
            else:
                t.copy_((torch.arange(t.numel()).reshape(t.shape) + 7 * number + 30).to(t.dtype))
    except Exception as error:  # noqa: BLE001: a write that eager forbids, as to expanded memory
        return str(error).splitlines()[0]
    return ""


def _after_writes(found: Outcome, wanted: Outcome) -> str:
    """Writes to each result; what then differs."""
    def far() -> list[float]:
        pairs = zip([*found.results, *found.arguments], [*wanted.results, *wanted.arguments])
        offs = [_off(a, b) if isinstance(b, torch.Tensor) else None for a, b in pairs]
        return [0.0 if off is None else float(off.max()) for off in offs]

    before = far()
    for number, (x, y) in enumerate(zip(found.results, wanted.results)):
        if not isinstance(y, torch.Tensor) or y.numel() == 0 or not _has_own_elements(y):
            continue
        mine, theirs = _written(x, number), _written(y, number)
        if mine and not theirs:
            return f"a write to result {number} is refused: {mine[:200]}"
        if theirs and not mine:
            return f"a write to result {number} is refused in eager alone: {theirs[:200]}"
        for other, (now, was) in enumerate(zip(far(), before)):
            if now > was + 0.5:
                return f"a write to result {number} reaches {_name(other, wanted)} otherwise"
    return ""


# --- Judging --------------------------------------------------------------------------------------


class _Timeout(BaseException):
    pass


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _Timeout

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _compiled(program: Program, backend: Any) -> Callable[..., Any]:
    options = {"random": "eager", "cache": False, "numerics": numerics} if backend == "inkle" else None
    return torch.compile(function(program, False), backend=backend, dynamic=program.dynamic, options=options)


def judge(program: Program) -> tuple[str, str]:
    """("right" | "refused" | "torch" | "differs", what differs). Refused is what eager alone raises for."""
    report.forget()
    plain = function(program, True)
    run = _compiled(program, "inkle")
    outcome = "right"
    for call in range(3 if program.dynamic is not False else 2):
        if not _is_defined(program, call):
            return "refused", ""
        wanted, found = _call(plain, program, call), _call(run, program, call)
        if wanted.error is not None:
            outcome = outcome if call and found.error is not None else "refused"
            break
        if wanted.backward_error is not None and found.backward_error is None:
            outcome = "refused"
        text = difference(found, wanted, program, call)
        if text and _is_as_plain_attention(program, found, wanted, call):
            return "torch", f"call {call}: torch's flash attention gives numbers for NaN scores; {text}"
        if text:
            return _whose(program, found, call), f"call {call}: {text}"
        if text := _after_writes(found, wanted):
            return _whose(program, found, call, wrote=text), f"call {call}: {text}"
    faults = [r.fault for r in inkle.reports() if r.fault]
    return ("differs", f"a fault: {faults[0][:600]}") if faults else (outcome, "")


def _or_eager(backend: Callable[..., Any]) -> Callable[..., Any]:
    """A graph that AOTAutograd refuses runs in eager, as with Inkle."""
    def compiled(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        as_given = copy.deepcopy(gm.graph)
        try:
            return backend(gm, inputs)
        except (RestartAnalysis, SkipFrame):
            raise
        except Exception:  # noqa: BLE001: whatever AOTAutograd refuses
            return torch.fx.GraphModule(gm, as_given)

    return compiled


# AOTAutograd without a compiler. Of values that a program writes later, one partition keeps others than another.
_PARTITIONS = (
    _or_eager(torch._dynamo.lookup_backend("aot_eager")),
    _or_eager(aot_autograd(fw_compiler=nop, partition_fn=default_partition)),
)


def _is_as_plain_attention(program: Program, found: Outcome, wanted: Outcome, call: int) -> bool:
    """Whether it is what eager gives with attention in plain ops, which is NaN where ``wanted`` is not:
    on the CPU torch's flash attention gives 0 for a row whose scores are NaN."""
    if "scaled_dot_product_attention" not in program.source:
        return False
    with sdpa_kernel([SDPBackend.MATH]):
        plain = _call(function(program, True), program, call)
        is_same = not difference(found, plain, program, call)
    pairs = [(p, w) for p, w in zip(_values(plain), _values(wanted)) if isinstance(p, torch.Tensor)]
    return is_same and any(p.shape == w.shape and bool((p.isnan() & ~w.isnan()).any()) for p, w in pairs)


def _last_call(program: Program, backend: Any, call: int) -> Outcome:
    torch._dynamo.reset()
    run = _compiled(program, backend)
    return [_call(run, program, n) for n in range(call + 1)][-1]


def _whose(program: Program, found: Outcome, call: int, wrote: str = "") -> str:
    """Whether AOTAutograd alone gives the same, or raises the same. ``wrote``: what differs after writes
    to results."""
    if found.error is not None:
        # Dynamo may itself fail after AOTAutograd has refused a graph, which then runs in eager.
        alone = (_last_call(program, backend, call) for backend in ("aot_eager", _PARTITIONS[0]))
        return "torch" if any(common.is_same_error(found.error, t.error) for t in alone) else "differs"
    return "torch" if any(_is_as(program, found, call, p, wrote) for p in _PARTITIONS) else "differs"


def _is_as(program: Program, found: Outcome, call: int, backend: Any, wrote: str) -> bool:
    theirs = _last_call(program, backend, call)
    if theirs.error is not None:
        return False
    if wrote:
        again = _call(function(program, True), program, call)
        return _after_writes(theirs, again) == wrote
    if not common.is_same_error(found.backward_error, theirs.backward_error):
        return False
    return not difference(found, theirs, program, call)


def tried(program: Program, seconds: float = 120.0) -> tuple[str, str]:
    """As ``judge``; ("late", ...) of what takes longer."""
    try:
        with _limited(seconds):
            return judge(program)
    except _Timeout:
        return "late", f"takes more than {seconds:g} s"
    except Exception as error:  # noqa: BLE001: a finding, of ours or of the judge
        return "differs", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        linecache.cache.clear()
