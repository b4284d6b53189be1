"""Keeps scaled_dot_product_attention one op through AOTAutograd, which would split it.

In inference the call becomes the custom op ``inkle::attention``; under autograd it is left alone,
and what AOTAutograd makes of it is compiled.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


@torch.library.custom_op("inkle::attention", mutates_args=())
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    result = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return _with_strides_of_attention(result, query)


def _with_strides_of_attention(result: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    if result.dim() != 4:
        return result.contiguous()
    return result.transpose(1, 2).contiguous().transpose(1, 2)


@attention.register_fake
def _(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
      enable_gqa=False):
    sizes = list(query.shape[:-1]) + [value.shape[-1]]
    if query.dim() != 4:
        return query.new_empty(sizes)
    return query.new_empty([sizes[0], sizes[2], sizes[1], sizes[3]]).transpose(1, 2)


def _may_replace(node: torch.fx.Node) -> bool:
    def operand(index: int, name: str, default):
        if len(node.args) > index:
            return node.args[index]
        return node.kwargs.get(name, default)

    if operand(4, "dropout_p", 0.0) != 0.0:
        return False
    tensors = [operand(0, "query", None), operand(1, "key", None), operand(2, "value", None)]
    for tensor in tensors:
        example = tensor.meta.get("example_value") if isinstance(tensor, torch.fx.Node) else None
        if example is None or not example.is_floating_point() or example.is_nested:
            return False
        if example.dim() not in (3, 4) or example.device.type not in ("cpu", "cuda"):
            return False
        if torch.is_grad_enabled() and example.requires_grad:
            return False
    shapes = [t.meta["example_value"].shape for t in tensors]
    if len({len(s) for s in shapes}) != 1:
        return False
    # Batch dimensions that broadcast are left to eager's own rule.
    return all(shapes[0][0] == s[0] for s in shapes[1:])


def replace(gm: torch.fx.GraphModule) -> None:
    """Replaces the calls in a Dynamo graph, in place."""
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is not F.scaled_dot_product_attention:
            continue
        if _may_replace(node):
            node.args = _positional(node)
            node.target = torch.ops.inkle.attention.default
            node.kwargs = {}
    gm.recompile()


def _positional(node: torch.fx.Node) -> tuple:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    defaults = (None, None, None, None, 0.0, False, None, False)
    given = list(node.args)
    for name, default in list(zip(names, defaults))[len(given) :]:
        given.append(node.kwargs.get(name, default))
    return tuple(given)
