"""Numerics by name on a GPU (docs/numerics.md): what is left to eager and what is not held, with a null
device. The bits are compared on a card, in test_numerics.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from inkle import _inkle
from inkle.importer import GraphImporter
from inkle.machine import as_strided, native_options
from inkle.options import parse

aten = torch.ops.aten


def told(f: Callable[..., Any], count: int, numerics: str) -> dict[str, str]:
    """What is left to eager or not held of a function of f32[8,16]s on a GPU, with the reason."""
    return told_of(f, [((8, 16), torch.float32)] * count, numerics)


def told_of(f: Callable[..., Any], operands: list[tuple[tuple[int, ...], torch.dtype]], numerics: str,
            device: str = "cuda:0", **more: Any) -> dict[str, str]:  # fmt: skip
    with FakeTensorMode():
        xs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in operands]
    gm = make_fx(f, tracing_mode="fake")(*xs)
    walker = GraphImporter(gm, "program", set(), {}, numerics=numerics)
    walker.run()
    _, facts = _inkle.Compiler.null("sm_90a").compile(
        walker.importer, native_options(parse(None, {"numerics": numerics, **more}), False), walker.targets,
        as_strided,
    )  # fmt: skip
    left = {op: why for op, _, why in walker.importer.eager}
    return left | {op: why for op, _, why in facts["not_held"]}


# By row of the table.
DIVIDING: dict[str, Callable[..., Any]] = {
    "div": lambda x, y: x / y,
    "div_mode": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "floor_divide": lambda x, y: aten.floor_divide.default(x, y),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x),
    "hardsigmoid_backward": lambda x, y: aten.hardsigmoid_backward.default(x, y),
    "hardswish": lambda x, y: F.hardswish(x),
    "lerp": lambda x, y: torch.lerp(x, y, y),
    "reciprocal": lambda x, y: x.reciprocal(),
    "rsqrt": lambda x, y: x.rsqrt(),
}


@pytest.mark.parametrize("row", DIVIDING)
def test_rows_that_bitwise_leaves_to_eager(row: str) -> None:
    found = told(DIVIDING[row], 2, "bitwise")
    assert list(found.values()) == ["numerics=bitwise: its bits are not eager's on a GPU"], found


def test_these_are_the_rows_of_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "numerics.md").read_text()
    assert re.findall(r"\| `(\w+)` \| .* \| left to eager \|", text) == list(DIVIDING)


def test_rows_that_bitwise_compiles() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.where(x > y, x * 3, y - x).relu().clamp(-1, 2)
        return z, z.bfloat16() * 2, x.amax(-1), y.argmin(0), torch.cat([x, y]).abs().floor()

    assert told(f, 2, "bitwise") == {}


# What differs between a CPU and a GPU in eager: operands, function, why it is left to eager; none of it on a CPU.
ROWS, SCALAR = (8, 16), ()
SCALAR_FIRST = "numerics=bitwise: eager rounds a scalar on the GPU first"
ON_A_GPU: dict[str, tuple[list[Any], Callable[..., Any], str]] = {
    "f32 scalar": ([(ROWS, torch.bfloat16), (SCALAR, torch.float32)], lambda x, s: x * s, SCALAR_FIRST),
    "f64 scalar": ([(ROWS, torch.float32), (SCALAR, torch.float64)], lambda x, s: x > s, SCALAR_FIRST),
    "i64 scalar": ([(ROWS, torch.float16), (SCALAR, torch.int64)], lambda x, s: torch.maximum(x, s), SCALAR_FIRST),
    "threshold": ([(ROWS, torch.bfloat16)], lambda x: F.threshold(x, 0.1, 2.0),
                  "numerics=bitwise: eager rounds its numbers first on a GPU"),
    "remainder": ([(ROWS, torch.int32)] * 2, torch.remainder,
                  "numerics=bitwise: eager's remainders by 0 are others on a GPU"),
    "fmod": ([(ROWS, torch.int64)] * 2, torch.fmod,
             "numerics=bitwise: eager's remainders by 0 are others on a GPU"),
    "clamp": ([(ROWS, torch.uint8)], lambda x: x.clamp(-1, 9),
              "numerics=bitwise: eager converts the limits to u8 on a GPU"),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_A_GPU)
def test_what_eager_has_otherwise_on_a_gpu_is_left_to_it(name: str) -> None:
    operands, f, why = ON_A_GPU[name]
    assert list(told_of(f, operands, "bitwise").values()) == [why]


COMPILED: dict[str, tuple[list[Any], Callable[..., Any]]] = {
    "scalar of the dtype": ([(ROWS, torch.bfloat16), (SCALAR, torch.bfloat16)], lambda x, s: x * s),
    "integer scalar": ([(ROWS, torch.float32), (SCALAR, torch.int64)], lambda x, s: x * s),
    "threshold of its numbers": ([(ROWS, torch.bfloat16)], lambda x: F.threshold(x, 0.5, 2.0)),
    "threshold of f32": ([(ROWS, torch.float32)], lambda x: F.threshold(x, 0.1, 2.0)),
    "clamp of i32": ([(ROWS, torch.int32)], lambda x: x.clamp(-1, 9)),
}


@pytest.mark.parametrize("name", COMPILED)
def test_what_eager_has_alike_on_a_gpu_is_compiled(name: str) -> None:
    operands, f = COMPILED[name]
    assert told_of(f, operands, "bitwise") == {}


def told_with_constant(device: str) -> tuple[dict[str, str], list[str]]:
    """What is left to eager of bf16 on a GPU beside the constant 0.3 in f32 on a device, and what is compiled."""
    def f(x: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        c = aten._to_copy.default(c, device=torch.device(device))
        return [x * c, x + c, torch.maximum(x, c), x > c]

    with FakeTensorMode():
        operands = torch.empty(ROWS, dtype=torch.bfloat16, device="cuda:0"), torch.empty(())
    gm = make_fx(f, tracing_mode="fake")(*operands)
    gm.register_buffer("constant", torch.tensor(0.3))
    argument = gm.graph.find_nodes(op="placeholder")[1]
    with gm.graph.inserting_before(argument):
        held = gm.graph.get_attr("constant")
    held.meta = dict(argument.meta)
    argument.replace_all_uses_with(held)
    gm.graph.erase_node(argument)
    walker = GraphImporter(gm, "program", set(), {}, numerics="bitwise")
    walker.run()
    _, facts = _inkle.Compiler.null("sm_90a").compile(
        walker.importer, native_options(parse(None, {"numerics": "bitwise"}), False), walker.targets,
        as_strided,
    )  # fmt: skip
    left = {op: why for op, _, why in walker.importer.eager}
    return left, [s["label"] for s in facts["steps"] if s["kind"] == "kernel"]


def test_a_constant_on_the_gpu_is_left_to_eager_which_rounds_it_first() -> None:
    left, compiled = told_with_constant("cuda:0")
    names = ["aten::mul.Tensor", "aten::add.Tensor", "aten::maximum", "aten::gt.Tensor"]
    assert left == dict.fromkeys(names, SCALAR_FIRST)
    assert compiled == []


def test_a_constant_of_the_cpu_is_multiplied_as_it_is_and_compared_once_it_is_rounded() -> None:
    """Eager's kernels of f32 arithmetic take it as an f32 number, others as one of the common dtype."""
    left, compiled = told_with_constant("cpu")
    assert left == {"aten::add.Tensor": "numerics=bitwise: eager rounds an operand first"}
    assert compiled == ["mul+maximum+gt"]


