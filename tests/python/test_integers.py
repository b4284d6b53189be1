"""Python ints and sizes as symbols: of any sign, in arithmetic that the compiler has and has not."""

from __future__ import annotations

import math
import pathlib
import random
import sys
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F

import inkle
from checks import IS_OLDER_TORCH, leaves, randn, same
from inkle.eager_graph import size_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import common  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

LEAST, LARGEST = -(2**63), 2**63 - 1
# Small ones on both sides of 0, what a float holds no more, and the ends of 64 bits.
INTEGERS = [3, 5, -3, 0, -7, 1, -1, 2**40 + 1, -(2**53) - 1, LEAST, LARGEST]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()


def outcome(function: Callable[..., Any], arguments: tuple) -> Any:
    """The result, or the error."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001
        return error


def check_calls(
    function: Callable[..., Any], calls: list[tuple], *, dynamic: bool | None = True
) -> list[Any]:
    """Compiled calls as eager's; every graph is compiled. The reports, of which some calls may have
    run in eager (integers of more than 64 bits)."""
    run = torch.compile(function, backend="inkle", dynamic=dynamic)
    for arguments in calls:
        wanted, found = outcome(function, arguments), outcome(run, arguments)
        if isinstance(wanted, Exception):
            assert isinstance(found, Exception), (arguments, found, wanted)
            continue
        assert not isinstance(found, Exception), (arguments, found)
        for a, b in zip(leaves(found), leaves(wanted), strict=True):
            same(a, b)
    reports = list(inkle.reports())
    assert reports and all(r.compiled for r in reports), [(r.compiled, r.reason) for r in reports]
    assert not any(r.fault for r in reports), [r.fault for r in reports]
    return reports


def in_eager(reports: list[Any]) -> list[str]:
    return [op for r in reports for op, _, _ in r.eager]


def whole(reports: list[Any]) -> bool:
    """Nothing ran in eager."""
    return not in_eager(reports) and not any(r.reason for r in reports)


# --- Of any sign ----------------------------------------------------------------------------------


def folded(x, n):
    least = torch.minimum(torch.tensor(0, device=x.device), torch.tensor(n, device=x.device))
    return x + n % 5, x + max(n, 0), least, x + min(0, n)


@pytest.mark.parametrize("dynamic", [True, None])
def test_an_int_may_be_negative(dynamic):
    calls = [(torch.ones(2), n) for n in INTEGERS]
    reports = check_calls(folded, calls, dynamic=dynamic)
    # torch.tensor(n, device=...) is a tensor of the CPU and, for a GPU, a copy of it between devices.
    copied = {"aten::scalar_tensor", "aten::_to_copy"} if calls[0][0].is_cuda else set()
    assert set(in_eager(reports)) <= copied
    assert copied or whole(reports)


def test_an_int_that_torch_knows_to_be_negative():
    def below_zero(x, n):
        return x + n if n < 0 else x

    assert whole(check_calls(below_zero, [(torch.ones(2), n) for n in (-1, -2, -3, 4)], dynamic=None))


@pytest.mark.parametrize("divisor", [3, -4, -1])
def test_quotients_round_down(divisor):
    def divided(i, n):
        return i + n // divisor, i + n % divisor

    i = torch.arange(6)
    reports = check_calls(divided, [(i, n) for n in INTEGERS if n != LEAST])
    assert whole(reports)


def test_a_divisor_of_any_sign():
    def by(i, n):
        return i + 7 // n + -7 % n

    reports = check_calls(by, [(torch.arange(6), n) for n in (3, -3, 0, -1, LARGEST, LEAST)])
    assert not in_eager(reports)


def test_abs():
    def magnitude(x, n):
        return (x @ x).relu() + abs(n)

    assert whole(check_calls(magnitude, [(torch.ones(2, 2), n) for n in (3, -5, 0, -(2**40))]))


def test_sums_that_leave_64_bits_are_not_wrapped():
    """Python's integers have no end: such calls run in eager."""

    def above(x, i, n):
        return x + (n + 1) % 5, i * ((n - 3) // 7)

    calls = [(torch.ones(3), torch.ones(3, dtype=torch.int64), n) for n in INTEGERS]
    reports = check_calls(above, calls)
    assert "64 bits" in reports[0].reason


@pytest.mark.parametrize("size", [4, 9])
def test_places(size):
    def places(x, n):
        return x[n:] * 2, x[:n] + 1, torch.roll(x, n), torch.arange(n, n + 4, device=x.device) % 7

    calls = [(torch.arange(float(size)), n) for n in (3, 5, -3, -2, 0, 100, -100)]
    assert whole(check_calls(places, calls))


def test_int_arguments_of_ops():
    def ops(x, i, n):
        return x**n, i.clamp(n), i.clamp(max=n), i > n, x >= n, i == n, x * n

    calls = [(torch.arange(1.0, 6), torch.arange(5), n) for n in INTEGERS]
    assert whole(check_calls(ops, calls))


def test_numbers_keep_all_their_bits():
    def numbers(x, n):
        three = torch.tensor(3, device=x.device)
        clamped = x.clamp(n), x.clamp(max=n), x.clamp(n, n), three.clamp(n)
        return *clamped, x.add(x, alpha=n), torch.rsub(x, x, alpha=n), x.addcmul(x, x, value=n), F.threshold(x, 5, n)

    x = torch.tensor([3, -2, 5, 0, LARGEST, LEAST, 2**53 + 1])
    for n in (2**53 + 1, LARGEST - 1, LEAST + 1, -3):
        torch._dynamo.reset()
        check_calls(numbers, [(x, n)], dynamic=False)


@pytest.mark.parametrize("dynamic", [False, True])
def test_constant_exponents_keep_all_their_bits(dynamic):
    def power(x, n):
        return x**n, torch.arange(3, device=x.device) ** (n | 5)

    for n in (2**53 + 1, LARGEST, LARGEST - 1):
        torch._dynamo.reset()
        check_calls(power, [(torch.tensor([3, -2, 5, 1, 0, 2]), n)], dynamic=dynamic)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_constant_exponents_are_rounded_to_the_dtype(dtype, device):
    x = (torch.arange(64) / 16).to(dtype).to(device)
    for exponent in (0.3, 2.001, -1.7, 257):
        torch._dynamo.reset()
        found = torch.compile(lambda x, n: x**n, backend="inkle", dynamic=False)(x, exponent)
        if device == "cpu":
            assert torch.equal(found, x**exponent), exponent
        else:
            same(found, x**exponent)


@pytest.mark.parametrize("op", [F.silu, F.gelu, F.elu, F.celu, F.mish, F.softplus])
def test_exponentials_of_integers_are_refused(op):
    def run(x, m):
        return op((x % m) * 2)

    x = torch.arange(6, dtype=torch.int32)
    assert isinstance(outcome(run, (x, 4)), Exception)
    assert isinstance(outcome(torch.compile(run, backend="inkle"), (x, 4)), Exception)
    assert not any(r.fault for r in inkle.reports())


def test_a_constant_index_that_is_out_of_range(device):
    def fill(n):
        v = torch.tensor([1.5, -2.0], device=device)[1:][: min(n, 3)]
        return v.index_fill_(-1, torch.tensor([0], device=device), 2)

    check_calls(fill, [(5,)], dynamic=False)
    torch._dynamo.reset()
    with pytest.raises((IndexError, RuntimeError)):
        torch.compile(fill, backend="inkle", dynamic=False)(-5)
    assert not any(r.fault for r in inkle.reports())


def test_a_number_of_more_than_64_bits_costs_its_op_alone():
    def beyond(x, n):
        return x.float() % (n + n), x * 3

    reports = check_calls(beyond, [(torch.arange(5), LARGEST)], dynamic=False)
    assert in_eager(reports) == ["aten::remainder.Scalar"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_diagonal_without_elements_begins_where_its_tensor_does(dynamic):
    x = torch.randn(3, 5)

    def diagonals(x, n):
        return x.diagonal(n), (x + 1).diagonal(n), x.diagonal(-1)

    for n in (LARGEST, LARGEST - 1, 7, -7, 2, 2**61):
        torch._dynamo.reset()
        check_calls(diagonals, [(x, n)], dynamic=dynamic)
        if not x.diagonal(n).numel():
            made = torch.compile(lambda x: x.diagonal(n), backend="inkle", dynamic=dynamic)(x)  # noqa: B023
            assert made.storage_offset() == x.diagonal(n).storage_offset()


def test_results():
    def results(x, n):
        return x + 1, n * 2, n % 3, abs(n)

    assert whole(check_calls(results, [(torch.ones(2), n) for n in (3, -4, 0, 2**40)]))


def test_gradients():
    def graph(x, n):
        return (x * (n % 5) + max(n, 0) * x.sin() + abs(n) * (n >= 2)).sum()

    run = torch.compile(graph, backend="inkle", dynamic=True)
    for n in (3, -4, 0):
        x = randn(5).requires_grad_()
        (wanted,) = torch.autograd.grad(graph(x, n), x)
        same(torch.autograd.grad(run(x, n), x)[0], wanted)
    assert all(r.compiled for r in inkle.reports())


# --- Conditions as numbers ------------------------------------------------------------------------


def test_comparisons_of_sizes_are_arguments():
    def reached(x, most):
        done = torch.full((x.shape[0],), x.shape[1] >= most, dtype=torch.bool)
        return done | (x.sum(1) > 0), x * (x.shape[1] != 4), x + (x.shape[0] < most)

    calls = [(randn(2, n), most) for n in (3, 5, 4) for most in (4, -1)]
    assert whole(check_calls(reached, calls))


def test_comparisons_of_ints():
    def compared(i, n):
        return i + (n >= 4), i + (n < -2), i * (n == 5), i * (n != 0), i + (n > LARGEST - 2)

    assert not in_eager(check_calls(compared, [(torch.arange(4), n) for n in INTEGERS]))


def test_a_condition_keeps_its_type():
    def typed(b, n):
        return torch.full((3,), n >= 4), b * (n == 5), torch.where(b, n < 0, False)

    check_calls(typed, [(torch.tensor([True, False]), n) for n in (3, 5, -1)])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fail_stage", ["", "run"])
def test_a_condition_that_is_a_result(grad, fail_stage):
    def compared(x, n, m):
        return x * 2, n < m, n, n > 3, n < n, n == m

    run = torch.compile(compared, backend="inkle", dynamic=True, options={"fail_stage": fail_stage})
    for n, m in ((5, 7), (-3, -3), (LARGEST, 4)):
        x = randn(3).requires_grad_(grad)
        found, wanted = run(x, n, m), compared(x, n, m)
        same(found[0], wanted[0])
        assert [(type(v), v) for v in found[1:]] == [(type(v), v) for v in wanted[1:]]
    assert [r.compiled for r in inkle.reports()] == [True] * (1 + grad)


def test_a_condition_of_control_flow():
    def chosen(x, n):
        return torch.cond(x.shape[0] > n, lambda x: x.sin(), lambda x: x.cos(), (x,)) + 1

    reports = check_calls(chosen, [(randn(4), n) for n in (2, 5, -3)])
    assert set(in_eager(reports)) == {"higher_order::cond"}


# --- Numbers that Python computes -----------------------------------------------------------------


def test_the_side_of_a_square():
    def side(x):
        h = int(x.shape[1] ** 0.5)
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], h, h).relu() + 1

    assert whole(check_calls(side, [(randn(2, n, 8),) for n in (16, 25, 36)]))


