"""Random small Python functions, drawn statement by statement while eager runs them (``fuzz.py``).

A statement that eager refuses is drawn again, so that a program is one that eager runs. What results are
not specified of is not drawn: numbers out of range made integers, the order of equal elements. Later seeds
draw more ints (``fuzz_ints.py``) and views that share elements (``fuzz_shared.py``).
"""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Any, Callable

import fuzz_ints
import fuzz_shared
import torch

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16,
          "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "i8": torch.int8,
          "bool": torch.bool, "c64": torch.complex64}  # fmt: skip
_WEIGHTS = [10, 2, 2, 1, 4, 2, 1, 1, 3, 3]
_SIZES = [1, 2, 2, 3, 3, 4, 5]
_LARGEST = 1e5
_MOST_ELEMENTS = 600


@dataclasses.dataclass
class Argument:
    """A tensor, laid out as ``kind`` says, or an int if ``dtype`` is "int"."""

    dtype: str
    shape: tuple[int, ...] = ()
    kind: str = "dense"  # transposed, gaps, offset
    value: int = 0
    later: tuple[int, ...] = ()  # ints of later calls

    def make(self, seed: int, grows: dict[int, int] | None = None, call: int = 0) -> Any:
        """Of a call; ``grows``: sizes and what they become."""
        if self.dtype == "int":
            return (self.value, *self.later)[call] if self.later else self.value + (1 if grows else 0)
        shape = tuple((grows or {}).get(n, n) for n in self.shape)
        generator = torch.Generator("cpu").manual_seed(seed)
        dtype = DTYPES[self.dtype]
        at = (0, shape) if self.kind != "transposed" else (0, shape[::-1])
        if self.kind == "gaps":
            at = (0, (*shape, 2))
        count = torch.Size(at[1]).numel() + 3
        eighths = torch.randint(-24, 25, (count,), generator=generator, device="cpu")
        if dtype == torch.bool:
            flat = eighths > 0
        elif dtype.is_complex:
            other = torch.randint(-24, 25, (count,), generator=generator, device="cpu")
            flat = torch.complex(eighths / 8, other / 8).to(dtype)
        elif dtype.is_floating_point:
            flat = (eighths / 8).to(dtype)
        else:
            flat = (eighths.abs() if dtype == torch.uint8 else eighths).to(dtype)
        flat = flat.to(torch.get_default_device())
        first = 3 if self.kind == "offset" else 0
        made = flat[first : first + torch.Size(at[1]).numel()].view(at[1])
        if self.kind == "transposed":
            return made.permute(tuple(reversed(range(made.dim()))))
        return made[..., 1] if self.kind == "gaps" else made


@dataclasses.dataclass
class Block:
    """A compound statement: a head and two bodies, the second of its ``else``."""

    head: str
    body: list[Any]
    other: list[Any] = dataclasses.field(default_factory=list)


def lines(statements: list[Any], indent: int = 1) -> list[str]:
    made = []
    space = "    " * indent
    for s in statements:
        if isinstance(s, str):
            made.append(space + s)
            continue
        made.append(f"{space}{s.head}:")
        made += lines(s.body, indent + 1) or [space + "    pass"]
        if s.other:
            made += [space + "else:", *lines(s.other, indent + 1)]
    return made


@dataclasses.dataclass
class Program:
    """A function of arguments, how it is compiled and called."""

    seed: int
    arguments: dict[str, Argument]
    statements: list[Any]
    results: list[str]
    dynamic: bool | None = False
    grad: bool = False

    @property
    def source(self) -> str:
        head = f"def f({', '.join(self.arguments)}):"
        returned = f"    return ({', '.join(self.results)}{',' if self.results else ''})"
        return "\n".join([head, *lines(self.statements), returned]) + "\n"

    def __str__(self) -> str:
        given = ", ".join(f"{n}: {_described(a)}" for n, a in self.arguments.items())
        return f"# seed {self.seed}, dynamic {self.dynamic}, grad {self.grad}; {given}\n{self.source}"


