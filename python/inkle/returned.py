"""What a graph returns is to eyes outside of it what eager returns: lazily conjugated or negated
tensors, and memory that results share with arguments and with each other."""

from __future__ import annotations

import collections
import dataclasses
import operator
from typing import Any, Callable, Sequence

import torch
from torch._functorch import partitioners
from torch._functorch._aot_autograd.schemas import OutputType
from torch.fx.node import Node
from torch.utils._pytree import arg_tree_leaves

from inkle import layouts
from inkle.eager_calls import Lazy
from inkle.machine import OF_ITS_MEMORY, OF_NOTHING, as_strided, viewed


@dataclasses.dataclass(frozen=True)
class Callers:
    """What becomes of the results of a graph, by position."""

    # AOTAutograd makes them anew as views of arguments; None: it may of all that are such views.
    regenerated: frozenset[int] | None = None
    # Of these: those that it makes by the sizes, strides and offset of what the graph returned.
    restrided: frozenset[int] = frozenset()
    # Those that gradients flow to: no views to autograd, which sees the function that the graph is.
    tracked: frozenset[int] = frozenset()
    saved_from: int | None = None  # from here on only a backward sees them
    share: Callable[..., Any] = as_strided  # makes a result in the memory of another


def forward_callers() -> Callers:
    """Of the graph that AOTAutograd compiles: of inference, a forward, or a joint one.

    Results in the memory of others are views of them to autograd, too, where no gradients flow: of
    arguments that share memory and have no common base AOTAutograd makes a flat one, or (torch 2.11)
    refuses them.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None) if context else None
    infos = getattr(metadata, "output_info", None)
    if infos is None:
        return Callers(share=viewed)
    first = metadata.num_mutated_inp_runtime_indices
    kinds = (OutputType.alias_of_input, OutputType.is_input)
    views = {first + i: info for i, info in enumerate(infos) if info.output_type in kinds}
    restrided = frozenset(i for i, info in views.items() if _is_restrided(info))
    tracked = frozenset(first + i for i, info in enumerate(infos) if info.requires_grad)
    return Callers(frozenset(views), restrided, tracked, share=viewed)


def _is_restrided(info: Any) -> bool:
    """A view that AOTAutograd has no ops of, as several arguments share memory and the graph has one in
    their place, or that it does not make by ops that took symbolic sizes, which may be numbers since."""
    if info.output_type is not OutputType.alias_of_input:
        return False
    views = getattr(info, "view_meta_sequence", None)
    return views is None or any(v.has_symbolic_inputs for v in views.sequence)


def joint_callers(
    gm: torch.fx.GraphModule, num_forward_outputs: int, tangent_outputs: Sequence[int]
) -> Callers:
    """Of a joint graph, which AOTAutograd has no metadata of yet: gradients flow to what depends on an
    argument that has one, by ops that have a gradient; unless no result in its memory has a tangent, as it
    is made under ``no_grad``. ``tangent_outputs``: the result of each tangent, -1 for other arguments."""
    outputs = arg_tree_leaves(*gm.graph.output_node().args)
    results, gradients = outputs[:num_forward_outputs], outputs[num_forward_outputs:]
    arguments = [n for n in gm.graph.find_nodes(op="placeholder") if not partitioners._is_tangent(n)]
    if len(arguments) != len(gradients):
        return dataclasses.replace(forward_callers(), tracked=frozenset(range(len(results))))
    reached = {n for n, gradient in zip(arguments, gradients) if gradient is not None}
    for node in gm.graph.nodes:
        if _has_gradient(node) and any(n in reached for n in node.all_input_nodes):
            reached.add(node)
    flowing = {storage_of(results[i]) for i in tangent_outputs if i >= 0}
    made = [n for n in results if isinstance(n, Node) and views_of(n)[-1].op != "placeholder"]
    reached -= {n for n in made if storage_of(n) not in flowing}
    tracked = frozenset(i for i, r in enumerate(results) if r in reached)
    return dataclasses.replace(forward_callers(), tracked=tracked)


# They read sizes, strides and the dtype of their operand.
_BY_TYPE = frozenset(
    f"aten::{name}"
    for name in ("empty_like", "full_like", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros",
                 "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
)  # fmt: skip


def _has_gradient(node: Node) -> bool:
    """Whether gradients may flow from what a node makes to its arguments."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
        return False
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return node.target is not torch.ops.aten.detach.default and name not in _BY_TYPE