def test_the_side_of_a_square_in_training():
    def side(x, w):
        h = int(x.shape[1] ** 0.5)
        return (x @ w).transpose(1, 2).reshape(x.shape[0], -1, h, h).relu().sum((2, 3))

    run = torch.compile(side, backend="inkle", dynamic=True)
    for n in (16, 25):
        x, w = randn(2, n, 8).requires_grad_(), randn(8, 4).requires_grad_()
        wanted = torch.autograd.grad(side(x, w).sum(), (x, w))
        for a, b in zip(torch.autograd.grad(run(x, w).sum(), (x, w)), wanted):
            same(a, b, 1e-4)
    assert all(r.compiled for r in inkle.reports())


def test_padding_to_a_multiple():
    def padded(x):
        rest = math.ceil(x.shape[0] / 7) * 7 - x.shape[0]
        return F.pad(x, (0, rest)).view(-1, 7).sum(1), x.repeat(math.ceil(x.shape[0] / 1.7))

    assert whole(check_calls(padded, [(randn(n),) for n in (4, 9, 14, 15)]))


def test_scale_factors():
    def scaled(x):
        return F.interpolate(x, scale_factor=1.3).exp() + 1

    calls = [(randn(1, 2, a, b),) for a, b in ((8, 8), (9, 11), (10, 13))]
    assert whole(check_calls(scaled, calls))


