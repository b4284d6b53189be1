"""How a case of op_db is judged (``opdb.py``): its samples compiled as whole graphs, against eager."""

from __future__ import annotations

import random
import re
from typing import Any, Callable, Collection

import common
import counted
import torch
from torch.utils import _pytree as pytree

import inkle

# Values are whatever was in memory.
UNINITIALISED = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
                 "new_empty_strided")  # fmt: skip

# What results of a dtype are judged by.
WIDE = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
        torch.complex64: torch.complex128}  # fmt: skip

# From worst to best: what a case is called is the worst that one of its ops was.
WAYS = ("eager", "library", "decomposed", "native", "view")
OUTCOMES = ("right", "near", "wrong", "crash", "fault", "torch", "untraced", "no graph", "no sample")


def every_entry() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


class Wrong(Exception):
    """A difference between compiled and eager."""


class Near(Exception):
    """A difference that eager itself has, once its arguments are disturbed in their last bit."""


class Judge:
    """Compares values with eager's. The errors against f64 of what is not within torch's own
    tolerance, and of ``watched``, are in ``errors``. ``bitwise``: their bits are compared."""

    def __init__(self, watched: Collection[str] = (), bitwise: bool = False) -> None:
        self.errors: dict[str, common.Accuracy] = {}
        self._watched = watched
        self._bitwise = bitwise

    def misses(self) -> dict[str, common.Accuracy]:
        return {name: error for name, error in self.errors.items() if not error.ok}

    def compare(
        self, found: Any, wanted: Any, what: str, layout_only: bool, reference: Any
    ) -> None:
        """Raises Wrong for what is no matter of accuracy. ``reference`` gives the values in f64."""
        a, b = _leaves(found), _leaves(wanted)
        if len(a) != len(b):
            raise Wrong(f"{what}: {len(a)} values, {len(b)} in eager")
        exact = None
        for i, (x, y) in enumerate(zip(a, b)):
            name = f"{what} {i}"
            _same_kind(x, y, name)
            if layout_only or not isinstance(x, torch.Tensor):
                continue
            x, y = x.detach(), y.detach()
            if self._bitwise and y.layout == torch.strided:
                if bool(common.unequal_bits(x, y).any()):
                    raise Wrong(f"{name}: other bits; {_difference(x, y) or 'within the tolerance'}")
                continue
            difference = _difference(x, y)
            if not difference and name not in self._watched:
                continue
            is_exact = not (y.is_floating_point() or y.is_complex())
            if reference is None or is_exact or y.layout != torch.strided:
                raise Wrong(f"{name}: {difference}")
            if exact is None:
                exact = _exact(reference)
            if i >= len(exact) or exact[i].shape != y.shape:
                raise Wrong(f"{name}: {difference}")
            self.errors[name] = common.Accuracy(common.FLOORS[y.dtype])
            self.errors[name].add(x, y, exact[i])


def _same_kind(x: Any, y: Any, name: str) -> None:
    """Raises Wrong where ``x`` is no tensor laid out as ``y``, or no equal number."""
    if isinstance(x, torch.Tensor) != isinstance(y, torch.Tensor):
        raise Wrong(f"{name}: {type(x).__name__}, {type(y).__name__} in eager")
    if not isinstance(x, torch.Tensor):
        if x != y and x == x:
            raise Wrong(f"{name}: {x}, {y} in eager")
    elif y.layout == torch.strided and (difference := common.layout_difference(x, y)):
        raise Wrong(f"{name}: {difference}")