def _described(a: Argument) -> str:
    if a.dtype == "int":
        return f"int {', '.join(map(str, (a.value, *a.later)))}"
    return f"{a.dtype}{list(a.shape)}{'' if a.kind == 'dense' else ' ' + a.kind}"


def cond(predicate: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: Any) -> Any:
    """torch.cond in eager, without its own compilation."""
    return yes(*operands) if predicate else no(*operands)


def while_loop(check: Callable[..., Any], body: Callable[..., Any], carried: Any) -> Any:
    while check(*carried):
        carried = body(*carried)
    return carried


def namespace(is_eager: bool) -> dict[str, Any]:
    from torch._higher_order_ops.while_loop import while_loop as compiled_while_loop

    return {"torch": torch, "F": torch.nn.functional,
            "cond": cond if is_eager else torch.cond,
            "while_loop": while_loop if is_eager else compiled_while_loop}  # fmt: skip


# --- Statements -----------------------------------------------------------------------------------

# {a}, {b}: tensors; {f}: a float; {i}: an integer tensor; {c}: complex; {m}: bool; {x}: any real;
# {k}: a small int; {d}: a dimension of a; {s}: a scalar; {n}: an int argument or a small int; {t}: dtype;
# {z}: sizes. Those of ints: fuzz_ints.py.
_EXPRESSIONS: dict[str, list[str]] = {
    "pointwise": [
        "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} + {s}", "{a} * {s}", "{s} - {a}", "-{x}", "{x}.abs()",
        "torch.sin({f})", "torch.exp({f}.clamp(-4, 4))", "{f}.tanh()", "{f}.sigmoid()", "F.gelu({f})",
        "{f}.relu()", "torch.log1p({f}.abs())", "{f}.sqrt()", "{f} / {b}", "{f}.square()", "{f}.reciprocal()",
        "torch.where({m}, {a}, {b})", "torch.where({x} > {s}, {x}, {s})", "{x}.clamp(-1, 2)",
        "torch.maximum({x}, {x})", "{x} > {x}", "{x} <= {s}", "{a} == {b}", "{x}.sign()", "{a}.clone()",
        "torch.lerp({f}, {f}, 0.25)", "{f}.floor()", "{f}.frac()", "{f}.nan_to_num()", "torch.erf({f})",
        "{f}.atan2({f})", "{f} ** 2", "F.silu({f})", "F.hardswish({f})", "F.leaky_relu({f}, 0.1)",
        "torch.addcmul({f}, {f}, {f}, value=0.5)", "torch.remainder({x}, 3)", "{f}.fmod(1.5)", "{a} * {n}",
        "{a} + {n}", "{f}.isfinite()", "{f}.round()", "torch.hypot({f}, {f})", "{f}.rsqrt()", "{f}.cos()",
    ],
    "integers": [
        "{i} // 3", "{i} % 4", "{i} & {i}", "{i} | 5", "{i} ^ {i}", "~{i}", "{i} << 1", "{i} >> 1", "{m} & {m}",
        "{m} | {m}", "~{m}", "{m}.logical_xor({m})", "{i}.bitwise_not()", "torch.gcd({i}, {i})", "{i} * {i}",
        "{i} - {i}", "{i}.float()", "{i}.to(torch.{t})", "{m}.to(torch.{t})", "{i}.clamp(0, 3)", "{i} ** 2",
        "{i}.div(2, rounding_mode='floor')", "{i}.div(2, rounding_mode='trunc')", "{i} / 2", "{i} % -3",
        "{f}.nan_to_num(0, 9, -9).clamp(0, 9).to(torch.int64)", "{i}.sum()", "{m}.sum()", "{i}.cumsum({d})",
        "{i}.prod()", "{i}.float().mean()", "{i}.amax({d})", "{i}.abs().clamp(max=7).bincount()",
        "torch.bitwise_and({i}, {i})", "{i}.bool()", "{i}.neg()", "{i} // {n}", "{i} % {n}",
    ],
    "complex": [
        "{c} + {c}", "{c} * {c}", "{c} * {a}", "{c}.abs()", "{c}.real", "{c}.imag", "{c}.conj()", "{c} - {s}",
        "torch.view_as_real({c})", "torch.complex({f32}, {f32})", "{c}.sum()", "{c}.angle()", "{c} / (2 + 1j)",
        "{c}.conj().real", "{c}.mH", "torch.polar({f32}.abs(), {f32})", "{c} == {c}", "{c}.mean({d})",
        "torch.view_as_complex({f32}.new_ones(3, 2))", "{c}.exp().abs()", "torch.fft.fft({f32}).real",
        "{c}.resolve_conj()", "{f}.to(torch.complex64)", "{c} @ {c}", "torch.stack([{c}, {c}])",
    ],
    "views": [
        "{a}[1:]", "{a}[..., :2]", "{a}[0]", "{a}[..., ::2]", "{a}.t()", "{a}.transpose(0, -1)", "{a}.mT",
        "{a}.unsqueeze({d})", "{a}.unsqueeze(0)", "{a}.squeeze()", "{a}.reshape(-1)", "{a}.view(-1)",
        "{a}.flatten()", "{a}.expand(2, *{a}.shape)", "{a}.chunk(2)[0]", "{a}.chunk(2, -1)[-1]", "{a}.diagonal()",
        "{a}.narrow({d}, 0, 1)", "{a}.unfold({d}, 2, 1)", "{a}.select({d}, 0)", "{a}.split(2)[0]", "{a}.detach()",
        "{a}.view_as({a})", "{a}.permute(tuple(range({a}.dim()))[::-1])", "{a}.unbind()[0]", "{a}.movedim(0, -1)",
        "{a}.contiguous()", "{a}.to(torch.{t})", "{a}[None]", "{a}[:{n}]", "{a}.swapaxes(0, -1)", "{a}.reshape({a}.shape[0], -1)",
        "{a}.expand_as({a})", "torch.broadcast_to({a}, (2, *{a}.shape))", "{a}.as_strided((min(2, {a}.numel()),), (1,))", "{a}[-1:]",
        "torch.atleast_2d({a})", "{a}.unflatten(0, (1, -1))", "{a}.view(torch.int32)", "{a}.hsplit(1)[0]", "{a}[...]",
    ],
    "shapes": [
        "torch.cat([{a}, {a}])", "torch.cat([{a}, {b}], -1)", "torch.stack([{a}, {b}])", "{a}.flip(0)",
        "{a}.roll(1, {d})", "{a}.repeat(2, *[1] * ({a}.dim() - 1))", "F.pad({x}, (1, 2))", "F.pad({x}, (-1, 1), value=1)",
        "{x}.tril()", "{x}.triu(1)", "{a}[[0, 0]]", "{a}.index_select({d}, torch.tensor([0, 0]))", "{a}[torch.arange({a}.shape[0])]",
        "{a}.gather({d}, torch.zeros_like({a}, dtype=torch.int64))", "{a}.repeat_interleave(2, {d})", "{a}.rot90()",
        "torch.meshgrid({a}.reshape(-1), {a}.reshape(-1), indexing='ij')[0]", "{a}.masked_fill({m}, 0)", "{a}.tile(2)",
        "torch.tensor_split({a}, 2)[1]", "{a}.take_along_dim(torch.zeros_like({a}, dtype=torch.int64), {d})",
        "{a}.diag_embed()", "torch.block_diag({a}, {a})", "torch.hstack([{a}, {a}])", "{a}.roll({n})",
        "{a}.index_fill({d}, torch.tensor([0]), 1)", "{a}.index_add({d}, torch.tensor([0]), {a}.narrow({d}, 0, 1))",
        "{a}.scatter({d}, torch.zeros_like({a}, dtype=torch.int64).narrow({d}, 0, 1), 1)",
    ],
    "reductions": [
        "{a}.sum()", "{a}.sum({d})", "{a}.sum({d}, keepdim=True)", "{f}.mean()", "{f}.mean({d}, keepdim=True)",
        "{x}.amax({d})", "{x}.amin()", "{x}.max({d})[0]", "{f}.softmax({d})", "{f}.log_softmax(-1)", "{f}.cumsum({d})",
        "{m}.any()", "{m}.all({d})", "{f}.var({d}, correction=0)", "{f}.std()", "{f}.norm()", "{f}.logsumexp({d})",
        "{f}.prod({d})", "F.layer_norm({f}, {f}.shape[-1:])", "{x}.sort(stable=True)[0]", "{x}.count_nonzero()",
        "{f}.cumprod(-1)", "{x}.argmax({d}) * 0", "{x}.aminmax()[0]", "F.normalize({f}, dim=-1)", "{f}.sum((0, -1))",
        "{x}.cummax({d})[0]", "{f}.var_mean({d})[1]", "{x}.sort(-1, descending=True, stable=True)[1]", "F.mse_loss({f}, {f})",
        "{f}.nansum()", "F.rms_norm({f}, {f}.shape[-1:])", "{x}.std() if {x}.is_floating_point() else {x}.sum()",
    ],
    "products": [
        "{f} @ {f}.mT", "{f}.mT @ {f}", "torch.einsum('ij,kj->ik', {f}, {f})", "F.linear({f}, {f})", "torch.outer({f}.reshape(-1), {f}.reshape(-1))",
        "torch.addmm({f}, {f}, {f})", "{f} @ {f}", "torch.dot({f}.reshape(-1), {f}.reshape(-1))", "torch.bmm({f}[None], {f}.mT[None])",
        "F.scaled_dot_product_attention({f}[None, None], {f}[None, None], {f}[None, None])", "{f}.mv({f}.new_ones({f}.shape[-1]))",
        "F.conv1d({f}[None, :1], {f}.new_ones(2, 1, 2))", "torch.tensordot({f}, {f}, dims=([-1], [-1]))", "F.avg_pool1d({f}, 2)",
    ],
    "factories": [
        "torch.zeros({z})", "torch.ones({z}, dtype=torch.{t})", "torch.full({z}, {k})", "torch.arange({k})", "torch.eye(3)",
        "torch.tensor([1, 2])", "torch.tensor({s})", "torch.zeros_like({a})", "torch.arange(6.0).view(2, 3)", "{a}.new_zeros({z})",
        "torch.linspace(0, 1, 4)", "torch.full_like({a}, 2)", "torch.tensor([1.5, -2.0])[1:]", "torch.arange({n})", "torch.tensor([1j, 2])",
        "torch.ones({a}.shape)", "torch.zeros({a}.shape[0], 2)", "torch.tensor({n})", "torch.empty({z}).fill_(1)", "torch.zeros(3).expand(2, 3)",
    ],
    "random": [
        "torch.rand({z})", "torch.randn({z})", "torch.randint(0, 9, {z})", "torch.randperm(5)", "F.dropout({f}, 0.5)", "torch.rand_like({f})",
        "torch.randn_like({f})", "torch.bernoulli({f}.sigmoid())", "torch.randint(-5, 5, {z}, dtype=torch.{int})", "torch.empty({z}).uniform_(-1, 1)",
        "{f} + torch.rand({z})", "F.dropout({f}, 0.25, training=False)", "torch.normal(0.0, 1.0, {z})", "torch.empty({z}).normal_()",
        "torch.empty({z}).exponential_().log1p()", "torch.randint_like({f}, 4)", "torch.randn({z}, dtype=torch.complex64)", "torch.rand({z}).multinomial(1)",
    ],
}  # fmt: skip