def saving_callers() -> Callers:
    """Of a forward graph that saves values for its backward."""
    callers = forward_callers()
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None) if context else None
    return callers if metadata is None else dataclasses.replace(
        callers, saved_from=metadata.num_forward
    )  # fmt: skip


BACKWARD = Callers(frozenset())


class Returned:
    """The results of one graph, in the memory that they lie in in eager. ``walker``: its
    ``GraphImporter``, at the node ``output``.

    Fake tensors tell which results share a storage. Of a result that is a view of an argument or of
    another result AOTAutograd makes the view anew: by its ops, or, where an op takes a symbolic
    size or the argument stands for several that share memory, by the sizes, strides and offset of
    what the graph returned. Those must be eager's then.
    """

    def __init__(self, walker: Any, output: Node, callers: Callers):
        self._walker = walker
        results = arg_tree_leaves(*output.args)
        self._saved_from = len(results) if callers.saved_from is None else callers.saved_from
        self._results = {r for r in results[: self._saved_from] if isinstance(r, Node)}
        self._written: dict[Node, Node] = {}  # by what made the memory of the new value: the write
        for write in output.graph.nodes:
            if write.target is torch.ops.aten.copy_.default and isinstance(write.args[1], Node):
                self._written[views_of(write.args[1])[-1]] = write
        self._regenerated, self._restrided = callers.regenerated, callers.restrided
        self._tracked = callers.tracked
        values = [n.meta.get("val") for n in output.graph.find_nodes(op="placeholder")]
        self._is_dynamic = any(isinstance(v, torch.SymInt) for v in values)
        self._makers = _makers(output.graph)
        self._users = collections.Counter(
            storage_of(r)
            for position, r in enumerate(results[: self._saved_from])
            if isinstance(r, Node) and not self._is_regenerated(position, views_of(r))
        )
        self._bases = self._bases_of(results)
        self._numbers: dict[int, int] = {}  # of storages that results share
        self._first: dict[Node, int] = {}

    def give(self, position: int, node: Node, found: Any) -> None:
        """Returns the tensor of a node, whose value is ``found``, as result ``position``."""
        importer, meta = self._walker.importer, node.meta["val"]
        if position < self._saved_from and self._first.setdefault(node, position) != position:
            self._walker.repeats[position] = self._first[node]
        chain = views_of(node)
        root = chain[-1]
        has_flag = meta.is_conj() or meta.is_neg()
        is_lazy = has_flag and not _repeats(meta)
        is_saved = position >= self._saved_from
        by_strides = position in self._restrided or any(map(_takes_symbols, chain[:-1]))
        by_strides |= self._regenerated is None and self._is_dynamic
        is_regenerated = self._is_regenerated(position, chain)
        # AOTAutograd reads its sizes after it has given arguments those that the graph gives them.
        if is_regenerated and node is not root:
            self._walker.apart.append(position)
        if is_regenerated and by_strides:
            self._regenerate(node, root)
            return
        if has_flag and self._users[storage_of(node)] > 1:
            self._walker.refuse(f"{node.name} is lazy and shares memory with another result")
        if is_lazy:
            importer.output(self._lazy(node, found, meta))
            return
        if is_saved or is_regenerated:
            importer.output(found, is_free=True)
            return
        base = root if root.op == "placeholder" else self._makers.get(storage_of(node), node)
        is_apart = _base_to_autograd(chain) is not self._bases.get(storage_of(node), root)
        if position in self._tracked:
            self._walker.view_of[position] = OF_NOTHING
        elif is_apart:
            self._walker.view_of[position] = self._returned_base(position, chain)
        if base.op == "placeholder":
            if node is not base:
                self._walker.apart.append(position)
            self._view(node, base, self._walker.argument(base), self._walker.argument(base))
        elif self._users[storage_of(node)] > 1 or _repeats_part_of(base, node):
            if is_apart or node is not _base_to_autograd(chain):  # what is no view in eager is the base
                self._walker.apart.append(position)
            self._view(node, base, self._walker.argument(base), self._number(node))
        else:
            importer.output(found)

    def _returned_base(self, position: int, chain: list[Node]) -> int:
        """The earlier result that a result behind ``detach()`` is a view of."""
        first = self._first.get(_base_to_autograd(chain), position)
        return OF_NOTHING if first == position or first in self._tracked else first

    def _bases_of(self, results: list[Any]) -> dict[int, Node]:
        """By storage of what the graph makes: what results are views of to autograd. That is what made
        the memory, where a result is a view of it, else the first ``detach()``; others are no views."""
        found: dict[int, Node] = {}
        for result in (r for r in results[: self._saved_from] if isinstance(r, Node)):
            chain = views_of(result)
            if chain[-1].op != "placeholder":
                base, storage = _base_to_autograd(chain), storage_of(result)
                if base is chain[-1] or storage not in found:
                    found[storage] = base
        return found

    def _is_regenerated(self, position: int, chain: list[Node]) -> bool:
        if position >= self._saved_from:
            return False
        if self._regenerated is not None:
            return position in self._regenerated
        # One of several views that an op makes at once AOTAutograd may take as it is.
        is_one_of_several = any(n.target is operator.getitem for n in chain)
        root = chain[-1]
        return (root.op == "placeholder" and not is_one_of_several) or root in self._written

    def _number(self, node: Node) -> int:
        return self._numbers.setdefault(storage_of(node), len(self._numbers))

    def _regenerate(self, node: Node, root: Node) -> None:
        """A view of which AOTAutograd reads where it lies."""
        meta, base = node.meta["val"], root.meta["val"]
        if meta.dtype != base.dtype or any(t.is_conj() or t.is_neg() for t in (meta, base)):
            self._walker.refuse(f"{node.name} is a view of other numbers")
        if root in self._written:
            write = self._written[root]
            argument = write.args[0]
            if argument.op == "placeholder" and argument.meta["val"].dtype != base.dtype:
                self._walker.refuse(f"{node.name} is a view of a written argument as other numbers")
            if argument.op != "placeholder" or not _lie_alike(write, base):
                self._walker.refuse(f"{node.name} is a view of a written argument that lies otherwise")
            # Its memory after all writes; only AOTAutograd sees it before.
            memory = self._walker.argument(argument)
            self._view(node, root, self._walker.argument(write), memory)
        else:
            memory = self._walker.argument(root)
            self._view(node, root, memory, memory if root.op == "placeholder" else self._number(node))

    def _view(self, node: Node, base: Node, value: Any, memory: Any) -> None:
        """What eager returns for ``node``: a view of ``value``, all that ``base`` is, in an argument
        or in a storage of results."""
        meta, whole = node.meta["val"], base.meta["val"]
        if meta.dtype != whole.dtype:
            self._walker.refuse(f"{node.name} shares memory with a result of another dtype")
        if _lies_otherwise(base):
            self._walker.refuse(f"{node.name} is a view of what lies otherwise than FX states")
        is_same = _geometry(meta) == _geometry(whole)
        if isinstance(memory, int) and not is_same and not _is_plain(whole):
            self._walker.refuse(f"{node.name} shares memory with a result that has gaps")
        offset = self._walker.integer(meta.storage_offset() - whole.storage_offset())
        self._walker.importer.output_view(value, self._walker.type(meta), offset, memory)

    def _lazy(self, node: Node, found: Any, meta: torch.Tensor) -> Any:
        conjugate, negative = meta.is_conj(), meta.is_neg()

        name = "lazy conjugate" if conjugate else "lazy negative"
        kind = self._walker.type(meta)
        run = Lazy(conjugate, negative)
        (made,) = self._walker.import_call(node, f"inkle::{name}", [found], [kind], run)
        return made


