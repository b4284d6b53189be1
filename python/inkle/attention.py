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
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


@attention.register_fake
def _(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
      enable_gqa=False):
    # Which strides eager's result has depends on the kernel that it picks: ask it.
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


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
