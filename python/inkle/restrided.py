"""Strides of a graph's values as eager makes them, where FX states others.

Fake tensors take a shortcut for some ops, and torch's versions differ in which. Eager is asked: the op
runs once, on memory of the same sizes and strides.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx.node import Node
from torch.utils._pytree import tree_leaves, tree_map

_aten = torch.ops.aten
# Not asked of operands with more elements: the call costs as long as one at run time.
_MOST_ELEMENTS = 2**22
Strides = list[tuple[Any, ...] | None]  # of each tensor that an op makes; None: as stated
_FOURIER = (_aten._fft_c2c.default, _aten._fft_r2c.default, _aten._fft_c2r.default)
# Their result lies as a copy of the first operand does.
_COPYING = tuple(
    getattr(getattr(_aten, name), overload)
    for name, overload in (
        ("diagonal_scatter", "default"), ("index_fill", "int_Scalar"), ("index_fill", "int_Tensor"),
        ("select_scatter", "default"), ("slice_scatter", "default"), ("zero", "default"),
    )
)  # fmt: skip
# Of operands of several layouts, as pointwise ops, whose tag these do not have.
_UNTAGGED = tuple(
    getattr(_aten, name).default
    for name in (
        "_log_softmax_backward_data", "binary_cross_entropy", "binary_cross_entropy_backward",
        "elu_backward", "hardshrink_backward", "hardsigmoid_backward", "hardswish_backward",
        "hardtanh_backward", "huber_loss_backward", "leaky_relu_backward", "log_sigmoid_backward",
        "mish_backward", "mse_loss_backward", "native_dropout_backward", "smooth_l1_loss_backward",
        "softplus_backward", "softshrink_backward",
    )
)  # fmt: skip
_BATCH_NORMS = (
    _aten.native_batch_norm.default,
    _aten._native_batch_norm_legit.no_stats,
    _aten._native_batch_norm_legit_functional.default,
    _aten._native_batch_norm_legit_no_training.default,
)


def correct(gm: torch.fx.GraphModule) -> None:
    """Puts eager's strides in ``meta["val"]``, also of what is computed from such values. Where an op
    refuses them, all stay as FX states them."""
    _correct_logsumexps(gm)
    found = {n: strides for n in gm.graph.nodes if (strides := _asked(n)) is not None}
    if not found:
        return
    values = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    mode = detect_fake_mode([v for v in values if isinstance(v, torch.Tensor)])
    if mode is None:
        return
    before = {n: n.meta.get("val") for n in gm.graph.nodes}
    try:
        with mode:
            _propagate(gm, found)
    except Exception:  # noqa: BLE001: a view that these strides do not have, an op that has no fake
        for node, value in before.items():
            if value is not None:
                node.meta["val"] = value


def _correct_logsumexps(gm: torch.fx.GraphModule) -> None:
    """Attention of f64 on a CPU has f64 logarithms, which torch 2.11 states to be of f32."""
    attention = _aten._scaled_dot_product_flash_attention_for_cpu.default
    for node in gm.graph.find_nodes(op="call_function", target=attention):
        result, logs = node.meta["val"]
        if result.dtype != torch.float64 or logs.dtype == torch.float64:
            continue
        with detect_fake_mode(logs):
            wide = torch.empty_strided(logs.shape, logs.stride(), dtype=torch.float64)
        node.meta["val"] = (result, wide)
        for getter in node.users:
            if getter.target is operator.getitem and getter.args[1] == 1:
                getter.meta["val"] = wide


def _propagate(gm: torch.fx.GraphModule, found: dict[Node, Strides]) -> None:
    moved: set[Node] = set()
    for node in gm.graph.nodes:
        if node.op != "call_function" or _writes(node):
            continue
        value = node.meta.get("val")
        is_after = any(n in moved for n in node.all_input_nodes)
        if is_after and _tensors(value):
            if node.meta.get("unbacked_bindings"):
                continue  # its sizes are names
            args, kwargs = tree_map(_value, (node.args, dict(node.kwargs)))
            made = node.target(*args, **kwargs)
            if _strides(made) != _strides(value) or _is_view_of(node, moved):
                node.meta["val"] = made
                moved.add(node)
        # Of operands that lie otherwise than FX states eager was asked for others.
        strides = _asked(node) if is_after else found.get(node)
        value = node.meta.get("val")
        if strides is not None:
            node.meta["val"] = _laid_out(value, strides)
            moved.add(node)


def _laid_out(value: Any, strides: Strides) -> Any:
    given = iter(strides)

    def one(leaf: Any) -> Any:
        chosen = next(given) if isinstance(leaf, torch.Tensor) else None
        if chosen is None:
            return leaf
        return torch.empty_strided(leaf.shape, chosen, dtype=leaf.dtype, device=leaf.device)

    return tree_map(one, value)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, Node) else argument


def _writes(node: Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _is_view_of(node: Node, moved: set[Node]) -> bool:
    """Whether its memory is that of a value that is another since."""
    schema = getattr(node.target, "_schema", None)
    is_view = schema is None or any(r.alias_info is not None for r in schema.returns)
    return is_view and any(n in moved for n in node.all_input_nodes)


def _strides(value: Any) -> list[Any]:
    return [[str(s) for s in (*t.stride(), t.storage_offset())] for t in _tensors(value)]


# --- What eager is asked --------------------------------------------------------------------------


def _asked(node: Node) -> Strides | None:
    """The strides that eager makes of each result, where they are others than FX states."""
    stated = _tensors(node.meta.get("val"))
    if not isinstance(node.target, torch._ops.OpOverload) or not all(map(_is_plain, stated)):
        return None
    operands = _tensors([n.meta.get("val") for n in node.all_input_nodes])
    if not stated or not _may_differ(node, stated[0], operands):
        return None
    try:
        if sum(_count(t) for t in operands) > _MOST_ELEMENTS:
            return None
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            fill = 0 if node.target in _COPYING else 1  # an index or a divisor
            args, kwargs = tree_map(lambda a: _operand(a, fill), (node.args, dict(node.kwargs)))
            made = _tensors(node.target(*args, **kwargs))
        found = [_other(m, s) for m, s in zip(made, stated, strict=True)]
    except Exception:  # noqa: BLE001: a size without a hint, or what eager refuses
        return None
    return None if all(f is None for f in found) else found


def _other(made: torch.Tensor, stated: torch.Tensor) -> tuple[Any, ...] | None:
    """The strides of ``made``, where they are not as stated."""
    sizes, strides = _hints(stated.shape), _hints(stated.stride())
    pairs = zip(made.stride(), strides, sizes)
    if list(made.shape) != sizes or all(a == b for a, b, n in pairs if n > 1):
        return None
    return _symbolic(made, stated.shape)


def _symbolic(made: torch.Tensor, sizes: torch.Size) -> tuple[Any, ...] | None:
    """The strides of a result without gaps, for all sizes."""
    if all(isinstance(n, int) for n in sizes):
        return tuple(made.stride())
    strides: list[Any] = list(made.stride())
    step, hint = 1, 1
    for d in sorted(range(made.dim()), key=lambda d: (made.stride(d), made.shape[d])):
        if made.shape[d] > 1 and made.stride(d) != hint:
            return None
        strides[d] = step
        step, hint = step * sizes[d], hint * made.shape[d]
    return tuple(strides)


def _hints(numbers: Any) -> list[int]:
    """Raises where one depends on data."""
    return [n if isinstance(n, int) else int(n.node.hint) for n in numbers]


def _count(value: torch.Tensor) -> int:
    return math.prod(_hints(value.shape))


def _operand(argument: Any, fill: int) -> Any:
    """A tensor as eager would give it to an op. Views are made anew by eager's ops: of dimensions of size 1
    FX states other strides, by which eager orders those of a result."""
    if not isinstance(argument, Node):
        return _real(argument, fill)
    schema = getattr(argument.target, "_schema", None)
    aliases = [r.alias_info for r in schema.returns] if schema is not None else []
    if not aliases or any(a is None or a.is_write for a in aliases):
        return _real(argument.meta["val"], fill)
    args, kwargs = tree_map(lambda a: _operand(a, fill), (argument.args, dict(argument.kwargs)))
    return argument.target(*args, **kwargs)


def _real(value: Any, fill: int) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymBool)):
        return type(value.node.hint)(value.node.hint)
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = _hints(value.shape), _hints(value.stride())
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device).fill_(fill)


def _is_plain(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type in ("cpu", "cuda")
    )


def _may_differ(node: Node, stated: torch.Tensor, operands: list[torch.Tensor]) -> bool:
    """Ops of which FX is known to state other strides."""
    if stated.dim() < 2 or not operands or not all(map(_is_plain, operands)):
        return False
    target = node.target
    if target in _FOURIER:
        return True
    if target in _COPYING:
        return not _is_row_major(operands[0])
    if target in _BATCH_NORMS:
        return not (_is_row_major(operands[0]) or _has_channels_last(operands[0]))
    if target is _aten.angle.default:
        return operands[0].is_complex() and not _is_row_major(operands[0])
    is_pointwise = torch.Tag.pointwise in target.tags or target in _UNTAGGED
    return is_pointwise and _is_mixed(operands)


def _is_mixed(operands: list[torch.Tensor]) -> bool:
    """Of several layouts, not all of them row-major, also in dimensions of size 1."""
    operands = [t for t in operands if t.dim() > 0]
    layouts = {(*map(str, (*t.shape, *t.stride())), t.dtype) for t in operands}
    return len(layouts) > 1 and not all(map(_is_row_major, operands))


def _is_row_major(value: torch.Tensor) -> bool:
    strides, step = [], 1
    for size in reversed(value.shape):
        strides.insert(0, step)
        step = step * size
    return list(map(str, strides)) == list(map(str, value.stride()))


def _has_channels_last(value: torch.Tensor) -> bool:
    if value.dim() not in (4, 5):
        return False
    order = (0, *range(2, value.dim()), 1)
    return _is_row_major(value.permute(order))