def by_result(told: dict[int, int]) -> list[int]:
    """``GraphImporter.repeats`` or ``view_of`` as a list by result, -1 for others."""
    return [told.get(i, OF_ITS_MEMORY) for i in range(max(told, default=-1) + 1)]


def storage_of(node: Node) -> int | None:
    """Of what a node is a view of: passes of torch make nodes anew, whose fake tensors are new, too."""
    value = views_of(node)[-1].meta.get("val")
    is_plain = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return value.untyped_storage()._cdata if is_plain else None


def _makers(graph: torch.fx.Graph) -> dict[int, Node]:
    """By storage: the node that made it. Two arguments may lie in one storage when traced and in two
    when called, so one that is not alone in its storage makes none. A tangent may have the fake
    storage of what it is the gradient of, and makes none either."""
    makers: dict[int, Node] = {}
    nodes = [n for n in graph.nodes if not partitioners._is_tangent(n)]
    arguments = collections.Counter(storage_of(n) for n in nodes if n.op == "placeholder")
    for node in nodes:
        storage = storage_of(node)
        if storage is not None and (node.op != "placeholder" or arguments[storage] == 1):
            makers.setdefault(storage, node)
    return makers


def _geometry(value: torch.Tensor) -> list[str]:
    return [str(n) for n in (*value.shape, *value.stride(), value.storage_offset())]


