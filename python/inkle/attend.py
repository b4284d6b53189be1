"""Attention in training as one op with its gradient: what the compiler's own rows of these names do,
as operators of torch. Both draw dropout's numbers from a seed; neither keeps a matrix of weights."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from inkle.philox import dropped_below, kept_scale, philox_words

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_INFINITY = float("inf")
# Columns that share a run of Philox, and how far apart they are.
_BLOCK, _APART = 64, 16


def factors(
    sizes: tuple[int, int, int, int], seed: torch.Tensor, number: int, p: float
) -> torch.Tensor:
    """What the weights (batch, head, row, column) are multiplied by, in f32."""
    batch, heads, rows, columns = sizes
    column = torch.arange(columns, dtype=torch.int64, device=seed.device)
    row = torch.arange(batch * heads * rows, dtype=torch.int64, device=seed.device)[:, None]
    counter = (column // _BLOCK * _APART + column % _APART).expand(len(row), columns)
    row = row.expand_as(counter)
    last = torch.full_like(row, number + 1)
    words = philox_words(seed, [counter, row & 0xFFFFFFFF, row >> 32, last])
    which = (column % _BLOCK // _APART).expand_as(counter)
    word = torch.stack(words).gather(0, which[None])[0]
    return ((word >= dropped_below(p)) * kept_scale(p)).float().view(sizes)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _passes(
    scores: torch.Tensor, attn_mask: torch.Tensor | None, is_causal: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Where a bool mask is true; where the row may look at the column at all."""
    causal = None
    if is_causal:
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    is_bool = attn_mask is not None and attn_mask.dtype == torch.bool
    return attn_mask if is_bool else None, causal


def _scores(
    query: torch.Tensor, key: torch.Tensor, attn_mask: torch.Tensor | None, is_causal: bool,
    scale: float, hidden: float,
) -> torch.Tensor:  # fmt: skip
    repeated = _wide(key).repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = (_wide(query) * scale) @ repeated.transpose(-2, -1)
    shown, causal = _passes(scores, attn_mask, is_causal)
    if shown is not None:
        scores = torch.where(shown, scores, hidden)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores if causal is None else torch.where(causal, scores, -_INFINITY)