_WRITES = [
    "{a}.add_({b})", "{a}.mul_({s})", "{a}.zero_()", "{a}.fill_(1)", "{a}.copy_({b})", "{a}[0] = {s}", "{a}[1:] = {s}", "{a}[..., 0] = {b}",
    "{f}.relu_()", "{a}.masked_fill_({m}, 0)", "{a}.sub_({b})", "{a}.t().add_(1)", "{a}[0].mul_(2)", "{a}.view(-1).add_({s})", "{a} += {b}", "{a} *= 2",
    "{f}.clamp_(-1, 1)", "{a}[{m}] = 0", "{a}[..., ::2] = {s}", "{f}.sin_()", "{a}.index_fill_({d}, torch.tensor([0]), 2)", "{a}[torch.tensor([0])] += 1",
    "{a}.transpose(0, -1).copy_({b}.transpose(0, -1))", "{a}.index_add_({d}, torch.tensor([0]), {a}.narrow({d}, 0, 1).clone())", "{a}.neg_()",
    "{c}.real.mul_(2)", "{c}.imag.zero_()", "{a}.diagonal().fill_(3)", "{f}.exp_().clamp_(max=5)", "{a}.select({d}, 0).copy_({a}.select({d}, -1))",
    "{a}.scatter_({d}, torch.zeros_like({a}, dtype=torch.int64).narrow({d}, 0, 1), 1)", "{a}[:1], {a}[-1:] = {a}[-1:].clone(), {a}[:1].clone()",
    "{f}.uniform_(0, 1)", "{f}.bernoulli_(0.5)", "{f}.normal_()", "{i}.bitwise_and_(3)", "{i} -= 1", "{m}.logical_not_()", "torch.add({f}, 1, out={f})",
    "{a}.detach().add_(1)", "{a}.squeeze_()", "{a}.t_()", "{a}.unsqueeze_(0)", "{f}.swapaxes(0, -1).sub_({s})", "{a}.chunk(2)[0].add_(1)",
]  # fmt: skip
_BREAKS = [
    "torch._dynamo.graph_break()", "torch._dynamo.graph_break()", "k = int({i}.sum())", "k = {f}.sum().item() > 0", "k = {m}.tolist()",
    "k = {i}.sum().item() % 3", "k = len({a}.tolist()) if {a}.dim() else 0", "k = float({f}.nan_to_num().clamp(-9, 9).sum())",
]  # fmt: skip
_DATA = ["{v} = {a}[{m}]", "{v} = {x}.nonzero()", "{v} = {i}.unique()", "{v} = {a}.reshape(-1)[:max(0, int({m}.sum()))]",
         "{v} = {f} * {f}.sum().item()", "{v} = torch.zeros(int({m}.sum()) + 1)", "{v} = {a}.masked_select({m})"]  # fmt: skip