def _is_plain(value: torch.Tensor) -> bool:
    """Whether elements fill the storage from its begin without gaps."""
    offset = value.storage_offset()
    return isinstance(offset, int) and offset == 0 and layouts.is_dense(value)


def views_of(node: Node) -> list[Node]:
    """The node, what it is a view of, and so on to what made its memory."""
    chain = [node]
    while chain[-1].op == "call_function" and chain[-1].all_input_nodes:
        last = chain[-1]
        schema = getattr(last.target, "_schema", None)
        if last.target is operator.getitem:
            source = getattr(last.args[0].target, "_schema", None)
            if source is None or not _is_view(source):
                break
        elif schema is None or not _is_view(schema):
            break
        chain.append(last.args[0])
    return chain


# What they make shares memory with their operand and is no view of it to autograd.
_UNTRACKED = (torch.ops.aten.detach.default, torch.ops.aten.view.dtype)


def _base_to_autograd(chain: list[Node]) -> Node:
    """What the first of a chain of views is, or is a view of: behind ``detach()`` they are those of its
    result, and so behind ``view(dtype)``."""
    return next((n for n in chain if n.target in _UNTRACKED), chain[-1])


def _lie_alike(write: Node, root: torch.Tensor) -> bool:
    """Whether an argument lies in its memory as its new value does in ``root``'s."""
    argument, value = (n.meta["val"] for n in write.args[:2])
    alike = [a == b for a, b in zip(map(str, argument.stride()), map(str, value.stride()))]
    return all(alike) and str(value.storage_offset()) == str(root.storage_offset())


def _is_view(schema: Any) -> bool:
    infos = [r.alias_info for r in schema.returns]
    return bool(infos) and all(i is not None and not i.is_write for i in infos)


def _lies_otherwise(node: Node) -> bool:
    """Whether eager lays it out row-major where FX states its operand's strides: the angles of complex
    numbers."""
    if node.target is not torch.ops.aten.angle.default or node.meta["val"].is_contiguous():
        return False
    return node.args[0].meta["val"].is_complex()


def _repeats_part_of(base: Node, node: Node) -> bool:
    """Whether ``node`` shows elements of ``base`` several times: it has the strides of a view of it."""
    meta, whole = node.meta["val"], base.meta["val"]
    if base is node or any(t.is_conj() or t.is_neg() for t in (meta, whole)):
        return False
    return _repeats(meta) and meta.dtype == whole.dtype and whole.is_contiguous()


def _repeats(value: torch.Tensor) -> bool:
    return any(isinstance(t, int) and t == 0 for t in value.stride())


def _takes_symbols(node: Node) -> bool:
    numbers = (n.meta.get("val") for n in node.all_input_nodes)
    return any(isinstance(n, (torch.SymInt, torch.SymBool)) for n in numbers)