def test_shifts_bits_and_powers():
    def bits(i, n):
        return i * (n << 2), i + (n & 3), i + (n | 1), i + (n ^ 5), i + n**3

    calls = [(torch.arange(4), n) for n in (3, 5, -3, 0, -7, 2**20)]
    assert whole(check_calls(bits, calls))


def test_exponents():
    def power(i, n):
        return i + 2**n

    assert whole(check_calls(power, [(torch.arange(4), n) for n in (3, 5, 7, 40)]))


def test_an_int_tensor_to_the_power_of_an_int():
    def power(i, n):
        return i + torch.tensor(n % 7) ** n

    check_calls(power, [(torch.arange(4), n) for n in (5, 0, 62, 2**31, 2**63 - 1)])


@pytest.mark.parametrize("first", [3, -3])
def test_an_int_tensor_to_the_power_of_a_negative_int(first):
    """Eager raises, so the call does, whichever came first."""

    def power(i, n):
        return i**n, i * 2

    reports = check_calls(power, [(torch.arange(-2, 5), n) for n in (first, -2, 5, 0, LEAST, LARGEST, -1)])
    assert in_eager(reports) == (["aten::pow.Tensor_Scalar"] if first < 0 else [])


def test_rolls_by_a_remainder_of_any_int():
    def roll(x, n):
        return x.roll(n % -3), x.roll(n % 5, 0), n % -3

    x = torch.arange(3.0)
    check_calls(roll, [(x, n) for n in (-1499305125342011077, LEAST + 1, LEAST + 2, LARGEST, 4, -7)])