_CONDITIONS = ["{f}.sum() > 0", "{m}.any()", "{a}.shape[0] > 2", "{i}.sum() % 2 == 0", "{x}.sum().item() > 1", "{a}.dim() == 2",
               "{n} > 2"]  # fmt: skip
_HIGHER = [
    "{v} = cond({f}.sum() > 0, lambda p: p.sin() + 1, lambda p: p.cos() * 2, ({f},))",
    "{v} = cond({m}.any(), lambda p, q: (p + q).clone(), lambda p, q: (p - q).clone(), ({f}, {f}))",
    "{v} = while_loop(lambda j, p: j < 3, lambda j, p: (j + 1, p * 0.5 + 1), (torch.tensor(0), {f}.clone()))[1]",
    "{v} = cond({x}.sum() > 0, lambda p: p * 2, lambda p: p - 1, ({i},))",
    "{v} = torch.vmap(lambda p: p * 2 + p.sum())({f})",
    "{v} = torch.func.grad(lambda p: (p * p).sum())({f32})",
    "with torch.no_grad(): {v} = {f} * 3",
    "{v} = [q * 2 for q in {a}.unbind()][-1]",
    "{v} = (lambda p, *q, r=2: p * r)({a}, r={k})",
    "{v} = dict(p={a}, q={b})['q'] + 1",
]  # fmt: skip