def _difference(x: torch.Tensor, y: torch.Tensor) -> str:
    """In what they differ by more than torch's own tolerance."""
    try:
        torch.testing.assert_close(x, y, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


class Case:
    """One entry in one dtype; compares its samples. ``numerics``: the option of Inkle; with "bitwise"
    the judge compares bits."""

    def __init__(self, entry: Any, dtype: Any, with_grad: bool, limit: int, device: str,
                 numerics: str = "eager"):  # fmt: skip
        self.entry, self.dtype, self.with_grad, self.limit = entry, dtype, with_grad, limit
        self.device, self.numerics = device, numerics

    def samples(self) -> list[Any]:
        torch.manual_seed(0)
        random.seed(0)
        found = self.entry.sample_inputs(self.device, self.dtype, requires_grad=self.with_grad)
        every = [s for _, s in zip(range(200), found)]
        if len(every) <= self.limit:
            return every
        # The first, the last, and some between.
        step = (len(every) - 1) / (self.limit - 1) if self.limit > 1 else 1
        return [every[round(i * step)] for i in range(self.limit)]

    def check(self, sample: Any, backend: Any, against: Any = None) -> None:
        """Raises Wrong, Near, or what tracing or running raises. ``against``: a backend whose results
        are the wanted ones, instead of eager's."""
        judge = Judge(bitwise=self.numerics == "bitwise")
        self._check_sample(sample, judge, backend, against=against)
        misses = judge.misses()
        if not misses:
            return
        message = "; ".join(f"{name}: {error}" for name, error in misses.items())
        disturbed: list[dict[str, common.Accuracy]] = []
        for seed in range(common.DISTURBED):
            other = Judge(watched=misses)
            try:
                self._check_sample(sample, other, None, seed)
            except Exception:  # noqa: BLE001: a function that jumps, or ends there
                continue
            disturbed.append(other.errors)
            if all(a.ok_beside([d[n] for d in disturbed if n in d]) for n, a in misses.items()):
                raise Near(message)
        raise Wrong(message)

    def _check_sample(
        self, sample: Any, judge: Judge, backend: Any, noise: int | None = None, against: Any = None
    ) -> None:
        """What ``backend`` makes of it, or without one eager, of arguments with ``noise``."""
        how = (backend, against, noise)
        self._check_call(self.entry.get_op(), sample, judge, *how, in_place=False)
        if self.entry.inplace_variant is not None and not self.with_grad:
            if not sample.broadcasts_input:
                op = self.entry.inplace_variant
                self._check_call(op, sample, judge, *how, in_place=True)

    def _check_call(
        self, op: Callable[..., Any], sample: Any, judge: Judge, backend: Any, against: Any,
        noise: int | None, in_place: bool,
    ) -> None:  # fmt: skip
        def run(first: Any, args: Any, kwargs: Any) -> Any:
            return op(first, *args, **kwargs)

        def compiled(backend: Any) -> Callable[..., Any]:
            torch._dynamo.reset()
            options = {"numerics": self.numerics} if backend == "inkle" else None
            return torch.compile(run, backend=backend, fullgraph=True, options=options) if backend else run

        wanted_arguments, found_arguments = _copied(sample), _copied(sample, noise=noise)
        torch.manual_seed(1)
        try:
            wanted = compiled(against)(*wanted_arguments)
        except (RuntimeError, TypeError, ValueError):
            if in_place:  # a dtype that the result does not fit into
                return
            raise
        torch.manual_seed(1)
        found = compiled(backend)(*found_arguments)
        place = " in place" if in_place else ""
        is_random = self.entry.name in UNINITIALISED
        judge.compare(found, wanted, f"result{place}", is_random, self._reference(op, sample))
        judge.compare(found_arguments, wanted_arguments, f"argument{place} afterwards", is_random,
                      self._reference(op, sample, afterwards=True))  # fmt: skip
        if _aliases(found, found_arguments) != _aliases(wanted, wanted_arguments):
            raise Wrong(f"{'in place ' if in_place else ''}results alias arguments otherwise")
        if self.with_grad:
            self._check_gradients(op, sample, (found, found_arguments), (wanted, wanted_arguments),
                                  judge)  # fmt: skip

    def _reference(
        self, op: Callable[..., Any], sample: Any, afterwards: bool = False
    ) -> Callable[[], Any] | None:
        """The result in f64, or the arguments ``afterwards``, for floats and complex numbers."""
        if self.dtype not in WIDE:
            return None

        def compute() -> Any:
            first, args, kwargs = _copied(sample, self.dtype)
            torch.manual_seed(1)
            result = op(first, *args, **kwargs)
            return (first, args, kwargs) if afterwards else result

        return compute

    def _check_gradients(
        self, op: Callable[..., Any], sample: Any, found: Any, wanted: Any, judge: Judge
    ) -> None:
        processed = sample.output_process_fn_grad
        reference_arguments = _copied(sample, self.dtype)

        def reference() -> Any:
            torch.manual_seed(1)
            first, args, kwargs = reference_arguments
            return _gradients(processed(op(first, *args, **kwargs)), reference_arguments)

        a = _gradients(processed(found[0]), found[1])
        b = _gradients(processed(wanted[0]), wanted[1])
        judge.compare(a, b, "gradient", False, reference if self.dtype in WIDE else None)


def _copied(sample: Any, narrow: Any = None, noise: int | None = None) -> tuple[Any, Any, Any]:
    """Argument tensors of its own, with the same strides; those of dtype ``narrow`` in f64. With
    ``noise``, a seed, floats are off by up to their last bit."""
    generator = torch.Generator().manual_seed(noise or 0)

    def copy(leaf: Any) -> Any:
        if leaf is narrow and isinstance(leaf, torch.dtype):
            return WIDE.get(narrow, narrow)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = leaf.detach()
        if made.layout == torch.strided and made.numel() > 0:
            base = torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype,
                                       device=leaf.device)  # fmt: skip
            overlaps = any(s == 0 and n > 1 for s, n in zip(leaf.stride(), leaf.size()))
            made = made.clone() if overlaps else base.copy_(made)
        else:
            made = made.clone()
        if narrow is not None and made.dtype == narrow:
            made = made.to(WIDE.get(narrow, narrow))
        if noise is not None and made.is_floating_point() and made.layout == torch.strided:
            off = torch.rand(made.shape, generator=generator, dtype=torch.float64).to(made.device)
            made.copy_(made.double() * (1 + (2 * off - 1) * torch.finfo(made.dtype).eps))
        if leaf.requires_grad:
            made.requires_grad_()
        return made

    return pytree.tree_map(copy, (sample.input, sample.args, sample.kwargs))


