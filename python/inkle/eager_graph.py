"""A forward or backward graph, node by node in eager: for a call that failed.

Every row of the op table names ATen overloads that mean it, with its arguments in their order.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any, Callable, Iterator, Sequence

import torch

from inkle import _inkle, layouts
from inkle.dropout import (
    seeded_integers,
    seeded_native_dropout,
    seeded_normal,
    seeded_permutation,
    seeded_uniform,
)
from inkle.eager_calls import of_its_own, within_64_bits
from inkle.importer import DTYPES
from inkle.machine import OF_ITS_MEMORY, OF_NOTHING, as_strided

NAMED_DTYPES = {name: dtype for dtype, name in DTYPES.items()}

# The least and the largest of several; torch's functions take two.
_FUNCTIONS = {
    "floordiv": operator.floordiv, "mod": operator.mod,
    "min": lambda *of: functools.reduce(torch.sym_min, of),
    "max": lambda *of: functools.reduce(torch.sym_max, of),
}  # fmt: skip
# Overloads that only the compiler knows.
_OWN = {
    "inkle::native_dropout": seeded_native_dropout,
    "inkle::normal": seeded_normal,
    "inkle::integers": seeded_integers,
    "inkle::permutation": seeded_permutation,
    "inkle::uniform": seeded_uniform,
}
# Passes leave out copies that only give a view its strides.
_ANY_STRIDES = {"aten::view": "aten::reshape", "aten::_unsafe_view": "aten::reshape"}


def size_of(size: Any, symbols: dict[str, Any]) -> Any:
    """The value of an integer or an expression of the compiler."""
    if isinstance(size, int):
        return size
    return eval(str(size), {"__builtins__": {}}, {**_FUNCTIONS, **symbols})  # noqa: S307


def _geometry(type_: tuple[Any, ...], symbols: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Sizes and strides of a value's type."""
    _, sizes, strides, *_ = type_
    return [size_of(s, symbols) for s in sizes or ()], [size_of(s, symbols) for s in strides or ()]


@dataclasses.dataclass(frozen=True)
class Results:
    """What a program is told of its results, by position, as ``TorchCallable`` takes it."""

    share: Callable[..., Any] = as_strided  # makes a result in the memory of another
    conditions: Sequence[int] = ()  # integers that are bools
    repeats: Sequence[int] = ()  # of each: the earlier result that it is, or -1
    view_of: Sequence[int] = ()  # of each: ``OF_NOTHING``, the earlier result that it is a view of, or -1
    apart: Sequence[int] = ()  # not what made their memory

    @classmethod
    def of(cls, program: Any) -> Results:
        """Of what has attributes of these names."""
        return cls(*(getattr(program, field.name) for field in dataclasses.fields(cls)))


