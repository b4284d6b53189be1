"""Dropout that is drawn again in the backward instead of saved.

In a Dynamo graph each call of ``dropout`` becomes the custom op ``inkle::dropout``, which takes a
seed that the graph draws once a call from torch's generator, and its own number in the graph. The
op is linear: with the same seed it is its own gradient, so that the seed is all that is saved.
"""

from __future__ import annotations

import math
from typing import Sequence

import torch
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import guard_or_false

from inkle import attend
from inkle.philox import dropped_below, kept_scale, philox

_LARGEST_SEED = 2**63 - 1
# Each dropout of a graph has so many random numbers of its own.
_NUMBERS = 2**40
# Bits that random fractions of whole numbers have below those of their range: src/ops/random.cpp.
_SPARE_BITS = 24
_WORD = 2**32 - 1


def draw_seed(device: torch.device) -> torch.Tensor:
    return torch.randint(_LARGEST_SEED, (), dtype=torch.int64, device=device)


@torch.library.custom_op(
    "inkle::seed", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def seed(like: torch.Tensor) -> torch.Tensor:
    """A number from the generator of the tensor's device."""
    return draw_seed(like.device)


@seed.register_fake
def _(like):
    return torch.empty((), dtype=torch.int64, device=like.device)


def _words(
    sizes: Sequence[int], seed: torch.Tensor, number: int, which: int = 0
) -> torch.Tensor:
    """32 random bits for each element of a tensor of these sizes: number ``which`` below 4."""
    offset = torch.arange(math.prod(sizes), dtype=torch.int64, device=seed.device)
    return philox(seed, offset + (number * _NUMBERS + which * (_NUMBERS // 4))).view(sizes)


@torch.library.custom_op("inkle::dropout", mutates_args=())
def dropout(input: torch.Tensor, seed: torch.Tensor, number: int, p: float) -> torch.Tensor:
    kept = _words(input.shape, seed, number) >= dropped_below(p)
    wide = torch.promote_types(input.dtype, torch.float32)
    factor = kept * torch.tensor(kept_scale(p), dtype=wide, device=input.device)
    out = torch.empty_like(input)
    return out.copy_(input.to(wide) * factor)


def seeded_native_dropout(
    input: torch.Tensor, seed: torch.Tensor, number: int, p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    kept = _words(input.shape, seed, number) >= dropped_below(p)
    return dropout(input, seed, number, p), kept


def seeded_uniform(
    sizes: Sequence[int], seed: torch.Tensor, number: int, dtype: torch.dtype
) -> torch.Tensor:
    bits = {torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}[dtype]
    return ((_words(sizes, seed, number) >> (32 - bits)).float() * 2.0**-bits).to(dtype)


def seeded_normal(
    sizes: Sequence[int], seed: torch.Tensor, number: int, dtype: torch.dtype
) -> torch.Tensor:
    first, second = ((_words(sizes, seed, number, which) >> 8) + (which == 0) for which in (0, 1))
    radius = (-2 * (first.float() * 2.0**-24).log()).sqrt()
    return (radius * (second.float() * 2.0**-24 * (2 * math.pi)).cos()).to(dtype)


def seeded_integers(
    sizes: Sequence[int], low: int, high: int, seed: torch.Tensor, number: int, dtype: torch.dtype
) -> torch.Tensor:
    count = high - low
    spare = 0 if count & (count - 1) == 0 else _SPARE_BITS
    words = max(1, -(-((count - 1).bit_length() + spare) // 32))
    # The whole part of count times a fraction of so many words, from the last to the first.
    above = torch.zeros(list(sizes), dtype=torch.int64, device=seed.device)
    for which in reversed(range(words)):
        word = _words(sizes, seed, number, which)
        low_part = word * (count & _WORD) + (above & _WORD)
        above = word * (count >> 32) + (low_part >> 32 & _WORD) + (above >> 32 & _WORD)
    return (above + low).to(dtype)


def seeded_permutation(
    n: int, seed: torch.Tensor, number: int, dtype: torch.dtype
) -> torch.Tensor:
    return ranks(_words([n], seed, number)).to(dtype)


def ranks(words: torch.Tensor) -> torch.Tensor:
    """Where each element goes when they are sorted, the earlier first of equal ones."""
    order = torch.argsort(words, stable=True)
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


@dropout.register_fake
def _(input, seed, number, p):
    return torch.empty_like(input)


def _keep(ctx, inputs, output) -> None:
    _, seed, ctx.number, ctx.p = inputs
    ctx.save_for_backward(seed)


def _gradient(ctx, gradient):
    (seed,) = ctx.saved_tensors
    return dropout(gradient, seed, ctx.number, ctx.p), None, None, None


dropout.register_autograd(_gradient, setup_context=_keep)


def _arguments(node: torch.fx.Node) -> tuple | None:
    """(input, p) of a call that drops something and can be replaced."""
    if node.op != "call_function" or node.target is not F.dropout:
        return None
    names, defaults = ("input", "p", "training", "inplace"), (None, 0.5, True, False)
    given = list(node.args)
    for name, default in list(zip(names, defaults))[len(given) :]:
        given.append(node.kwargs.get(name, default))
    x, p, training, inplace = given
    example = x.meta.get("example_value") if isinstance(x, torch.fx.Node) else None
    if not isinstance(p, (int, float)) or training is not True or inplace is not False:
        return None
    if type(example) is not torch._subclasses.FakeTensor or not example.is_floating_point():
        return None
    if not 0 < p <= 1 or example.device.type not in ("cpu", "cuda"):
        return None
    return x, float(p)


def _is_input_on(node: torch.fx.Node, device: torch.device) -> bool:
    """What is only read for its device; of an intermediate value passes would see one more reader."""
    example = node.meta.get("example_value")
    return (
        node.op == "placeholder"
        and isinstance(example, torch.Tensor)
        and type(example) in (torch._subclasses.FakeTensor, torch.nn.Parameter)
        and example.device == device
    )


def leave_out(gm: torch.fx.GraphModule) -> None:
    """Removes calls on tensors without elements from a Dynamo graph, in place: eager returns the operand
    itself, AOTAutograd a new tensor. Where sizes vary, whether there are elements is a guard."""
    for node in gm.graph.find_nodes(op="call_function", target=F.dropout):
        x = node.args[0] if node.args else node.kwargs["input"]
        example = x.meta.get("example_value") if isinstance(x, torch.fx.Node) else None
        if isinstance(example, torch.Tensor) and guard_or_false(example.numel() == 0):
            node.replace_all_uses_with(x)
            gm.graph.erase_node(node)
            gm.recompile()


def replace(gm: torch.fx.GraphModule) -> None:
    """Replaces the calls in a Dynamo graph, in place; not those that checkpointing repeats."""
    seeds: dict[torch.device, torch.fx.Node] = {}

    def seed_for(node: torch.fx.Node, x: torch.fx.Node) -> torch.fx.Node:
        device = x.meta["example_value"].device
        if device not in seeds:
            like = next((n for n in gm.graph.nodes if _is_input_on(n, device)), x)
            with gm.graph.inserting_before(node):
                seeds[device] = gm.graph.call_function(torch.ops.inkle.seed.default, (like,))
        return seeds[device]

    number = 0
    for node in gm.graph.nodes:
        if (found := _arguments(node)) is not None:
            x, p = found
            node.args = (x, seed_for(node, x), number, p)
            node.target = torch.ops.inkle.dropout.default
        elif (found := attend.arguments(node)) is not None and found[1][0] > 0:
            (query, key, value, mask), (p, is_causal, scale) = found
            node.args = (query, key, value, mask, seed_for(node, query), number, p, is_causal, scale)
            node.target = attend.differentiable
        else:
            continue
        node.kwargs = {}
        number += 1
    if number:
        gm.recompile()