def test_rolls_by_any_int():
    """Eager takes none below -2^62; Inkle does."""
    shifts = (3, -2, -(2**62), LARGEST, LARGEST - 4, -(2**62) - 1, LEAST + 5, LEAST + 1, LEAST)
    run = torch.compile(torch.roll, backend="inkle", dynamic=True)
    x = torch.arange(7.0)
    for n in shifts:
        same(run(x, n), torch.roll(x, n % 7))
    assert whole(inkle.reports())


def test_the_length_of_a_part_is_a_quotient_by_any_int(device):
    """Numbers of blocks are quotients of it: small multiples of the int leave 64 bits."""

    def parts(x, n):
        means = x.mean(1, keepdim=True)
        return means[7 // n :], means % n

    x = torch.randn(2, 2, device=device)
    check_calls(parts, [(x, n) for n in (2**31, 2**60 + 2**57, 7, 8, 4, -(2**60), LEAST)])


def test_an_op_in_eager_of_the_backward_raises_there():
    """No gradient flows into the roll of the backward, by -n, which eager refuses."""

    def rolled(x, n):
        return x.roll(n).floor() + x.exp().sin().cos().tanh()

    run = torch.compile(rolled, backend="inkle", dynamic=True, options={"strict": True})
    for function in (rolled, run):
        x = torch.randn(3, 2, requires_grad=True)
        y = function(x, LARGEST - 1)
        same(y.detach(), rolled(x.detach(), LARGEST - 1))
        with pytest.raises(RuntimeError, match="SymIntArrayRef"):
            y.sum().backward()


def test_quotients_of_large_ints_are_rounded_as_floats():
    def quotient(i, n):
        return i + int(n / 3), i + math.floor(n / 3), i + int(n / 2)

    calls = [(torch.arange(4), n) for n in INTEGERS]
    assert whole(check_calls(quotient, calls))


# --- Nodes that cost themselves alone -------------------------------------------------------------


def test_a_node_on_the_meta_device():
    def meta(x):
        return (x @ x).relu(), torch.zeros(2, device="meta"), x.to("meta").sum()

    run = torch.compile(meta, backend="inkle")
    x = randn(4, 4)
    found = run(x)
    same(found[0], (x @ x).relu())
    assert [(t.device.type, t.shape) for t in found[1:]] == [("meta", (2,)), ("meta", ())]
    (report,) = inkle.reports()
    assert report.compiled and report.library_calls + report.launches > 0


@pytest.mark.cpu_only
def test_a_sparse_result():
    reports = check_calls(lambda x: (x.relu().to_sparse(), x.sin() * 2), [(randn(3, 3),)], dynamic=None)
    assert all(r.launches > 0 for r in reports)


def jagged(v):
    offsets = torch.tensor([0, 3, 7, 12])
    h = torch.nested.nested_tensor_from_jagged(v, offsets=offsets).unflatten(-1, (2, 4))
    h = h.transpose(1, 2)
    return F.scaled_dot_product_attention(h, h, h).transpose(1, 2).flatten(2).values()


@pytest.mark.cpu_only
def test_attention_on_jagged_tensors():
    with torch.no_grad():
        check_calls(jagged, [(randn(12, 8),)], dynamic=None)


@pytest.mark.cpu_only
@pytest.mark.skipif(IS_OLDER_TORCH, reason="its layouts of jagged tensors differ")
def test_a_jagged_argument():
    def product(x, w):
        return (x @ w).sin()

    run, w = torch.compile(product, backend="inkle", dynamic=True), randn(8, 8)
    for lengths in ((3, 5), (2, 7, 1)):
        x = torch.nested.nested_tensor([randn(n, 8) for n in lengths], layout=torch.jagged)
        found = run(x, w)
        same(found.values(), product(x, w).values())
        assert found.shape == x.shape
    assert all(r.compiled and not r.reason for r in inkle.reports())


@pytest.mark.parametrize("dynamic", [False, True])
def test_pooling_to_nothing(dynamic):
    def pooled(x):
        return F.adaptive_avg_pool2d(x.relu(), 0), F.adaptive_avg_pool2d(x, (0, 3)), x + 1

    assert whole(check_calls(pooled, [(randn(2, 3, n, 4),) for n in (4, 5)], dynamic=dynamic))


# --- Random programs ------------------------------------------------------------------------------


class Draw:
    """A random program of one tensor of integers and two ints: expressions as steps, offsets,
    exponents, divisors and comparisons."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self.text = ", ".join(self._result() for _ in range(3))

    def integer(self) -> int:
        if self._random.random() < 0.5:
            return self._random.randint(-9, 9)
        return self._random.randint(LEAST, LARGEST) >> self._random.randint(0, 63)

    def _number(self, depth: int = 2) -> str:
        pick = self._random.choice
        if depth == 0 or self._random.random() < 0.2:
            return pick(["n", "m", "n", "m", str(self._random.randint(-6, 6)), "x.shape[0]"])
        a, b = self._number(depth - 1), self._number(depth - 1)
        # Torch states -n for the float n / -1, without its rounding, and a // (b * c) for a // b // c,
        # which are equal for c > 0.
        constant, above_one = pick([-7, -3, -1, 2, 5, 12]), pick([-7, -3, 2, 5, 12])
        divisor = pick([2, 5, 12]) if "//" in a else constant
        b = b if "//" not in a else "3"
        return pick([
            f"({a} + {b})", f"({a} - {b})", f"({a} * {constant})", f"({a} // {divisor})",
            f"({a} % {constant})", f"({a} // {b})", f"({a} % {b})", f"max({a}, {b})",
            f"min({a}, {b})", f"abs({a})", f"({a} ** 2)", f"int({a} / {above_one})", f"({a} & 12)",
        ])  # fmt: skip

    def _result(self) -> str:
        a, b = self._number(), self._number()
        return self._random.choice([
            f"x + {a}", f"x * ({a} < {b})", f"torch.where(x > {a}, {b}, 0)", f"x.remainder({a})",
            f"x.clamp({a}, {b})", f"x[{a} :]", f"x[: {a}]", f"torch.roll(x, {a})", f"x.view(7, 1).tril({a})",
            f"torch.arange({a} % 9 - 4, 12, abs({b}) % 3 + 1, device=x.device)", f"x == {a}", f"f * {a}",
            f"f ** ({a} % 4)", f"x ** abs({a})", f"x[:: {a}]", f"x // {a}", f"x[0] < {a}", f"x + ({a} >= {b})",
            f"torch.arange(0, 3 * {a}, {a}, device=x.device)", f"x * 2 ** ({a} % 8)",
        ])  # fmt: skip


def compiled(text: str, backend: str) -> Callable[..., Any]:
    """A function of its own: what Dynamo knows of another is not known of it."""
    program = eval(f"lambda x, f, n, m: ({text})", {"torch": torch})  # noqa: S307
    return torch.compile(program, backend=backend, dynamic=True)


def is_torchs(text: str, calls: list[tuple], found: Exception) -> bool:
    """Whether the last of these calls has the same error without a compiler."""
    plain = compiled(text, "aot_eager")
    theirs = [outcome(plain, arguments) for arguments in calls][-1]
    return isinstance(theirs, Exception) and common.is_same_error(found, theirs)


# Eager takes no shift below -2^62, of which torch makes no array of ints; Inkle takes any.
TAKEN_BY_INKLE_ALONE = "SymIntArrayRef expected to contain only concrete integers"


def is_right(text: str, calls: list[tuple], run: Callable[..., Any], program: Callable[..., Any]) -> bool:
    """Of the last of these calls. Whether it was compared, or torch's tracing has the error. What eager
    refuses is refused."""
    arguments = calls[-1]
    on_cpu = [a.cpu() if isinstance(a, torch.Tensor) else a for a in arguments]
    refused = outcome(program, on_cpu)
    found = outcome(run, arguments)
    if isinstance(refused, Exception):
        # An error of Python's or of the op, which may have any result on a GPU (a remainder by 0).
        is_refused = isinstance(outcome(program, arguments), Exception)
        is_taken = "torch.roll" in text and TAKEN_BY_INKLE_ALONE in str(refused)
        assert isinstance(found, Exception) or not is_refused or is_taken, (text, arguments, refused)
        return False
    if isinstance(found, Exception):
        assert is_torchs(text, calls, found), (text, arguments, found)
        return False
    for a, b in zip(leaves(found), leaves(outcome(program, arguments)), strict=True):
        same(a, b)
    return True


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    draw = Draw(seed)
    program = eval(f"lambda x, f, n, m: ({draw.text})", {"torch": torch})  # noqa: S307
    x = torch.arange(-3, 4)
    calls = [(x, x.float(), draw.integer(), draw.integer()) for _ in range(6)]
    run = compiled(draw.text, "inkle")
    for count in range(1, 7):
        is_right(draw.text, calls[:count], run, program)
    assert all(r.compiled and not r.fault for r in inkle.reports()), draw.text


def test_the_least_and_the_largest_of_several():
    text = "max(n,2,m)-min(n,m,9)+mod(max(n,m),3)"
    assert size_of(text, {"n": 5, "m": -3}) == 5 + 3 + 2