class EagerGraph:
    """``partition`` as the compiler gives it; ``targets``: the callables of its calls to eager."""

    def __init__(
        self, partition: Any, is_backward: bool, targets: list[Callable[..., Any]], told: Results
    ):
        self._told = told
        self._inputs = partition.inputs(is_backward)
        self._nodes = partition.nodes(is_backward)
        self._outputs = partition.outputs(is_backward)
        self._literals = partition.literals(is_backward)
        self._targets = targets
        # By value that outputs share the memory of.
        self._strides: dict[int, Any] = {v.index: t[2] for v, t, _ in self._literals}
        for _, _, _, results, types in self._nodes:
            self._strides.update((v.index, t[2]) for v, t in zip(results, types) if v is not None)

    def __call__(self, arguments: list[Any]) -> list[Any]:
        with torch.no_grad(), torch._C._DisableAutocast():
            return self._run(arguments)

    def _run(self, arguments: list[Any]) -> list[Any]:
        values: dict[int, Any] = {}
        symbols: dict[str, Any] = {}
        for entry, given in zip(self._inputs, arguments):
            if isinstance(entry, _inkle.Value):
                values[entry.index] = given
            else:
                symbols[str(entry)] = given
        for value, type_, data in self._literals:
            values[value.index] = self._as_stated(value, self._literal(type_, data), symbols)
        for names, target, args, results, types in self._nodes:
            given = [self._argument(a, values, symbols) for a in args]
            made = _call(names.split(), given) if target is None else self._targets[target](*_flat(given[1:]))
            made = list(made) if isinstance(made, (list, tuple)) else [made]
            for value, one, (dtype, *_) in zip(results, made, types):
                if isinstance(one, torch.Tensor) and one.dtype != NAMED_DTYPES.get(dtype):
                    one = one.to(NAMED_DTYPES[dtype])
                values[value.index] = self._as_stated(value, one, symbols)
        return self._results(values, symbols, arguments)

    @staticmethod
    def _literal(type_: tuple[Any, ...], data: bytes) -> torch.Tensor:
        dtype, sizes, _, (kind, index) = type_
        if not data:
            return torch.empty(sizes, dtype=NAMED_DTYPES[dtype], device=torch.device(kind, index))
        flat = torch.frombuffer(bytearray(data), dtype=NAMED_DTYPES[dtype])
        return flat.reshape(sizes).to(torch.device(kind, index))

    def _argument(self, value: Any, values: dict[int, Any], symbols: dict[str, Any]) -> Any:
        if isinstance(value, _inkle.Value):
            return values[value.index]
        if isinstance(value, _inkle.Expr):
            return size_of(value, symbols)
        if isinstance(value, list):
            return [self._argument(v, values, symbols) for v in value]
        if isinstance(value, tuple):
            is_dtype = value[0] == "dtype"
            return NAMED_DTYPES[value[1]] if is_dtype else torch.device(*value[1:])
        return value

    def _as_stated(self, value: Any, made: Any, symbols: dict[str, Any]) -> Any:
        """What a literal or a node makes, with the strides that its value has: by them ``as_strided`` finds its
        elements, and random numbers like it lie. One with gaps or repetitions stays as it is."""
        stated = self._strides[value.index]
        if stated is None or not isinstance(made, torch.Tensor):
            return made
        strides = [size_of(s, symbols) for s in stated]
        is_dense = layouts.is_dense(torch.empty_strided(made.shape, strides, device="meta"))
        return self._laid_out(made, strides, set()) if is_dense else made

    def _results(
        self, values: dict[int, Any], symbols: dict[str, Any], arguments: list[Any]
    ) -> list[Any]:
        results: list[Any] = []
        taken = {a.untyped_storage().data_ptr() for a in arguments if isinstance(a, torch.Tensor)}
        storages: dict[int, torch.Tensor] = {}  # by number: what outputs are views of
        for position, (value, type_, memory) in enumerate(self._outputs):
            earlier = self._told.repeats[position] if position < len(self._told.repeats) else -1
            if earlier >= 0:
                results.append(results[earlier])
                continue
            if type_ is None:
                results.append(None if value is None else size_of(value, symbols))
                continue
            sizes, strides = _geometry(type_, symbols)
            if isinstance(memory, tuple):
                where, offset = memory
                if not isinstance(where, int):
                    base = values[where.index]
                elif where in storages:
                    base = storages[where]
                else:
                    base = storages[where] = self._base(where, values[value.index], value, symbols, taken)
                at = size_of(offset, symbols)
                is_whole = at == 0 and (sizes, strides) == (list(base.shape), list(base.stride()))
                # As a compiled program: the first result that is all of a storage is its tensor.
                if is_whole and self._is_tensor_itself(position, base, results, where):
                    results.append(base)
                else:
                    view_of = self._view_of(position)
                    if view_of >= 0:
                        at += base.storage_offset() - results[view_of].storage_offset()
                        base = results[view_of]
                    start = at * base.element_size()
                    results.append(self._told.share(base, sizes, strides, start, view_of == OF_NOTHING))
                continue
            is_own = memory == "own"
            wanted = strides if type_[2] is not None else None
            results.append(self._laid_out(values[value.index], wanted, taken if is_own else set()))
            taken.add(results[-1].untyped_storage().data_ptr())
        for position in self._told.conditions:
            results[position] = bool(results[position])
        return results

    def _is_tensor_itself(self, position: int, base: Any, results: list[Any], where: Any) -> bool:
        """Whether a result that is all of ``base`` is ``base``, no other tensor in its memory."""
        if position in self._told.apart:
            return False
        if isinstance(where, int):
            return not any(r is base for r in results)
        return self._view_of(position) == OF_ITS_MEMORY

    def _view_of(self, position: int) -> int:
        told = self._told.view_of
        return told[position] if position < len(told) else OF_ITS_MEMORY

    def _base(
        self, where: int, tensor: torch.Tensor, value: Any, symbols: dict[str, Any], taken: set[int]
    ) -> torch.Tensor:
        """What the results of storage ``where`` are views of, with the sizes of the one that is no view."""
        base = self._own(tensor, self._strides[value.index], symbols, taken)
        for position, (_, type_, memory) in enumerate(self._outputs):
            if isinstance(memory, tuple) and memory[0] == where and position not in self._told.apart:
                sizes, strides = _geometry(type_, symbols)
                like = torch.empty_strided(sizes, strides, device="meta")
                is_reshaped = size_of(memory[1], symbols) == 0 and like.numel() == base.numel()
                if is_reshaped and layouts.is_dense(like) and layouts.is_dense(base):
                    return as_strided(base, sizes, strides, 0)
                break
        return base

    def _own(
        self, tensor: torch.Tensor, strides: list[Any], symbols: dict[str, Any], taken: set[int]
    ) -> torch.Tensor:
        """What several results are views of."""
        tensor = self._laid_out(tensor, [size_of(s, symbols) for s in strides], taken)
        taken.add(tensor.untyped_storage().data_ptr())
        return tensor

    @staticmethod
    def _laid_out(
        tensor: torch.Tensor, strides: list[int] | None, taken: set[int]
    ) -> torch.Tensor:
        """The tensor with these strides, in no storage that is taken."""
        if strides is not None and list(tensor.stride()) != strides:
            like = torch.empty_strided(
                tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
            )
            return like.copy_(tensor)
        return of_its_own(tensor) if tensor.untyped_storage().data_ptr() in taken else tensor


