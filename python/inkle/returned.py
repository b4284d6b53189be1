"""What a graph returns is to eyes outside of it what eager returns: lazily conjugated or negated
tensors, and views of arguments that share their memory."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.node import Node


def settled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if its memory does not hold its values (a lazy conjugate or negative)."""
    if tensor.is_neg() or (tensor.is_complex() and tensor.is_conj()):
        return torch.empty_like(tensor).copy_(tensor)
    return tensor


def _unsettled(tensor: torch.Tensor, conjugate: bool, negative: bool) -> torch.Tensor:
    """A tensor of the same value, sizes and strides that is lazy about its value."""
    made = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    lazy = torch._neg_view(made) if negative else made
    lazy = torch._conj(lazy) if conjugate else lazy
    lazy.copy_(tensor)
    return lazy


class Returned:
    """The results of one graph. ``walker``: its ``GraphImporter``, at the node ``output``.

    Of a result that is a view of an argument or of another result AOTAutograd makes the view anew:
    by its ops, or, where an op takes a symbolic size, by the sizes, strides and offset of what the
    graph returned. Those must be eager's then.
    """

    def __init__(self, walker: Any, output: Node):
        self._walker = walker
        self._results = set(output.all_input_nodes)
        self._written: dict[Node, Node] = {}  # by what made the memory of the new value: the write
        for write in output.graph.nodes:
            if write.target is torch.ops.aten.copy_.default and isinstance(write.args[1], Node):
                self._written[_views(write.args[1])[-1]] = write
        self._in_eager = walker.names_in_eager()

    def value(self, node: Node, found: Any) -> tuple[Any, str]:
        """What to return for a tensor of the graph, whose value is ``found``, and the source of the
        node if that may be no copy."""
        meta = node.meta["val"]
        chain = _views(node)
        root = chain[-1]
        is_shown = root in self._written or root in self._results or root.op == "placeholder"
        if root is node or not is_shown or not any(map(_takes_symbols, chain[:-1])):
            is_lazy = (meta.is_conj() or meta.is_neg()) and not _repeats(meta)
            return (self._lazy(node, found, meta) if is_lazy else found), ""
        base = root.meta["val"]
        if meta.dtype != base.dtype or any(t.is_conj() or t.is_neg() for t in (meta, base)):
            self._walker.refuse(f"{node.name} is a view of other numbers by symbolic sizes")
        if root not in self._written and not any(n.name in self._in_eager for n in chain[:-1]):
            return found, self._walker.source(node)
        source = self._written.get(root, root)
        if source is not root and not _lie_alike(source, base):
            self._walker.refuse(f"{node.name} is a view of a written argument that lies otherwise")
        # Its memory after all writes; nobody but AOTAutograd sees it before.
        return self._view(node, self._walker.argument(source), meta, base), ""

    def _lazy(self, node: Node, found: Any, meta: torch.Tensor) -> Any:
        conjugate, negative = meta.is_conj(), meta.is_neg()

        def run(x: torch.Tensor) -> list[torch.Tensor]:
            with torch.no_grad():
                return [_unsettled(x, conjugate, negative)]

        name = "lazy conjugate" if conjugate else "lazy negative"
        kind = self._walker.type(meta)
        (made,) = self._walker.import_call(node, f"inkle::{name}", [found], [kind], run)
        return made

    def _view(self, node: Node, base: Any, meta: torch.Tensor, root: torch.Tensor) -> Any:
        """The view as eager has it, by its sizes and strides, of the whole tensor ``base``."""
        dtype, sizes, strides, device = self._walker.type(meta)
        offset = self._walker.integer(meta.storage_offset() - root.storage_offset())
        if _repeats(meta):
            self._walker.refuse(f"{node.name} repeats parts of an argument")
        rank = len(sizes)

        def run(x: torch.Tensor, *numbers: int) -> list[torch.Tensor]:
            at = x.storage_offset() + numbers[-1]
            with torch.no_grad():
                return [x.as_strided(numbers[:rank], numbers[rank:-1], at)]

        kind = (dtype, sizes, strides, device)
        (made,) = self._walker.import_call(
            node, "inkle::view", [base, sizes, strides, offset], [kind], run
        )
        return made


def _views(node: Node) -> list[Node]:
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


def _lie_alike(write: Node, root: torch.Tensor) -> bool:
    """Whether an argument lies in its memory as its new value does in ``root``'s."""
    argument, value = (n.meta["val"] for n in write.args[:2])
    alike = [a == b for a, b in zip(map(str, argument.stride()), map(str, value.stride()))]
    return all(alike) and str(value.storage_offset()) == str(root.storage_offset())


def _is_view(schema: Any) -> bool:
    infos = [r.alias_info for r in schema.returns]
    return bool(infos) and all(i is not None and not i.is_write for i in infos)


def _repeats(value: torch.Tensor) -> bool:
    return any(isinstance(t, int) and t == 0 for t in value.stride())


def _takes_symbols(node: Node) -> bool:
    numbers = (n.meta.get("val") for n in node.all_input_nodes)
    return any(isinstance(n, (torch.SymInt, torch.SymBool)) for n in numbers)
