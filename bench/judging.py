"""How a family of models is judged: what it gives in eager, compiled, and in f64, in inference and in
training (``families.py``)."""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
from typing import Any

import common
import torch
from torch.utils import _pytree as pytree

import inkle

# A model that cannot run in f64 is compared with eager itself, to this part of the scale.
FLOOR_ALONE = 2e-6
BF16_FLOOR, BF16_FLOOR_ALONE = 1e-3, 3e-2

# What a family gives for so many inputs is one sample: few numbers make a noisy ratio, and one input
# may be a lucky one.
INPUTS = 5

# The second call reads what the first has left. Of a recorded graph: the usual call, the recording, and
# replays.
CALLS, GRAPH_CALLS = 2, 4


def placed(built: Any, arguments: argparse.Namespace) -> Any:
    """The family on the device, its model of the type of inference."""
    dtype = torch.bfloat16 if arguments.dtype == "bf16" and not arguments.train else None

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(arguments.device, dtype if value.is_floating_point() else None)

    def call(model: Any, inputs: Any) -> Any:
        double = torch.get_default_dtype() == torch.float64
        is_cast = arguments.train and arguments.dtype == "bf16" and not double
        cast = torch.autocast(arguments.device, torch.bfloat16)
        with cast if is_cast else contextlib.nullcontext():
            return built.call(model, inputs)

    model = built.model.to(arguments.device, dtype)
    floors = (BF16_FLOOR, BF16_FLOOR_ALONE) if arguments.dtype == "bf16" else (None, FLOOR_ALONE)
    eps = torch.finfo(torch.bfloat16 if arguments.dtype == "bf16" else torch.float32).eps
    return Placed(model, lambda seed: pytree.tree_map(place, built.inputs(seed)), call, *floors, eps,
                  _poison if arguments.poison else lambda: None)  # fmt: skip


def _poison() -> None:
    """Makes NaN of the free memory that torch's allocator of the GPU has, of all sizes."""
    torch.cuda.empty_cache()
    sizes = [1 << 9] * 4096 + [1 << 16] * 512 + [1 << 20] * 256 + [1 << 27] * 8  # elements
    made = [torch.empty(n, dtype=torch.bfloat16, device="cuda") for n in sizes]
    torch._foreach_add_(made, float("nan"))
    del made


@dataclasses.dataclass
class Placed:
    """zoo.Built on a device, how to call one of its models, what errors count from (of f32's or
    bf16's type where a f64 model tells eager's own error, and where there is none), the last bit of
    what products read, of 1, and what is done before Inkle's turn."""
    model: Any
    inputs: Any
    call: Any
    floor: float | None
    floor_alone: float
    eps: float
    before: Any


def run_inference(built: Any, compiled: Any, double: Any, calls: int) -> dict[str, Any]:
    pooled: Any = None
    with torch.no_grad():
        for seed in range(INPUTS):
            inputs = built.inputs(seed)
            torch.manual_seed(seed)
            eager = built.call(built.model, inputs)
            for _ in range(calls):
                torch.manual_seed(seed)
                built.before()
                got = built.call(compiled, inputs)
            one = _compared(built, got, eager, double, inputs, seed)
            pooled = one if pooled is None else pooled.pool(one)
    return {"ok": pooled.ok, "accuracy": str(pooled)}


def run_other_batch(built: Any, compiled: Any, double: Any) -> dict[str, Any]:
    """What one compilation with symbolic sizes gives for another batch; nothing where eager takes none."""
    def grown(value: Any) -> Any:
        is_batch = isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == 2
        return torch.cat([value, value[:1], value]) if is_batch else value

    before, pooled = len(inkle.reports()), None
    for seed in range(11, 11 + INPUTS):
        inputs = pytree.tree_map(grown, built.inputs(seed))
        with torch.no_grad():
            try:
                torch.manual_seed(seed)
                eager = built.call(built.model, inputs)
            except Exception:  # noqa: BLE001: whatever the model's own code objects to
                return {}
            torch.manual_seed(seed)
            one = _compared(built, built.call(compiled, inputs), eager, double, inputs, seed)
        pooled = one if pooled is None else pooled.pool(one)
    result = {"new_graphs": len(inkle.reports()) - before}
    return result if pooled.ok else result | {"ok": False, "accuracy": f"other batch: {pooled}"}


def _compared(built: Any, got: Any, eager: Any, double: Any, inputs: Any, seed: int) -> Any:
    """Accuracy of one result, by f64's where the model runs so, else by eager's."""
    reference = _reference(built, double, inputs, seed, eager)
    if reference is None:
        return common.compare(got, eager, common.to_double(eager), built.floor_alone)
    return common.compare(got, eager, reference, built.floor)


def _reference(built: Any, double: Any, inputs: Any, seed: int, eager: Any) -> Any:
    """The f64 model's result; None where the model insists on its dtype."""
    torch.manual_seed(seed)
    try:
        torch.set_default_dtype(torch.float64)
        reference = built.call(double, common.to_double(inputs))
    except Exception:  # noqa: BLE001: whatever the model's own code objects to
        return None
    finally:
        torch.set_default_dtype(torch.float32)
    shapes = [[t.shape for t in common.tensors_of(v)] for v in (reference, eager)]
    return reference if shapes[0] == shapes[1] else None