def _flat(values: list[Any]) -> Iterator[Any]:
    """Tensors and sizes, as calls to eager take them."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        elif isinstance(value, torch.Tensor) or (
            isinstance(value, int) and not isinstance(value, bool)
        ):
            yield value


def _call(names: list[str], given: list[Any]) -> Any:
    """Calls the first overload that takes the arguments, of those that take numbers as such if there are any:
    beside another without dimensions a tensor promotes as a number does not."""
    problem: Exception | None = None
    for name in sorted(names, key=lambda n: n not in _OWN and _needs_tensors(n, given)):
        if name in _OWN:
            return _OWN[name](*given)
        try:
            return _overload(_ANY_STRIDES.get(name, name))(given)
        except (TypeError, RuntimeError, NotImplementedError) as error:
            problem = problem or error
    raise problem or RuntimeError(f"no overload of {names}")


def _scalar(value: bool | int | float, beside: list[Any]) -> torch.Tensor:
    """A number for an op that takes tensors alone: it promotes others as the number would."""
    is_wide = any(isinstance(t, torch.Tensor) and t.dtype == torch.float64 for t in beside)
    dtype = torch.float64 if isinstance(value, float) and is_wide else None
    if isinstance(value, int) and value >= 1 << 63:
        dtype = torch.uint64
    device = next((t.device for t in beside if isinstance(t, torch.Tensor)), None)
    return torch.tensor(value, dtype=dtype, device=device)


def _op(name: str) -> torch._ops.OpOverload:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _is_number_for_tensor(described: Any, value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and str(described.type) == "Tensor"


def _needs_tensors(name: str, given: list[Any]) -> bool:
    """Whether a number would have to become a tensor. An overload that this torch lacks comes last."""
    try:
        return any(map(_is_number_for_tensor, _op(name)._schema.arguments, given))
    except AttributeError:
        return True


def _overload(name: str) -> Callable[[list[Any]], Any]:
    op = _op(name)
    arguments = op._schema.arguments

    def call(given: list[Any]) -> Any:
        positional, keywords = [], {}
        for described, value in zip(arguments, given):
            is_tensor = "Tensor" in str(described.type)
            if isinstance(value, torch.Tensor) and not is_tensor:
                raise TypeError(f"{name}: {described.name} is no tensor")
            if _is_number_for_tensor(described, value):
                value = _scalar(value, given)
            is_bound = described.name in ("start", "end") and "int" in str(described.type).lower()
            if is_bound and isinstance(value, int):
                value = within_64_bits(value)
            if isinstance(value, str) and described.name in ("layout", "memory_format"):
                value = getattr(torch, value)
            if described.kwarg_only:
                keywords[described.name] = value
            else:
                positional.append(value)
        return op(*positional, **keywords)

    return call
