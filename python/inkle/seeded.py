"""Random ops of ATen by our own generator: the graph draws one seed a call, code draws the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.node import Node

from inkle import _inkle
from inkle.eager_calls import Ranks, Seed

if TYPE_CHECKING:
    from inkle.importer import GraphImporter

aten = torch.ops.aten
# Uniform numbers of these have as many bits as eager's, normal ones are computed in f32.
_UNIFORM = (torch.float32, torch.bfloat16, torch.float16)
# Longer permutations are sorted by the host: comparing each element with each takes longer (4 million
# comparisons of this many take 0.3 ms on a core).
_LONGEST_COMPARED = 2048
# Where the arguments of these have their bounds [low, high).
_BOUNDS: dict[Any, Callable[[list[Any]], tuple[Any, Any]]] = {
    aten.randint.default: lambda a: (0, a[0]),
    aten.randint.low: lambda a: (a[0], a[1]),
    aten.randint_like.default: lambda a: (0, a[1]),
    aten.randint_like.low_dtype: lambda a: (a[1], a[2]),
}


def _holds(dtype: torch.dtype, low: int, high: int) -> bool:
    """Whether all of [low, high) are numbers of the dtype; others eager refuses or rounds."""
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return info.min <= low and high - 1 <= info.max
    most = round(2 / torch.finfo(dtype).eps)
    return -most <= low and high <= most


class Refused(Exception):
    """A row did not take what it was made for."""


class SeededOps:
    """Calls of rows that take a seed, for the nodes of one graph."""

    def __init__(self, importer: GraphImporter):
        self._importer = importer
        self._seeds: dict[torch.device, Any] = {}
        self._number = 0

    def call(self, node: Node, arguments: list[Any], kinds: list[Any]) -> list[Any] | None:
        """The results of a random op, or nothing if it is none of those known here."""
        value = node.meta["val"]
        value = value[0] if isinstance(value, (list, tuple)) else value
        if kinds[0][0] == "opaque" or value.device.type not in ("cpu", "cuda"):
            return None
        if node.target is aten.native_dropout.default:
            p, train = arguments[1:3]
            if train is False or not 0 < p <= 1 or not value.is_floating_point():
                return None
            x = self._importer.argument(arguments[0])
            return self._row(node, "inkle::native_dropout", [x, *self._next(node, value), float(p)],
                             kinds)
        if node.target in (aten.rand.default, aten.rand_like.default):
            if value.dtype not in _UNIFORM:
                return None
            return [self._numbers("inkle::uniform", node, value, kinds[0])]
        if node.target in (aten.randn.default, aten.randn_like.default):
            if value.dtype not in _UNIFORM:
                return None
            return [self._numbers("inkle::normal", node, value, kinds[0])]
        if node.target in _BOUNDS:
            low, high = _BOUNDS[node.target](arguments)
            if type(low) is not int or type(high) is not int or low >= high:
                return None
            if value.dtype is torch.bool or not _holds(value.dtype, low, high):
                return None
            return [self._numbers("inkle::integers", node, value, kinds[0], low, high)]
        if node.target is aten.randperm.default:
            return self._permutation(node, arguments[0], value, kinds)
        if node.target in (aten.bernoulli.p, aten.bernoulli.default):
            return self._bernoulli(node, arguments, value, kinds)
        return None

    def _bernoulli(self, node: Node, arguments: list[Any], value: Any, kinds: list[Any]) -> Any:
        """Whether a uniform number lies below the probability, in the dtype of the result."""
        _, sizes, _, device = kinds[0]
        if node.target is aten.bernoulli.p:
            overload, p = "aten::lt.Scalar", float(arguments[1])
        else:
            overload, p = "aten::lt.Tensor", self._importer.argument(arguments[0])
            if arguments[0].meta["val"].dtype not in _UNIFORM:
                return None
        uniform = self._numbers("inkle::uniform", node, value, ("f32", sizes, None, device))
        below = self._row(node, overload, [uniform, p], [("bool", sizes, None, device)])[0]
        return self._row(node, "aten::_to_copy", [below, _inkle.DType(kinds[0][0])], kinds)

    def _permutation(self, node: Node, n: Any, value: Any, kinds: list[Any]) -> list[Any]:
        dtype, sizes, _, device = kinds[0]
        if type(n) is int and n <= _LONGEST_COMPARED:
            arguments = [n, *self._next(node, value), _inkle.DType(dtype)]
            return self._row(node, "inkle::permutation", arguments, kinds)
        words = self._numbers("inkle::integers", node, value, ("i64", sizes, None, device), 0, 2**32)
        return self._importer.import_call(node, "inkle::ranks", [words], kinds, Ranks(value.dtype))

    def _numbers(self, row: str, node: Node, value: Any, kind: Any, *bounds: int) -> Any:
        dtype, sizes, _, _ = kind
        arguments = [sizes, *bounds, *self._next(node, value), _inkle.DType(dtype)]
        return self._row(node, row, arguments, [kind])[0]

    def _next(self, node: Node, value: Any) -> tuple[Any, int]:
        """The seed for a device, drawn where the first node asks for it, and the node's number."""
        device = value.device
        if device not in self._seeds:
            kind = ("i64", [], [], self._importer.device(device))
            made = self._importer.import_call(node, "inkle::seed", [], [kind], Seed(device))
            self._seeds[device] = made[0]
        self._number += 1
        return self._seeds[device], self._number

    def _row(self, node: Node, overload: str, arguments: list[Any], kinds: list[Any]) -> list[Any]:
        def refuse(*_: Any) -> Any:
            raise Refused(overload)

        in_eager = len(self._importer.importer.eager)
        results = self._importer.import_call(node, overload, arguments, kinds, refuse)
        if len(self._importer.importer.eager) != in_eager:
            raise Refused(f"{overload}: {self._importer.importer.eager[-1][2]}")
        return results