class Drawing:
    def __init__(self, seed: int):
        self._r = random.Random(seed)
        self._seed = seed
        self.values: dict[str, Any] = namespace(is_eager=True)
        self._names: list[str] = []
        self._random: set[str] = set()
        self._grad = False
        self._has_ints = seed >= fuzz_ints.FIRST
        self._large: list[str] = []  # tensors of numbers that nothing reads

    def program(self) -> Program:
        r = self._r
        self._grad = r.random() < 0.3
        arguments = self._arguments()
        for number, (name, argument) in enumerate(arguments.items()):
            value = argument.make(self._seed + number)
            if self._grad and isinstance(value, torch.Tensor) and value.is_floating_point():
                value = value.detach().clone().requires_grad_()
            self.values[name] = value
        self._names = list(arguments)
        torch.manual_seed(self._seed)
        with torch.set_grad_enabled(self._grad):
            statements = self._statements(r.randint(3, 10), 0)
        tensors = [n for n in self._names if isinstance(self.values.get(n), torch.Tensor)]
        results = r.sample(tensors, min(len(tensors), r.randint(1, 4)))
        if tensors and tensors[-1] not in results:
            results.append(tensors[-1])
        # Tracing drops draws that nobody reads, and later ones are others then.
        results += [n for n in tensors if n in self._random and n not in results]
        if r.random() < 0.2 and results:
            results.append(r.choice(results))
        if r.random() < 0.2 and results:
            results.append(f"{r.choice(results)}[..., :1]")
        if self._has_ints:
            ints = [n for n in self._names if isinstance(self.values.get(n), int) and n not in arguments]
            results += self._large + r.sample(ints, min(len(ints), 2))
        dynamic = r.choice([False, None, True, True] if self._has_ints else [False, False, None, True])
        return Program(self._seed, arguments, statements, results, dynamic, self._grad)

    def _arguments(self) -> dict[str, Argument]:
        r = self._r
        shape = [r.choice(_SIZES) for _ in range(r.choice([1, 2, 2, 2, 3]))]
        made = {}
        for number in range(r.randint(1, 3)):
            own = tuple(1 if r.random() < 0.1 else n for n in shape[r.choice([0, 0, 0, 1]) :])
            if r.random() < 0.03:
                own = (0, *own[1:])
            dtype = r.choices(list(DTYPES), _WEIGHTS)[0] if number else r.choice(["f32", "f32", "f64", "i64", "c64", "bf16"])
            kind = r.choice(["dense", "dense", "dense", "transposed", "gaps", "offset"])
            made[f"x{number}"] = Argument(dtype, own, kind)
        if self._has_ints:
            for name in "nm"[: r.choice([1, 1, 2])]:
                first, *later = fuzz_ints.numbers(r)
                made[name] = Argument("int", value=first, later=tuple(later))
        elif r.random() < 0.25:
            made["n"] = Argument("int", value=r.choice([-3, -1, 2, 3, 4, 5]))
        return made

    def _ints(self) -> list[str]:
        """Not bools: torch's tracing has no arithmetic of symbolic ones."""
        return [n for n in self._names if type(self.values.get(n)) is int]

    def _statements(self, count: int, depth: int) -> list[Any]:
        made: list[Any] = []
        for _ in range(count):
            for _ in range(8):
                statement = self._statement(depth)
                if statement is not None and self._runs(statement):
                    made.append(statement)
                    break
        return made

    def _statement(self, depth: int) -> Any:
        r = self._r
        if self._has_ints and r.random() < 0.4:
            if depth == 0 and r.random() < 0.3:
                return self._filled("{v} = " + r.choice(fuzz_ints.INTS))
            made = "{v}" if depth > 0 or r.random() < 0.5 else f"w{len(self._large)}"
            return self._filled(f"{made} = {r.choice(fuzz_ints.TENSORS)}")
        if self._seed >= fuzz_shared.FIRST and r.random() < 0.3:
            return self._filled(r.choice(fuzz_shared.STATEMENTS))
        kind = r.choices(["value", "write", "break", "block", "data", "higher"], [60, 22, 5, 5, 2, 3])[0]
        if kind == "value":
            family = r.choices(list(_EXPRESSIONS), [12, 8, 6, 14, 8, 8, 4, 5, 5])[0]
            return self._filled("{v} = " + r.choice(_EXPRESSIONS[family]))
        if kind == "write":
            return self._filled(r.choice(_WRITES))
        if kind == "break":
            return self._filled(r.choice(_BREAKS))
        if kind == "data":
            return self._filled(r.choice(_DATA))
        if kind == "higher":
            return self._filled(r.choice(_HIGHER))
        if depth > 0:
            return None
        return self._block()

    def _block(self) -> Any:
        """Bodies write to variables that there are; what they make is seen in them alone."""
        r = self._r
        conditions, times = _CONDITIONS, "abs(n)" if "n" in self._names else "2"
        if self._has_ints:
            conditions, times = fuzz_ints.CONDITIONS + _CONDITIONS, self._filled(fuzz_ints.LOOPS) or "2"
        head = f"for j in range({r.choice(['2', '3', times])})"
        if is_branch := r.random() < 0.7:
            head = self._filled("if " + r.choice(conditions))
            if head is None:
                return None
        before, names = dict(self.values), list(self._names)
        body, other = self._body(), self._body() if is_branch and r.random() < 0.6 else []
        self.values, self._names = before, names
        return Block(head, body, other) if body else None

    def _body(self) -> list[Any]:
        made = self._statements(self._r.randint(1, 2), 1)
        tensors = [n for n in self._names if isinstance(self.values.get(n), torch.Tensor)]
        if len(tensors) > 1 and self._r.random() < 0.5:
            one = f"{self._r.choice(tensors)} = {self._r.choice(tensors)} * 2"
            made += [one] if self._runs(one) else []
        return made

    def _filled(self, template: str) -> str | None:
        """The template with variables that fit; None where there are none."""
        r = self._r
        tensors = [n for n in self._names if isinstance(self.values.get(n), torch.Tensor)]
        chosen: dict[str, str] = {}

        def pick(kind: str) -> str | None:
            if kind == "v":
                return f"v{len(self._names)}"
            if kind in ("j", "p", "q", "o", "e"):
                return self._int(kind)
            if kind == "h":
                return fuzz_ints.exponent(self._int("j"), self.values[chosen["f"]].dtype == torch.float32)
            if kind == "n" and self._has_ints:
                return f"({self._int('j')} % 7)"
            if kind in ("k", "s", "n", "d", "z", "t", "int"):
                return self._scalar(kind, chosen)
            fits = [n for n in tensors if _fits(self.values[n], kind)]
            if not fits:
                return None
            name = fits[-1] if r.random() < 0.4 else r.choice(fits)
            chosen[kind] = name
            return name

        parts = []
        at = 0
        fixed: dict[str, str] = {}  # the same {a} in a write or a view is one tensor
        for match in re.finditer(r"\{(\w+)\}", template):
            kind = match[1]
            is_one = kind in ("v", "a", "d", "o", "e") or (kind == "f" and "out=" in template)
            text = fixed.get(kind) if is_one else None
            text = text if text is not None else pick(kind)
            if text is None:
                return None
            fixed[kind] = text
            parts += [template[at : match.start()], text]
            at = match.end()
        return "".join(parts) + template[at:]

    def _int(self, kind: str) -> str | None:
        """A variable; of a kind of numbers if there is such a one."""
        names = self._ints()
        if not names:
            return None
        good = [n for n in names if (self.values[n] != 0 if kind in "qe" else self.values[n] >= 0)]
        return self._r.choice(names if kind in "jo" or not good else good)

    def _scalar(self, kind: str, chosen: dict[str, str]) -> str:
        r = self._r
        if kind == "n":
            return "n" if "n" in self._names else str(r.randint(1, 3))
        if kind == "k":
            return str(r.randint(1, 4))
        if kind == "s":
            return r.choice(["2", "0.5", "-1", "1.5", "3", "True", "0"])
        if kind == "d":
            names = [n for k, n in chosen.items() if k in "aficxm"]
            rank = self.values[names[-1]].dim() if names else 1
            return str(r.randrange(-max(rank, 1), max(rank, 1)))
        if kind == "z":
            return str(tuple(r.choice(_SIZES) for _ in range(r.randint(1, 2))))
        if kind == "int":
            return r.choice(["int64", "int32", "int8"])
        return r.choice(["float32", "float64", "bfloat16", "float16", "complex64"])

    def _is_specified(self, text: str) -> bool:
        """Attention whose keys and values are not as many reads beyond its operands in eager."""
        if self._seed >= fuzz_shared.FIRST and not fuzz_shared.is_specified(text, self.values):
            return False
        named = re.search(r"attention\(\w+\[None, None\], (\w+)\[None, None\], (\w+)\[", text)
        given = [self.values.get(n) for n in named.groups()] if named else []
        return len({t.shape[-2:-1] for t in given if isinstance(t, torch.Tensor)}) <= 1

    def _runs(self, statement: Any) -> bool:
        """Runs it in eager; whether it may stand in the program."""
        text = "\n".join(lines([statement], 0))
        if not self._is_specified(text):
            return False
        state = torch.get_rng_state()
        try:
            exec(text, self.values)  # noqa: S102: text that was drawn here
        except Exception:  # noqa: BLE001: what eager refuses
            return False
        first = text.split(" = ")[0].removeprefix("with torch.no_grad(): ")
        for name, value in list(self.values.items()):
            if not isinstance(value, torch.Tensor) and name not in self._names:
                continue
            if not (value.numel() <= _MOST_ELEMENTS if name[0] == "w" else _is_tame(value)):
                del self.values[name]
                self._names = [n for n in self._names if n != name]
                return False
        if first[0] == "w" and first.isidentifier():
            self._large.append(first)
        if first.startswith("v") and first.isidentifier() and first not in self._names:
            self._names.append(first)
        if not torch.equal(state, torch.get_rng_state()):
            self._random |= set(re.findall(r"\b[vx]\d+\b", text))
        return True


def _fits(value: torch.Tensor, kind: str) -> bool:
    if kind in ("a", "b"):
        return True
    dtype = value.dtype
    if kind == "f":
        return dtype.is_floating_point
    if kind == "f32":
        return dtype == torch.float32
    if kind == "c":
        return dtype.is_complex
    if kind == "m":
        return dtype == torch.bool
    if kind == "i":
        return not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool
    return not dtype.is_complex and dtype != torch.bool


def _is_tame(value: Any) -> bool:
    """Small enough, and its numbers too; an int of 64 bits."""
    if not isinstance(value, torch.Tensor):
        return fuzz_ints.LEAST <= value <= fuzz_ints.LARGEST
    if value.numel() > _MOST_ELEMENTS:
        return False
    if value.numel() == 0 or value.dtype == torch.bool:
        return True
    sizes = value.detach().abs().double() if value.is_complex() else value.detach().double().abs()
    sizes = sizes[sizes.isfinite()]
    return sizes.numel() == 0 or bool(sizes.max() < _LARGEST)


def draw(seed: int) -> Program:
    return Drawing(seed).program()
