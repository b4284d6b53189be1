"""Functions that bench/fuzz.py has found to differ from eager, reduced, each by its cause."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest
import torch

import inkle

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import fuzz_judge  # noqa: E402
from fuzz_draw import Argument, Program  # noqa: E402


def of(
    dtype: str, *shape: int, kind: str = "dense", statements: list[str], results: list[str],
    grad: bool = False, dynamic: bool | None = False, **others: Argument,
) -> Program:  # fmt: skip
    given = {"x": Argument(dtype, shape, kind), **others}
    return Program(1, given, list(statements), results, dynamic, grad)


FOUND: dict[str, Program] = {
    # Two draws that do not depend on each other.
    "draws keep their order": of(
        "f32", 2, 2, statements=["v1 = F.dropout(x * 2, 0.5)", "v2 = torch.empty((1,)).normal_()",
        "v3 = torch.where(v2 > 1.5, x, 0.5)"], results=["v3", "v1"],
    ),
    "a draw and a write": of(
        "f32", 1, 1, statements=["v1 = x * 3", "v2 = torch.randint_like(v1, 4)", "x.bernoulli_(0.5)"],
        results=["v2", "v1[..., :1]"],
    ),
    # A size that a guard makes 1.
    "part of a row, broadcast": of(
        "f32", 1, 3, y=Argument("f32", (3,)), dynamic=True,
        statements=["x.add_(torch.tensor_split(y, 2)[1])"], results=["x"],
    ),
    "means of windows, broadcast": of(
        "f32", 3, 2, 4, dynamic=None, statements=["v1 = F.avg_pool1d(x[..., ::2], 2)",
        "v2 = torch.addcmul(v1, v1, x, value=0.5)"], results=["v2"],
    ),
    "the last chunk, broadcast": of(
        "f32", 3, dynamic=True, statements=["v1 = x * x", "v2 = v1.chunk(2, -1)[-1] / v1"], results=["v2"],
    ),
    # A matrix whose rows overlap, of as many rows as a symbol says.
    "a product of windows": of(
        "f32", 3, dynamic=True, statements=["v1 = x.unfold(0, 2, 1)", "v2 = v1 @ v1.mT"], results=["v2"],
    ),
    # A size that a guard makes the size that it expands to.
    "an expanded view that ends at a number beyond the size": of(
        "f32", 4, n=Argument("int", value=8), dynamic=True,
        statements=["v1 = x[: max(0, n)]", "v2 = F.mse_loss(x[:, None], v1)"], results=["v2"],
    ),
    # One of several views, of which the compiler does not know the others' sizes.
    "a part of a vector that trains": of(
        "f32", 2, dynamic=True, grad=True, statements=["v1 = x.split(2)[0]"], results=["v1"],
    ),
    "the second part of a vector that trains": of(
        "f32", 4, dynamic=True, grad=True, statements=["v1 = x.split(2)[1]"], results=["v1"],
    ),
    # AOTAutograd reads where a view lies that took symbolic sizes, numbers since.
    "a chunk of a written argument": of(
        "f32", 2, 2, dynamic=True, statements=["v1 = x.chunk(2, -1)[-1]", "x.mul_(1.5)"], results=["v1"],
    ),
    "a chunk of a written argument that trains": of(
        "f32", 4, 2, dynamic=True, grad=True, y=Argument("c64", (4, 2), "transposed"),
        statements=["v1 = y.chunk(2, -1)[-1]", "y.index_fill_(1, torch.tensor([0]), 2)", "v2 = x * 2"],
        results=["v1", "v2"],
    ),
    # Strides that FX states otherwise.
    "sum of a column and a matrix": of(
        "f32", 4, 1, 1, statements=["v1 = x.transpose(0, -1) + torch.ones(2, 4)"], results=["v1"],
    ),
    "an angle that is written to": of(
        "c64", 4, 2, 2, kind="transposed", statements=["v1 = x[1:].angle()",
        "v1.select(-2, 0).copy_(v1.select(-2, -1))"], results=["v1"],
    ),
    "a repeated angle": of(
        "c64", 2, 4, kind="transposed", statements=["v1 = x.angle()", "v2 = v1.expand(2, *v1.shape)"],
        results=["v2"],
    ),
    "the larger of two dtypes": of(
        "f64", 5, 5, 5, y=Argument("f32", (1, 5, 5), "transposed"),
        statements=["v1 = torch.maximum(F.gelu(y).unsqueeze(0), x)"], results=["v1"],
    ),
    "zeros in place of a transposed argument": of(
        "f32", 4, 5, kind="transposed", statements=["x.zero_()", "v1 = x <= 2"], results=["v1"],
    ),
    "zeros of other sizes": of(
        "f32", 4, 5, kind="transposed", dynamic=True, statements=["v1 = x.neg()", "v1.zero_()",
        "v2 = v1 + 1"], results=["v1", "v2"],
    ),
    "an index filled in repeated transposed numbers": of(
        "i64", 1, 3, 3, kind="transposed", statements=["v1 = torch.broadcast_to(x, (2, *x.shape))",
        "v2 = v1.index_fill(-3, torch.tensor([0]), 1)"], results=["v2"],
    ),
    "a batch norm of transposed numbers": of(
        "f32", 3, 4, 5, kind="transposed", statements=["v1 = F.batch_norm(x, None, None, training=True)",
        "v2 = v1.exp()", "v3 = v1[1:]"], results=["v1", "v2", "v3"],
    ),
    "a batch norm of transposed numbers that trains": of(
        "f32", 3, 4, 5, kind="transposed", grad=True, dynamic=True,
        statements=["v1 = F.batch_norm(x, None, None, training=True)"], results=["v1"],
    ),
    "a Fourier transform of a transposed tensor": of(
        "f32", 2, 4, 4, kind="transposed", dynamic=None,
        statements=["v1 = torch.fft.fft(x).real", "v2 = v1.floor()"], results=["v1", "v2"],
    ),
    "the real part of repeated complex numbers": of(
        "c64", 1, 3, statements=["v1 = torch.broadcast_to(x * 2, (2, *x.shape)).real"], results=["v1"],
    ),
    # Results that are written after a graph break, which eager's backward does not read.
    "a written quotient that a gradient divides by once more": of(
        "f16", 4, grad=True, statements=["v1 = x @ x", "v2 = F.normalize(v1, dim=-1)",
        "torch._dynamo.graph_break()", "v2.exp_().clamp_(max=5)"], results=["v1"],
    ),
    "written attention of heads that lie otherwise": of(
        "bf16", 1, 1, kind="gaps", grad=True, statements=[
        "v1 = F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])",
        "torch._dynamo.graph_break()", "v1.swapaxes(0, -1).sub_(-1)", "v2 = v1.transpose(0, -1)"],
        results=["v2"],
    ),
    # Numbers of a result that is written then: no gradient comes from the number.
    "a logged product": of(
        "f32", 4, 4, grad=True, statements=["v1 = x @ x", "k = float(v1.nan_to_num().clamp(-9, 9).sum())",
        "v1.relu_()"], results=["v1"],
    ),
    "a logged padding, by a number of the caller": of(
        "bf16", 3, 5, grad=True, dynamic=True, n=Argument("int", value=5), statements=["v1 = F.pad(x, (n % 3 + 1, 0))",
        "k = float(v1.nan_to_num().clamp(-9, 9).sum())", "v1.relu_()"], results=["v1", "x[::n]"],
    ),
    "a logged dropout": of(
        "f64", 2, 3, grad=True, statements=["v1 = F.dropout(x * 2, 0.5)", "k = v1.square().sum().item()", "v1[0].mul_(2)"],
        results=["v1"],
    ),
    "a logged log of sums": of(
        "f32", 3, 5, grad=True, statements=["v1 = x * 2", "k = v1.logsumexp(1).sum().item()", "v1.neg_()"],
        results=["v1"],
    ),
    "a copy of what a norm keeps": of(
        "f32", 2, 3, grad=True, statements=["v1 = x.index_select(1, torch.tensor([0, 0]))",
        "v2 = F.rms_norm(v1, v1.shape[-1:])", "v3 = v1.clone()", "torch._dynamo.graph_break()", "v3[0].mul_(2)"],
        results=["v2", "v3"],
    ),
    # A guard of the forward over a number that the backward does not have.
    "a view from a number on, beside a sum that trains": of(
        "f32", 4, 1, grad=True, dynamic=True, n=Argument("int", value=9007199254740993),
        y=Argument("i32", (4, 3)), statements=["v1 = y[n::2]", "v2 = x + 1", "k = float(v2.square().sum())", "v2.mul_(2)"],
        results=["v1", "v2"],
    ),
    # FX states other strides of a view's dimension of size 1.
    "a choice of views with a dimension of one": of(
        "f64", 5, 1, statements=["v1 = x / 2", "v2 = torch.where(v1 > 1.5, v1.t().unflatten(0, (1, -1)), -1)"],
        results=["v2"],
    ),
    # Gradients of 0 keep nothing, so nothing that is written since.
    "a written remainder, of which the gradient is 0": of(
        "f64", 3, 2, kind="transposed", grad=True,
        statements=["v1 = x.sign()", "v2 = torch.remainder(v1, 3)", "v2.swapaxes(0, -1).sub_(3)",
        "k = float(v2.nan_to_num().clamp(-9, 9).sum())", "v2.diagonal().fill_(3)"], results=["v1"],
    ),
    # Values.
    "the variance of one NaN": of(
        "f32", 1, 3, dynamic=True, statements=["v1 = (x * float('nan')).var(0, correction=0)",
        "v2 = (x / 0).std(0, correction=0)"], results=["v1", "v2"],
    ),
    # A sum that begins at 0 does not keep the sign of a zero.
    "the sum of a negative zero": of(
        "f32", 1, statements=["v1 = (x.abs() * -0.0).nansum()", "v2 = torch.atan2(x.abs() * -0.0, v1)"], results=["v1", "v2"],
    ),
    "a product before its operand is written": of(
        "f32", 4, 4, statements=["v1 = (x @ x).transpose(0, -1)", "x[..., ::2] = True", "v1.relu_()"],
        results=["v1[-1:]", "v1[-1:][..., :1]"],
    ),
    # AOTAutograd applies the views of the second graph to the tensor that the first one's share.
    "a view of a sum, cut at a number and written": of(
        "f32", 2, y=Argument("bool", (1, 2)),
        statements=["v1 = x.sum(0, keepdim=True)", "v2 = v1.reshape(-1)[: max(0, int(y.sum()))]", "v1.sub_(v1)"],
        results=["v2"],
    ),
    # Integers of more than 64 bits: the call runs in eager, also where an op in eager writes to an argument.
    "an int beyond 64 bits beside a write in eager": of(
        "c64", 5, n=Argument("int", value=3, later=(2**31 + 1, 6031666314076813094)), dynamic=True,
        statements=["v1 = n << 2", "x.fill_(1)", "v2 = x.flatten()"], results=["v2", "v1"],
    ),
    "a quotient by an int beyond 64 bits": of(
        "f32", 3, n=Argument("int", value=9, later=(2**63 - 1, 6)), statements=["v1 = n + 1", "v2 = x / v1"],
        results=["v2"],
    ),
    # A slice of all, by a guard alone: what reads it has a size that follows from its own.
    "a slice that ends before the beginning of a whole slice": of(
        "f32", 5, n=Argument("int", value=-68719476735, later=(-4194305, 2**32 + 1)), dynamic=True,
        statements=["v1 = x[n // 2 :]", "v2 = v1[: min(n, 3)]"], results=["v2"],
    ),
    "a diagonal far beyond the sizes": of(
        "f64", 1, 5, n=Argument("int", value=2**63 - 2, later=(-(2**63), 2**32)), dynamic=True,
        statements=["v1 = x.diagonal(n)", "v2 = (x * 2).diagonal(n)", "v3 = n % 5"], results=["v1", "v2", "v3"],
    ),
    # Exponents of integers that f64 does not hold.
    "an odd power": of(
        "i64", 4, n=Argument("int", value=2**53 + 1, later=(2**63 - 1, 7)), statements=["v1 = x.sign() * 3 - 2", "v2 = v1 ** n"],
        results=["v2"],
    ),
    "conditions of ints among the results": of(
        "f32", 2, n=Argument("int", value=-3, later=(5, 7)), m=Argument("int", value=4, later=(4, 7)), dynamic=True,
        statements=["v1 = x * 2", "v2 = n > 3", "v3 = n == m", "v4 = n < n"], results=["v1", "v2", "v3", "v4"],
    ),
    # A piecewise expression of torch's, with conditions that are known in one call.
    "steps that ints compute": of(
        "i64", 7, n=Argument("int", value=-8, later=(15968466681691132, -9)),
        m=Argument("int", value=-120468, later=(-5, 4)), dynamic=True,
        statements=["v1 = torch.arange(0, 3 * int(n / -3), int(n / -3))", "v2 = x[abs(m // n):]",
        "v3 = torch.arange(0, 3 * ((m % n) % (m * -1)), (m % n) % (m * -1))"], results=["v1", "v2", "v3"],
    ),
    "random numbers in place of sizes that a guard makes equal": of(
        "f32", 1, 1, 2, grad=True, n=Argument("int", value=-34359738369, later=(16384, 2**63 - 2)), dynamic=True,
        statements=["v1 = x.gather(1, torch.zeros_like(x, dtype=torch.int64))",
        "v2 = v1.scatter(-1, torch.zeros_like(v1, dtype=torch.int64).narrow(-1, 0, 1), 1)", "v3 = v2[:(n % 7)]",
        "v3.normal_()"], results=["v3"],
    ),
    "a piece of a split into a symbolic number of pieces": of(
        "f64", 2, 5, grad=True, n=Argument("int", value=2**31 + 1, later=(2**31, 3)), dynamic=True,
        statements=["v1 = x.split(2)[0]", "v2 = v1 >= n", "v3 = n & 12"], results=["v1", "v3"],
    ),
    "a copy between sizes that a guard makes equal": of(
        "f64", 1, n=Argument("int", value=-1125899906842625, later=(-8661441294217673004, -3)), dynamic=True,
        statements=["v1 = x[max(n, 0):]", "v2 = v1 // n", "v1.transpose(0, -1).copy_(v2.transpose(0, -1))",
        "v3 = v1 * 2 ** (n % 8)"], results=["v1", "v2", "v3"],
    ),
    # A tiled tensor's gradient is summed over the tiles: a thread keeps every fourth element of a row.
    "a tiled tensor that is read twice": of(
        "f32", 4, grad=True, statements=["v1 = x.square().tile(2)", "v2 = v1 * 2 + v1", "v3 = v2.sigmoid()"],
        results=["v3"],
    ),
    "a tiled tensor that is read twice, of symbolic size": of(
        "f32", 3, 4, grad=True, dynamic=True, statements=["v1 = x.square().repeat(2, 3)", "v2 = v1 * 2 + v1",
        "v3 = v2.tanh().reshape(-1)", "v4 = v3.view(2, -1).softmax(0)"], results=["v3", "v4"],
    ),
    # The second int leaves 64 bits in a product, so that the call runs in eager.
    "an int that i8 does not hold, in a call that eager runs": of(
        "i8", 4, y=Argument("f32", (2, 2)), grad=True, dynamic=True,
        n=Argument("int", value=2**32 + 1, later=(7863265506892583849, 7)),
        statements=["v1 = x.max() <= n", "v2 = y * 2", "v3 = y.shape[0] * n"], results=["v1", "v2", "v3"],
    ),
    "a dropout that nothing reads": of(
        "f32", 5, grad=True, statements=["v1 = F.dropout(x, 0.5)", "v1.zero_()"], results=["v1"],
    ),
    # The second int leaves 64 bits, so that the call runs in eager.
    "a result that stands twice, in a call that eager runs": of(
        "f64", 1, 3, grad=True, n=Argument("int", value=5, later=(2**63 - 2, 0)), dynamic=True,
        statements=["v1 = x.tril()", "v2 = v1.contiguous()", "v3 = x + ((n * 3) % 7)", "torch._dynamo.graph_break()",
        "v1.index_fill_(1, torch.tensor([0]), 2)"], results=["v2", "v3"],
    ),
    "a slice that begins beyond 64 bits, written in training": of(
        "f32", 2, 3, grad=True, n=Argument("int", value=1024, later=(510783882842719713, 7)), dynamic=True,
        statements=["v1 = x.atan2(x)", "v2 = v1[n ** 2 // 2:]", "v2.sub_(x[n ** 2 // 2:])"], results=["v2", "v1"],
    ),
    "random numbers like a zeroed tensor, in a call that eager runs": of(
        "f32", 3, 2, kind="transposed", grad=True, dynamic=True,
        n=Argument("int", value=-144115188075855873, later=(-1, -8426072389071557890)),
        statements=["v1 = F.leaky_relu(x, 0.1)", "v2 = v1 ** max(1 - 2 ** 24, min(n, 2 ** 24))", "v3 = n + n",
        "v1.zero_()", "v4 = torch.randint_like(v1, 4)"], results=["v4", "v1", "v3"],
    ),
    "a gradient of a slice that ends beyond 64 bits": of(
        "f32", 3, 2, grad=True, n=Argument("int", value=5, later=(-4294967298, 4294967298)), dynamic=True,
        statements=["v1 = x.relu()", "v2 = v1[:n ** 2]", "v3 = v2.clamp(max=2)"], results=["v3"],
    ),
    # Of a graph that Python's arithmetic cuts AOTAutograd makes results anew as well.
    "a written view beside a number that Python computes": of(
        "f32", 1, 3, 3, n=Argument("int", value=2**63 - 1, later=(3, 2**31 - 1)), dynamic=True,
        statements=["v1 = int(n / 4)", "v2 = x[..., -1:n]", "v2.index_fill_(-2, torch.tensor([0]), 2)",
        "v3 = v2.clone()"], results=["v3", "v2", "v1"],
    ),
    "a view of angles": of("c64", 2, 3, statements=["v1 = x.angle().mT"], results=["v1 + 1", "v1"]),
    "a view of angles of columns": of(
        "c64", 2, 3, kind="transposed", statements=["v1 = x.angle().mT"], results=["v1 + 1", "v1"],
    ),
    "a copy of a result with other strides": of(
        "c64", 4, 1, statements=["v1 = x.angle()", "v2 = while_loop(lambda j, p: j < 3, "
        "lambda j, p: (j + 1, p * 0.5 + 1), (torch.tensor(0), v1.clone()))[1]"], results=["v2", "v1"],
    ),
    # A loop of one nest cannot be two of another.
    "a diagonal beside the whole": of(
        "f32", 3, 3, y=Argument("f32", (4,)), statements=["v1 = x.diagonal()[:, None] * y"],
        results=["v1", "x.sin()"],
    ),
    "a diagonal beside a kept copy of the whole": of(
        "f32", 5, 5, grad=True, statements=["v1 = torch.fft.fft(x).real",
        "v2 = torch.diagonal_scatter(v1, v1.diagonal() + 1).clamp(-1, 2)[:, 3:]"],
        results=["v1", "v2", "v1.clamp(max=0)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    torch._dynamo.reset()
    inkle.reset()
    outcome, text = fuzz_judge.tried(FOUND[name])
    assert outcome == "right", f"{text}\n{FOUND[name]}"
    assert any(r.compiled for r in inkle.reports())
    assert not any(r.fault for r in inkle.reports())


BEYOND = {
    "between the elements of a view": ["v1 = x[1:].as_strided((2,), (1,))", "v2 = v1.repeat(2)"],
    "beyond the elements of a view": ["v1 = x[:1].as_strided((3,), (2,))", "v2 = v1.repeat(2)"],
    "between written elements": [
        "v1 = x.as_strided((2,), (1,))", "x[1:] = 3", "v1.neg_()", "v2 = v1 & v1",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_strides_through_memory_that_is_nobodys(name: str) -> None:
    """Only eager has what lies there."""
    torch._dynamo.reset()
    inkle.reset()
    outcome, text = fuzz_judge.tried(of("i64", 5, kind="gaps", statements=BEYOND[name], results=["v2"]))
    assert outcome == "right", text
    assert ["the elements of its operand" in r.reason for r in inkle.reports()] == [True]


def test_a_repeated_conjugate_beside_what_it_is_of() -> None:
    """It has no memory of its own, so the graph runs in eager."""
    torch._dynamo.reset()
    inkle.reset()
    program = of(
        "c64", 3, 2, statements=["v1 = x.tile(2)", "v2 = v1.mH.expand(2, 4, 3)"], results=["v2", "v1"]
    )
    outcome, text = fuzz_judge.tried(program)
    assert outcome == "right", text
    assert any("lazy and shares memory" in r.reason for r in inkle.reports())


def test_a_view_beside_a_number_of_python_s_and_a_write_to_what_it_is_of() -> None:
    """The number cuts the graph between the view and what reads it, and the write comes last."""
    torch._dynamo.reset()

    def write(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        repeated = x[..., ::2].repeat_interleave(2, -1)
        x.bernoulli_(0.5)
        return repeated, x + (n ^ n)

    compiled = torch.compile(write, backend="inkle", dynamic=True, options={"random": "eager"})
    for n in (-(2**63) + 1, 3):
        x, y = torch.arange(3.0) + 3, torch.arange(3.0) + 3
        torch.manual_seed(0)
        expected = write(x, n)
        torch.manual_seed(0)
        results = compiled(y, n)
        assert all(torch.equal(r, e) for r, e in zip((*results, y), (*expected, x)))


REVERSED = {
    "rows": lambda x, w: x[0].flip(0) @ w,
    "batches": lambda x, w: x.flip(0) @ x.mT,
    "weights": lambda x, w: torch.nn.functional.linear(x, w.flip(0)),
    "columns": lambda x, w: x.flip(-1) @ w,
}


@pytest.mark.parametrize("name", REVERSED)
def test_reversed_operands_of_products(name: str) -> None:
    """Libraries take no negative strides: they are copied."""
    torch._dynamo.reset()
    inkle.reset()
    x, w = torch.randn(3, 2, 4), torch.randn(4, 4)
    result = torch.compile(REVERSED[name], backend="inkle")(x, w)
    torch.testing.assert_close(result, REVERSED[name](x, w))
    assert inkle.reports()[0].compiled and not inkle.reports()[0].fault


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 3.0, 0.0, float("inf")])
def test_the_norm_of_one_element_is_its_absolute_value(order: float) -> None:
    """Also where its power leaves the dtype, but not of a tensor without dimensions that names one."""
    torch._dynamo.reset()

    def norms(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.norm(order, -1), torch.linalg.vector_norm(x, order, -1, keepdim=True), x.norm(order, 0)

    x = torch.tensor([[-3e19], [2e-30], [0.0], [float("-inf")]])
    for result, expected in zip(torch.compile(norms, backend="inkle")(x), norms(x)):
        torch.testing.assert_close(result, expected)

    def over(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.linalg.vector_norm(x, order, dim, True) for dim in (None, 0, -1))

    for shape in ((), (1,), (1, 1)):
        x = torch.full(shape, -8.1e31)
        for result, expected in zip(torch.compile(over, backend="inkle")(x), over(x)):
            torch.testing.assert_close(result, expected)


def test_a_quotient_that_a_pad_cuts_away_is_not_taken() -> None:
    """A pad reads 0 where it reads nothing, and a division by that would fail the call."""
    torch._dynamo.reset()
    x = torch.tensor([3, 4])
    compiled = torch.compile(lambda x: torch.nn.functional.pad(5 // x, (-1, 1), value=1), backend="inkle")
    assert compiled(x).tolist() == [1, 1]
    with pytest.raises(Exception, match="division by zero|ZeroDivisionError"):
        compiled(torch.tensor([3, 0]))


def test_an_expanded_constant_as_operand_of_a_call_to_eager() -> None:
    """In a graph that eager runs it is no view, and has other strides than stated."""
    torch._dynamo.reset()

    def weighted(x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(torch.ones(1, 4).expand(3, 4)) * x

    x = torch.randn(3, 4, requires_grad=True)
    result = torch.compile(weighted, backend="inkle", options={"fail_stage": "run", "strict": False})(x)
    torch.testing.assert_close(result, weighted(x))


def same_step(compiled: Any, plain: Any, x: torch.Tensor, number: int) -> None:
    """The result of a function of a tensor and an int is eager's, and so is the gradient of its sum."""
    x = x.requires_grad_()
    y = x.detach().clone().requires_grad_()
    result, expected = compiled(x, number), plain(y, number)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_rows_of_a_symbolic_size_padded_by_a_symbolic_int() -> None:
    """A kernel's memory for rows is of their size in the call, also where the host computes it."""
    torch._dynamo.reset()
    inkle.reset()

    def padded(x: torch.Tensor, k: int) -> torch.Tensor:
        return torch.nn.functional.pad(x, (k % 3, 1)).transpose(1, 2).sin().logsumexp(1)

    compiled = torch.compile(padded, backend="inkle")
    for batch, length, k in ((2, 17, 1), (3, 21, 2), (1, 9, 5), (2, 800, 7)):
        same_step(compiled, padded, torch.randn(batch, 6, length), k)
    assert all(report.compiled and not report.fault for report in inkle.reports())