@torch.library.custom_op("inkle::attend", mutates_args=())
def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    seed: torch.Tensor | None,
    number: int,
    p: float,
    is_causal: bool,
    scale: float,
    safe: bool,
    hidden: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and of each row the largest score and the sum of exp(score - that)."""
    scores = _scores(query, key, attn_mask, is_causal, scale, hidden)
    if scores.shape[-1] == 0:
        most = scores.new_full((*scores.shape[:-1], 1), -_INFINITY)
    else:
        most = scores.amax(-1, keepdim=True)
    centre = torch.where(most == -_INFINITY, 0.0, most)
    weights = (scores - centre).exp()  # no columns at all give zeros, whatever `safe` says
    total = weights.sum(-1, keepdim=True)
    divisor = torch.where(total == 0, 1.0, total) if safe else total
    weights = weights / divisor
    if p > 0:
        weights = weights * factors(tuple(scores.shape), seed, number, p)
    values = _wide(value).repeat_interleave(query.shape[1] // value.shape[1], 1)
    return (weights @ values).to(query.dtype), torch.cat([most, total], -1)


@torch.library.custom_op("inkle::attend_backward", mutates_args=())
def attend_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    statistics: torch.Tensor,
    attn_mask: torch.Tensor | None,
    seed: torch.Tensor | None,
    number: int,
    p: float,
    is_causal: bool,
    scale: float,
    safe: bool,
    hidden: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    share = query.shape[1] // key.shape[1]
    scores = _scores(query, key, attn_mask, is_causal, scale, hidden)
    most, total = statistics.split(1, -1)
    inverse = torch.where(total == 0, 0.0, 1 / total) if safe else 1 / total
    weights = (scores - torch.where(most == -_INFINITY, 0.0, most)).exp() * inverse
    gradient = _wide(grad) @ _wide(value).repeat_interleave(share, 1).transpose(-2, -1)
    kept = weights
    if p > 0:
        drawn = factors(tuple(scores.shape), seed, number, p)
        kept, gradient = weights * drawn, gradient * drawn
    level = (_wide(grad) * _wide(out)).sum(-1, keepdim=True)
    inner = weights * (gradient - level) * scale
    for shown in _passes(scores, attn_mask, is_causal):
        if shown is not None:
            inner = torch.where(shown, inner, 0.0)

    def of_keys(per_head: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        batch, heads, length, width = like.shape
        return per_head.view(batch, heads, share, length, width).sum(2).to(like.dtype)

    transposed = inner.transpose(-2, -1)
    return (
        (inner @ _wide(key).repeat_interleave(share, 1)).to(query.dtype),
        of_keys(transposed @ _wide(query), key),
        of_keys(kept.transpose(-2, -1) @ _wide(grad), value),
    )


@attend.register_fake
def _(query, key, value, attn_mask, seed, number, p, is_causal, scale, safe, hidden):
    # Which strides eager's result has depends on the kernel that it picks: ask it.
    grouped = bool(query.shape[1] != key.shape[1])
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask, p, is_causal, scale=scale, enable_gqa=grouped
    )
    wide = torch.promote_types(query.dtype, torch.float32)
    return out, query.new_empty([*query.shape[:3], 2], dtype=wide)


@attend_backward.register_fake
def _(grad, query, key, value, out, statistics, *_):
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _keep(ctx, inputs, output) -> None:
    query, key, value, attn_mask, seed, *ctx.rest = inputs
    ctx.save_for_backward(query, key, value, *output, attn_mask, seed)
    ctx.set_materialize_grads(False)


def _gradient(ctx, grad, _):
    none = [None] * (2 + len(ctx.rest))
    if grad is None:
        return None, None, None, *none
    tensors = ctx.saved_tensors
    made = torch.ops.inkle.attend_backward(grad, *tensors[:5], *tensors[5:], *ctx.rest)
    return *made, *none


attend.register_autograd(_gradient, setup_context=_keep)


_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_DEFAULTS = (None, None, None, None, 0.0, False, None, False)


def positional(node: torch.fx.Node) -> tuple:
    """All arguments of a call of F.scaled_dot_product_attention, in their order."""
    given = list(node.args)
    for name, default in list(zip(_NAMES, _DEFAULTS))[len(given) :]:
        given.append(node.kwargs.get(name, default))
    return tuple(given)


def differentiable(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    seed: torch.Tensor | None,
    number: int,
    p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """F.scaled_dot_product_attention on the CPU, as AOTAutograd traces it; dropout draws from the
    seed."""
    if torch.is_autocast_enabled("cpu"):  # as it would cast them itself
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = (t.to(dtype) for t in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    heads = query.dim() == 4
    if not heads:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(1)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    result, _ = torch.ops.inkle.attend(
        query, key, value, attn_mask, seed, number, p, is_causal, factor, True, -_INFINITY
    )
    return result if heads else result.squeeze(1)


def arguments(node: torch.fx.Node) -> tuple | None:
    """(query, key, value, mask) and (p, is_causal, scale) of a call in a Dynamo graph that
    ``differentiable`` can stand for."""
    if node.op != "call_function" or node.target is not F.scaled_dot_product_attention:
        return None
    *tensors, p, is_causal, scale, enable_gqa = positional(node)
    if not isinstance(p, (int, float)) or not 0 <= p <= 1 or not isinstance(is_causal, bool):
        return None
    if scale is not None and not isinstance(scale, (int, float)):
        return None
    examples = [t.meta.get("example_value") if t is not None else None for t in tensors]
    q, k, v, mask = examples
    if any(type(t) is not torch._subclasses.FakeTensor for t in (q, k, v)) or q.is_nested:
        return None
    same = q.dim() in (3, 4) and q.dim() == k.dim() == v.dim() and q.device.type == "cpu"
    if not same or any(t.dtype not in _DTYPES or t.device != q.device for t in (q, k, v)):
        return None
    if type(q.shape[-1]) is not int or type(v.shape[-1]) is not int:
        return None
    if q.shape[-1] == 0 or v.shape[-1] == 0:
        return None
    if not torch.is_autocast_enabled("cpu") and not q.dtype == k.dtype == v.dtype:
        return None
    if any(q.shape[0] != t.shape[0] for t in (k, v)):
        return None
    if q.dim() == 4 and (k.shape[1] != v.shape[1] or (not enable_gqa and q.shape[1] != k.shape[1])):
        return None
    if q.dim() == 4 and k.shape[1] == 0:
        return None
    if tensors[3] is not None:
        if type(mask) is not torch._subclasses.FakeTensor or mask.requires_grad or is_causal:
            return None
        if not 2 <= mask.dim() <= q.dim() or mask.dtype not in (torch.bool, *_DTYPES):
            return None
    return tuple(tensors), (float(p), is_causal, scale)
