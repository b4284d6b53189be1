"""Cross entropy that saves one value a row for the backward instead of the log-softmax.

ATen's saves the logarithms of all probabilities, as large as the logits. Here the sum of exponentials
of each row is saved, in f32, and the backward recomputes the probabilities from the logits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


class _RowLosses(torch.autograd.Function):
    """The loss of each row, 0 where the target is ``ignored``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, target: torch.Tensor, ignored: int) -> torch.Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        total = wide.logsumexp(1)
        # Rows with an infinite sum have no logarithms of probabilities: NaN, as in eager.
        total = total + (total - total)
        counts = target != ignored
        picked = wide.gather(1, torch.where(counts, target, 0)[:, None]).squeeze(1)
        ctx.save_for_backward(x, target, total)
        ctx.ignored = ignored
        return torch.where(counts, total - picked, 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        x, target, total = ctx.saved_tensors
        columns = torch.arange(x.shape[1], device=x.device)
        is_target = columns[None, :] == target[:, None]
        probability = (x.to(total.dtype) - total[:, None]).exp()
        share = torch.where(target != ctx.ignored, gradient, 0.0)[:, None]
        return (share * (probability - is_target.to(total.dtype))).to(x.dtype), None, None


def cross_entropy(
    x: torch.Tensor, target: torch.Tensor, ignored: int, how: str, dtype: torch.dtype
) -> torch.Tensor:
    losses = _RowLosses.apply(x, target, ignored)
    if how == "none":
        return losses.to(dtype)
    if how == "sum":
        return losses.sum().to(dtype)
    return (losses.sum() / (target != ignored).sum()).to(dtype)


def _arguments(node: torch.fx.Node) -> tuple | None:
    """(input, target, ignored index, reduction, dtype) of a call that can be replaced."""
    if node.op != "call_function" or node.target is not F.cross_entropy:
        return None
    names = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction",
             "label_smoothing")  # fmt: skip
    defaults = (None, None, None, None, -100, None, "mean", 0.0)
    given = list(node.args)
    for name, default in list(zip(names, defaults))[len(given) :]:
        given.append(node.kwargs.get(name, default))
    x, target, weight, average, ignored, reduce, how, smoothing = given
    if weight is not None or average is not None or reduce is not None or smoothing != 0.0:
        return None
    if not isinstance(ignored, int) or how not in ("none", "sum", "mean"):
        return None
    examples = [t.meta.get("example_value") if isinstance(t, torch.fx.Node) else None
                for t in (x, target, node)]  # fmt: skip
    if any(type(e) is not torch._subclasses.FakeTensor for e in examples):
        return None
    # Under autocast the loss of narrow logits is computed, and is, in f32.
    logits, labels, result = examples
    if logits.dim() != 2 or labels.dim() != 1 or labels.dtype != torch.int64:
        return None
    floats = (torch.float32, torch.bfloat16, torch.float16)
    if logits.dtype not in floats or logits.device.type not in ("cpu", "cuda"):
        return None
    if result.dtype not in (logits.dtype, torch.float32):
        return None
    return (x, target, ignored, how, result.dtype) if logits.requires_grad else None


def replace(gm: torch.fx.GraphModule) -> None:
    """Replaces the calls in a Dynamo graph that trains, in place."""
    if not torch.is_grad_enabled():
        return
    changed = False
    for node in gm.graph.nodes:
        if (found := _arguments(node)) is None:
            continue
        node.target, node.args, node.kwargs = cross_entropy, found, {}
        changed = True
    if changed:
        gm.recompile()
