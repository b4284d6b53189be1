"""What the tests of the backend share: run in eager and compiled, compare all that one can see."""

from __future__ import annotations

import copy
from typing import Any, Callable

import torch

import inkle
from inkle import _inkle
from inkle.importer import GraphImporter
from inkle.machine import as_strided, native_options
from inkle.options import parse


# Torch 2.11, whose eager itself refuses or lacks a few things.
IS_OLDER_TORCH = torch.__version__ < torch.torch_version.TorchVersion("2.15")


def leaves(value) -> list:
    return torch.utils._pytree.tree_leaves(value)


def same(found, wanted, tolerance: float = 1e-5) -> None:
    """Type, dtype, sizes, strides and values of two results."""
    assert type(found) is type(wanted), (type(found), type(wanted))
    if not isinstance(wanted, torch.Tensor):
        assert found == wanted, (found, wanted)
        return
    assert found.dtype == wanted.dtype, (found.dtype, wanted.dtype)
    assert found.device == wanted.device, (found.device, wanted.device)
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    assert found.requires_grad == wanted.requires_grad
    if wanted.layout == torch.strided:
        for d in range(wanted.dim()):
            if wanted.numel() > 0 and wanted.shape[d] > 1:
                assert found.stride(d) == wanted.stride(d), (found.stride(), wanted.stride())
    if wanted.dtype in (torch.float16, torch.bfloat16):
        tolerance = max(tolerance, 1e-2)
    a, b = found.detach(), wanted.detach()
    if b.is_floating_point() and b.element_size() == 1:
        a, b = a.float(), b.float()
    if b.is_floating_point() or b.is_complex():
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        assert torch.equal(a, b), (a, b)


def aliases(tensors: list) -> list[tuple[int, int, int]]:
    """Which pairs share storage, and at what distance."""
    found = []
    for i, a in enumerate(tensors):
        for j in range(i):
            b = tensors[j]
            if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
                continue
            if a.layout != torch.strided or b.layout != torch.strided or a.numel() == 0:
                continue
            if a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
                found.append((j, i, a.data_ptr() - b.data_ptr()))
    return found


def compiled(function, strict: bool = True, dynamic=None, **options):
    """Random numbers are eager's, so that results can be compared, unless asked otherwise."""
    chosen = {"strict": strict, "random": "eager", **options}
    return torch.compile(function, backend="inkle", dynamic=dynamic, options=chosen)


def check(
    function: Callable[..., Any],
    make: Callable[[], list],
    *,
    strict: bool = True,
    dynamic: bool | None = None,
    calls: int = 1,
    tolerance: float = 1e-5,
    **options: Any,
) -> list:
    """``make()`` gives fresh, equal arguments each time. Returns the reports of the graphs."""
    torch._dynamo.reset()
    inkle.reset()
    with_copy = isinstance(function, torch.nn.Module)
    if with_copy:
        function.to(torch.get_default_device())
    wanted_function = copy.deepcopy(function) if with_copy else function
    run = compiled(function, strict, dynamic, **options)
    for _ in range(calls):
        wanted_args, found_args = make(), make()
        torch.manual_seed(5)
        wanted = wanted_function(*wanted_args)
        torch.manual_seed(5)
        found = run(*found_args)
        a, b = leaves(found), leaves(wanted)
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y, tolerance)
        before_a, before_b = leaves(found_args), leaves(wanted_args)
        for x, y in zip(before_a, before_b):
            same(x, y, tolerance)
        assert aliases(before_a + a) == aliases(before_b + b), "aliasing differs"
    if with_copy:
        for (name, x), y in zip(function.named_buffers(), wanted_function.buffers()):
            same(x, y, tolerance)
    return inkle.reports()


def check_training(
    module: torch.nn.Module,
    make: Callable[[], list],
    *,
    strict: bool = True,
    dynamic: bool | None = None,
    tolerance: float = 1e-4,
    floor: float | None = None,
    **options: Any,
) -> list:
    """Two steps of accumulated gradients: outputs, gradients and buffers. Returns the reports.

    ``floor``: instead of being close to eager, outputs and gradients are as near to f64 as eager's, by
    the accuracy rule with this part of the largest magnitude.
    """
    torch._dynamo.reset()
    inkle.reset()
    module = module.to(torch.get_default_device()).train()
    plain, double = copy.deepcopy(module), copy.deepcopy(module).double()
    wanted_args, found_args = make(), make()
    wanted = _step(plain, list(plain.parameters()), wanted_args)
    run = compiled(module, strict, dynamic, **options)
    found = _step(run, list(module.parameters()), found_args)
    assert len(found) == len(wanted)
    if floor is not None:
        exact = _step(double, list(double.parameters()), [_wide(a) for a in make()])
        for a, b, e in zip(found, wanted, exact):
            _as_exact(a, b, e, floor)
        return inkle.reports()
    for a, b in zip(found, wanted):
        same(a, b, tolerance)
    for a, b in zip(module.buffers(), plain.buffers()):
        same(a, b, tolerance)
    return inkle.reports()


def _wide(x: Any) -> Any:
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def _as_exact(found: Any, wanted: Any, exact: Any, floor: float) -> None:
    if wanted is None:
        assert found is None
        return
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    ours, eagers = ((t.double() - exact).square().mean().sqrt() for t in (found, wanted))
    assert ours <= 1.5 * eagers + floor * exact.abs().max(), (ours, eagers)


def _step(run, parameters: list, args: list) -> list:
    torch.manual_seed(3)
    for _ in range(2):
        outputs = leaves(run(*args))
        losses = [
            (o.abs() if o.is_complex() else o.float().pow(2) * 0.5).sum()
            for o in outputs
            if isinstance(o, torch.Tensor) and o.requires_grad
        ]
        loss = sum(losses)
        loss.backward()
    return outputs + [loss] + [p.grad for p in parameters] + [a.grad for a in args]


def eager_ops(reports) -> list[str]:
    """Names of the ops that were left to eager."""
    return [op for r in reports for op, _, _ in r.eager]


def randn(*sizes: int, **kwargs: Any) -> torch.Tensor:
    """The same numbers each time, on the default device."""
    generator = torch.Generator("cpu").manual_seed(1)
    made = torch.randn(*sizes, generator=generator, device="cpu", **kwargs)
    if made.device == torch.get_default_device():
        return made
    return made.detach().to(torch.get_default_device()).requires_grad_(made.requires_grad)


def narrow(x: torch.Tensor, enabled: bool = True) -> torch.autocast:
    """Autocast to bf16 on the device of ``x``."""
    return torch.autocast(x.device.type, torch.bfloat16, enabled=enabled)


def ramp(count: int, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(count, dtype=dtype).reshape(sizes)


def left_to_eager(gm: torch.fx.GraphModule, training: bool = False) -> list[str]:
    """The ops of an AOTAutograd graph that are not compiled for a GPU, which need not be there. What
    has no code must be named at once."""
    names: dict[str, str] = {}
    compiler = _inkle.Compiler.null("sm_90a")
    options = native_options(parse(None, {}), training)
    while True:
        walker = GraphImporter(gm, "program", set(), names)
        walker.run()
        try:
            compiler.compile(walker.importer, options, walker.targets, as_strided)
        except _inkle.Unsupported as error:
            assert not names, error
            names = {n.name: str(error) for n in gm.graph.nodes if f"({n.name})" in str(error)}
            assert names, error
            continue
        return [op for op, *_ in walker.importer.eager]


def bf16(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.bfloat16)