def _leaves(value: Any) -> list[Any]:
    return [t for t in pytree.tree_leaves(value) if isinstance(t, (torch.Tensor, int, float))]


def _aliases(results: Any, arguments: Any) -> list[tuple[int, int]]:
    """Which results share storage with which arguments."""
    def storage(t: Any) -> int:
        plain = isinstance(t, torch.Tensor) and t.layout == torch.strided and t.numel() > 0
        return t.untyped_storage().data_ptr() if plain else 0

    a, b = [storage(t) for t in _leaves(results)], [storage(t) for t in _leaves(arguments)]
    return [(i, j) for i, x in enumerate(a) for j, y in enumerate(b) if x == y != 0]


def _gradients(outputs: Any, arguments: Any) -> list[Any]:
    outputs = [t for t in _leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in _leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not inputs:
        return []
    generator = torch.Generator().manual_seed(7)
    seeds = []
    for t in outputs:
        kind = torch.complex64 if t.is_complex() else torch.float32
        seeds.append(torch.randn(t.shape, generator=generator, dtype=kind).to(t.device, t.dtype))
    made = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    return [t.new_zeros(()) if g is None else g for g, t in zip(made, inputs)]


def _exact(reference: Callable[[], Any]) -> list[Any]:
    try:
        return [t.detach() if hasattr(t, "detach") else torch.tensor(t) for t in _leaves(reference())]
    except Exception:  # noqa: BLE001: an op that has no f64
        return []


def message_of(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:300]


def run_case(case: Case) -> dict[str, Any]:
    """What becomes of one case: an outcome, a message, and how its ops ran."""
    result: dict[str, Any] = {"outcome": "no sample", "message": "", "graphs": 0}
    found = counted.Counted()
    try:
        samples = case.samples()
        for number, sample in enumerate(samples):
            inkle.reset()
            outcome, message = _outcome(case, sample)
            reports = inkle.reports()
            result["graphs"] += len(reports)
            if outcome == "right" and any(r.fault for r in reports):
                outcome, message = "fault", next(r.fault for r in reports if r.fault)
            worse = OUTCOMES.index(outcome) if result["outcome"] != "no sample" else -1
            order = ("wrong", "fault", "torch", "untraced", "near", "right", "no sample")
            if worse == -1 or order.index(outcome) < order.index(result["outcome"]):
                result["outcome"] = outcome
                result["message"] = f"sample {number}: {message}" if message else ""
    finally:
        found.remove()
        torch._dynamo.reset()
    ways = found.ways
    result["way"] = next((w for w in WAYS if ways.get(w)), "view")
    result["eager"] = sorted(found.in_eager)
    result["why"] = {k: v for k, v in found.why.items()}
    result["fallbacks"] = sorted(set(found.fallbacks))
    if result["outcome"] == "right" and result["graphs"] == 0:
        result["outcome"] = "no graph"
    return result


def _outcome(case: Case, sample: Any) -> tuple[str, str]:
    """What is not right is torch's own where AOTAutograd without a compiler does the same: it gives
    those values, or raises that error. That it fails in some other way excuses nothing."""
    try:
        case.check(sample, "inkle")
        return "right", ""
    except Near as error:
        return "near", message_of(error)
    except Exception as error:  # noqa: BLE001: judged below
        mine = error
    if isinstance(mine, Wrong):
        is_torchs = _raised(case, sample, "inkle", "aot_eager") is None
        return "torch" if is_torchs else "wrong", message_of(mine)
    theirs = _raised(case, sample, "aot_eager", None)
    return "untraced" if _is_same(mine, theirs) else "fault", message_of(mine)


def _raised(case: Case, sample: Any, backend: str, against: str | None) -> Exception | None:
    try:
        case.check(sample, backend, against)
    except Exception as error:  # noqa: BLE001: whatever it is
        return error
    return None


def _is_same(mine: Exception, theirs: Exception | None) -> bool:
    """Whether both say the same, but for the names of backends and of objects."""

    def essence(error: BaseException) -> tuple[type, str]:
        lines = [line for line in str(error).splitlines() if line.strip()]
        text = re.sub(r"inkle|aot_eager|0x[0-9a-f]+", "", lines[0] if lines else "")
        return type(error), text

    return theirs is not None and essence(mine) == essence(theirs)