def _step(built: Any, model: Any, owner: Any, inputs: Any) -> tuple[list[Any], dict[str, Any]]:
    """One forward and backward; outputs and the gradients of the parameters of ``owner``. The loss is
    the same in f64: its weights are drawn in f32, whatever the default dtype is."""
    owner.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    outputs = [t for t in common.tensors_of(built.call(model, inputs)) if t.requires_grad]
    generator = torch.Generator().manual_seed(7)
    loss = sum(
        (t * torch.randn(t.shape, generator=generator, dtype=torch.float32).to(t)).sum()
        / t.numel() ** 0.5
        for t in outputs
    )
    loss.backward()
    gradients = {n: p.grad for n, p in owner.named_parameters() if p.grad is not None}
    return [t.detach() for t in outputs], gradients


def train(built: Any, compile_model: Any, calls: int = CALLS) -> dict[str, Any] | str:
    """Accuracy of outputs, gradients and statistics by name, over all inputs; or what is wrong at once."""
    built.model.train()
    return _pooled_training(built, compile_model, calls)


def run_training(built: Any, compile_model: Any, calls: int) -> dict[str, Any]:
    pooled = train(built, compile_model, calls)
    if isinstance(pooled, str):
        return {"ok": False, "accuracy": pooled}
    worst, where = common.Accuracy(1e-7), "nothing"
    for name, one in pooled.items():
        if common.worse(worst, one) is one:
            worst, where = one, name
    misses = [f"{name}: {one}" for name, one in pooled.items() if not one.ok]
    result = {"ok": worst.ok, "accuracy": f"{where}: {worst}", "misses": misses}
    if not worst.ok and not worst.bad:
        disturbed: list[Any] = []
        while len(disturbed) < common.DISTURBED and not result.get("by_chance"):
            disturbed.append(_pooled_training(built, _disturbing(len(disturbed), built.eps), calls))
            result["by_chance"] = _is_by_chance(pooled, disturbed)
    return result


def _pooled_training(built: Any, made_of: Any, calls: int) -> dict[str, Any] | str:
    """Accuracy over all inputs of what ``made_of`` makes of a copy of the model, by name."""
    models = [copy.deepcopy(built.model), copy.deepcopy(built.model)]
    models.append(copy.deepcopy(built.model).double())
    run = made_of(models[1])
    pooled: dict[str, Any] = {}
    for seed in range(INPUTS):
        inputs = built.inputs(seed)
        for _ in range(calls):  # each moves statistics on
            made = _train_once(built, models, run, inputs)
        if isinstance(made, str):
            return made
        for name, one in made.items():
            pooled[name] = pooled[name].pool(one) if name in pooled else one
    return pooled


def _disturbing(seed: int, eps: float) -> Any:
    """Gives a model, in eager, whose weights are off by up to a half of their last bit, ``eps`` of 1."""
    def disturb(model: Any) -> Any:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in model.parameters():
                if p.is_floating_point():
                    noise = torch.rand(p.shape, generator=generator).to(p) - 0.5
                    p.mul_(1 + noise * eps)
        return model

    return disturb


def _is_by_chance(found: dict[str, Any], disturbed: list[Any]) -> bool:
    """Whether what misses the rule meets it with the errors of eager models that are disturbed in the
    last bit: where statistics are of a few numbers, layer after layer makes much of rounding."""
    if any(isinstance(d, str) for d in disturbed):
        return False
    return all(o.ok or o.ok_beside([d[name] for d in disturbed]) for name, o in found.items())


def _train_once(built: Any, models: list[Any], run: Any, inputs: Any) -> dict[str, Any] | str:
    """Accuracy of outputs, gradients and updated statistics by name; or what is wrong at once.

    ``models``: eager's, Inkle's, and one in f64.
    """
    eager, eager_gradients = _step(built, models[0], models[0], inputs)
    floor = built.floor
    has_reference = True
    try:
        torch.set_default_dtype(torch.float64)
        reference, gradients = _step(built, models[2], models[2], common.to_double(inputs))
        if [n for n in gradients] != [n for n in eager_gradients]:
            raise ValueError("other gradients in f64")
    except Exception:  # noqa: BLE001: whatever the model's own code objects to
        floor, has_reference = built.floor_alone, False
        reference = common.to_double(eager)
        gradients = {n: g.double() for n, g in eager_gradients.items()}
    finally:
        torch.set_default_dtype(torch.float32)
    built.before()
    got, got_gradients = _step(built, run, models[1], inputs)
    if len(got) != len(eager):
        return f"{len(got)} outputs, {len(eager)} in eager"
    if set(got_gradients) != set(eager_gradients):
        return f"gradients only on one side: {sorted(set(got_gradients) ^ set(eager_gradients))[:5]}"
    result = {}
    for number, (g, e, r) in enumerate(zip(got, eager, reference)):
        result[f"output {number}"] = common.compare(g, e, r, floor)
    # A gradient that is zero but for rounding is judged by the scale of all gradients.
    overall = max((g.abs().max().item() for g in gradients.values() if g.numel()), default=0.0)
    for name, gradient in gradients.items():
        one = common.compare(got_gradients[name], eager_gradients[name], gradient, floor)
        one.scale = max(one.scale, overall)
        result[f"gradient {name}"] = one
    # Statistics that the step has updated.
    exact = dict(models[2].named_buffers()) if has_reference else {}
    for (name, a), (_, b) in zip(models[0].named_buffers(), models[1].named_buffers()):
        result[f"buffer {name}"] = common.compare(b, a, exact.get(name, a.double()), floor)
    return result