def test_parts_of_a_slice_that_is_all_by_a_guard() -> None:
    """The size of a part differs from the stated one by what the guard equates."""
    torch._dynamo.reset()
    inkle.reset()

    def parts(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        v = (x * 2)[: n % 7]
        return v.t().split(2)[0], v.unfold(0, 2, 1)

    compiled = torch.compile(parts, backend="inkle", dynamic=True)
    for size, n in ((4, -1), (5, -8), (3, 5)):
        x = torch.arange(float(size))
        for result, expected in zip(compiled(x, n), parts(x, n)):
            torch.testing.assert_close(result, expected)
    assert all(report.compiled and not report.fault for report in inkle.reports())


def test_a_view_of_all_of_an_argument_keeps_its_sizes() -> None:
    """The argument gets other sizes in place behind it."""
    torch._dynamo.reset()

    def squeezed(x: torch.Tensor, n: int) -> torch.Tensor:
        found = x.nonzero()
        rows = (found ^ found).roll(n, -2)
        assert x.sum().item() > 0
        rows = rows.contiguous()
        view = rows[..., -1:n]
        rows.squeeze_()
        return view

    compiled = torch.compile(squeezed, backend="inkle", dynamic=False)
    for n in (9223372036854775806, 4294967293):
        x = torch.tensor([1.0, 2.0])
        assert compiled(x, n).shape == squeezed(x, n).shape == (2, 1)


def test_two_views_of_all_of_a_value_are_two_tensors() -> None:
    """Of a part of a graph that begins where a size is computed the value is an argument."""
    torch._dynamo.reset()

    def grid(n: int) -> tuple[torch.Tensor, ...]:
        part = torch.full((4,), 2)[n::2]
        scaled = part * 2 ** (n % 8)
        made = torch.meshgrid(part.float().reshape(-1), part.float().reshape(-1), indexing="ij")[0]
        return made, made[..., :1], scaled

    made, column, _ = torch.compile(grid, backend="inkle", dynamic=True)(-2)
    assert made is not column
    assert made.data_ptr() == column.data_ptr()


def test_a_gradient_whose_size_a_guard_of_torch_makes_1() -> None:
    """The graph states it as a remainder, and that of its value as 1."""
    torch._dynamo.reset()
    inkle.reset()

    def repeated(x: torch.Tensor, m: int) -> torch.Tensor:
        return x.softmax(-1).repeat(m % 5 % 3 + 1)

    compiled = torch.compile(repeated, backend="inkle")
    for m in (-3524149093018988149, -65536, -2616547752030880985, 4):
        same_step(compiled, repeated, torch.randn(1), m)
    assert all(report.compiled and not report.fault for report in inkle.reports())


def test_a_part_of_a_written_argument_as_other_numbers() -> None:
    """AOTAutograd reads where the part lies, which took a symbolic size, and gives it the argument's dtype."""
    torch._dynamo.reset()
    inkle.reset()

    def doubled(x: torch.Tensor, n: int) -> torch.Tensor:
        bits = x.view(torch.int32)
        part = bits[:, n:]
        bits.mul_(2)
        return part

    compiled = torch.compile(doubled, backend="inkle", dynamic=True)
    for n in (2, 1):
        x, y = torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4)
        assert torch.equal(compiled(x, n).view(torch.int32), doubled(y, n))
        assert torch.equal(x.view(torch.int32), y.view(torch.int32))
    assert not any(report.fault for report in inkle.reports())