# By name, what reads a constant beside f16 or bf16; compared on a card.
BESIDE: dict[str, Callable[..., Any]] = {
    "mul": torch.mul, "add": torch.add, "sub": torch.sub, "maximum": torch.maximum, "minimum": torch.minimum,
    "gt": torch.gt, "le": torch.le, "eq": torch.eq, "where": lambda x, c: torch.where(x > 0, x, c),
    "copysign": torch.copysign, "clamp": lambda x, c: torch.clamp(x, max=c),
}  # fmt: skip
# Eager refuses to clamp by a constant of another device.
PLACED = [(name, place) for name in BESIDE for place in ("cuda", "cpu") if (name, place) != ("clamp", "cpu")]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize(("name", "place"), PLACED)
def test_bits_beside_constant_scalars(name: str, place: str, dtype: torch.dtype) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return BESIDE[name](x, torch.tensor(0.3, device=place))

    torch._dynamo.reset()
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).cuda().view(dtype)
    x = x[x.isfinite()]
    wanted, alone = f(x), torch.compile(f, backend="aot_eager")(x)
    found = torch.compile(f, backend="inkle", options={"numerics": "bitwise", "strict": True})(x)
    traced = "" if torch.equal(alone, wanted) else "torch's tracing alone differs from eager, too"
    assert found.dtype == wanted.dtype and torch.equal(found, wanted), traced


NOT_HELD: dict[str, tuple[int, Callable[..., Any], str]] = {
    "rows": (1, lambda x: x.sum(-1), "the number of GPU threads that share a sum"),
    "norms": (1, lambda x: F.layer_norm(x, (16,)), "the number of GPU threads that share a sum"),
    "softmax": (1, lambda x: x.softmax(-1), "the number of GPU threads that share a sum"),
    "scans": (1, lambda x: x.cumsum(-1), "the number of GPU threads that share a sum"),
    "products of scans": (1, lambda x: x.cumprod(0), "the number of GPU threads that share a sum"),
    "products": (2, lambda x, y: x @ y.t(), "the library's matrix products have an order"),
}


@pytest.mark.parametrize("name", NOT_HELD)
def test_what_batch_invariant_does_not_hold(name: str) -> None:
    count, f, reason = NOT_HELD[name]
    found = told(f, count, "batch_invariant")
    assert found and all(why.startswith(reason) for why in found.values()), found


def test_what_batch_invariant_holds() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chosen = x.argmax(-1, keepdim=True)
        counted = (x > 0).sum(-1), (x > 0).long().cumsum(-1)
        moved = x.gather(1, chosen), x.scatter(1, chosen, 1.0), F.max_pool2d(x[None, None], 2)
        return x.exp() * y + x.amax(-1, keepdim=True), *x.cummax(-1), *counted, *moved

    assert told(f, 2, "batch_invariant") == {}


SCATTERS: dict[str, Callable[..., Any]] = {
    "index_add": lambda x, i: x.index_add(0, i[:, 0], x),
    "scatter_add": lambda x, i: x.scatter_add(1, i, x),
    "index_put": lambda x, i: x.index_put((i[:, 0],), x, accumulate=True),
    "embedding": lambda x, i: aten.embedding_dense_backward.default(x, i[:, 0], 8, -1, False),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_batch_invariant_adds_in_order_unless_it_is_told_not_to(name: str) -> None:
    operands = [((8, 16), torch.float32), ((8, 16), torch.int64)]
    assert told_of(SCATTERS[name], operands, "batch_invariant") == {}
    found = told_of(SCATTERS[name], operands, "batch_invariant", deterministic=False)
    assert list(found.values()) == ["GPU threads add to an element in any order"], found
