"""Ints of a random function (``fuzz_draw.py``): which are given, and what is done with them.

They come from the whole range of 64 bits, and other ones in each call. Sizes stay small, whatever they are.
"""

from __future__ import annotations

import random

# Seeds from here on draw ints as well; those before stand for the functions that they always were.
FIRST = 10_000_000

LEAST, LARGEST = -(2**63), 2**63 - 1

# {j}: an int; {p}: one that is not negative; {q}: not 0; {o}, {e}: as {j}, {q}, but the same one everywhere;
# {h}: an exponent of {f}; {i}: an integer tensor; {x}: a real one; {a}: any; {f}: of floats; {d}: a dimension of it.
TENSORS = [
    # Steps. With one near 2^63 eager's size of a slice overflows, to 0 or to -1, which it refuses, or its stride;
    # torch's tracing states 1 element. So a step is 2^56 at most.
    "{a}[::min({q}, 2 ** 56)]", "{a}[::1 + {j} % 3]", "torch.arange(0, 12, 1 + {j} % 5)", "torch.arange(0, 3 * {e}, {e})",
    "torch.arange({o}, {o} + 5, 2)", "torch.arange({j} % 7, -9, -1 - {j} % 3)", "{a}[{j}::2]",
    "torch.arange({o}, {o} - 4, -1)",
    # Offsets.
    "{a}[{j}:]", "{a}[:{j}]", "{a}[{j}:{j}]", "{a}[..., {j}:]", "{a}[..., -1:{j}]", "{a}.roll({j})",
    "{a}.roll({j}, {d})", "{x}.tril({j})", "{x}.triu({j})", "{a}.diagonal({j})", "{a}[{j} % {a}.shape[0]]",
    "{a}.select({d}, {j} % {a}.shape[{d}])", "{a}.narrow({d}, {j} % {a}.shape[{d}], 1)", "F.pad({x}, ({j} % 3 + 1, 0))",
    "{a}[max({j}, 0):]", "{a}[:min({j}, 3)]", "{a}[{j} // 2:]", "{a}.repeat({j} % 3 + 1, *[1] * ({a}.dim() - 1))",
    # Exponents.
    "{i} ** {p}", "{i} ** ({j} % 4)", "{f} ** {h}", "{i} * {j} ** 2", "{a} * 2 ** ({j} % 8)", "{i} << ({j} % 9)",
    "{i} >> ({j} % 70)",
    # Divisors.
    "{i} // {q}", "{i} % {q}", "{i} / {q}", "{i} % ({j} // 3)", "{j} // {i}", "{j} % {i}", "{f} // {q}", "{f} % {q}",
    "{f} / {q}", "torch.remainder({x}, {q})", "{x}.fmod({q})", "torch.div({i}, {q}, rounding_mode='trunc')",
    "{i} + {j} // 3", "{i} - 7 // {q}", "{i} * ({j} % 5)", "{i} + {j} % {q}", "{f} * ({j} % -7)",
    # Comparisons.
    "{x} < {j}", "{x} >= {j}", "{i} == {j}", "{i} != {j} % 4", "{a} * ({j} < {j})", "{x}.clamp({j})",
    "{x}.clamp(max={j})", "{x}.clamp({j}, {j})", "torch.where({x} > {j}, {x}, 1)", "torch.where({i} > 0, {j}, {j})",
    "torch.full((2,), {j} >= {j})", "{x}.reshape(-1)[0] < {j}", "{x}.max() <= {j}", "{a} * ({j} == 3)",
    # Sums, products and bits.
    "{i} + {j}", "{j} - {i}", "{i} * {j}", "{f} + {j}", "{f} * {j}", "{i} & {j}", "{i} | {j}", "{i} ^ {j}",
    "{i}.add({j}, alpha=3)", "torch.tensor([{j}, {j}])", "torch.full((3,), {j})", "{i}.masked_fill({i} > 0, {j})",
]  # fmt: skip
INTS = [
    "{j} // 3", "7 // {q}", "{j} % 5", "{j} % -3", "{j} // {q}", "{j} % {q}", "{j} ** 2", "2 ** ({j} % 8)", "abs({j})",
    "-{j}", "{j} + {j}", "{j} - {j}", "{j} * 3", "max({j}, {j})", "min({j}, 5)", "{j} & 12", "{j} | 5", "{j} >> 1",
    "{j} << 2", "{j} ^ {j}", "{j} > 3", "{j} < {j}", "{j} == {j}", "{j} if {j} > 0 else -3", "{a}.shape[0] + {j}",
    "{a}.shape[0] * {j}", "int({j} / 4)", "{j} + 1", "{j} % {a}.shape[0]",
]  # fmt: skip
CONDITIONS = ["{j} > 3", "{j} < {j}", "{x}.reshape(-1)[0] < {j}", "{j} % 2 == 0", "{j} != {j}", "{j} >= {a}.shape[0]",
              "{j} // 3 > 1", "-1 <= {j} < 9", "{x}.sum() > {j}"]  # fmt: skip
LOOPS = "abs({j}) % 4"


def exponent(name: str, is_f32: bool) -> str:
    """Of floats: an int of which eager has one result.

    Of an odd int that f32 does not hold it has two: in whole vectors the exponent is rounded to f32, to an even
    number, and in what is left of a vector it is not. The other dtypes have one. A gradient raises to one less.
    """
    return f"max(1 - 2 ** 24, min({name}, 2 ** 24))" if is_f32 else name


def _one(r: random.Random) -> int:
    kind = r.choice(["small", "small", "power", "half", "any", "end"])
    if kind == "small":
        return r.randint(-9, 9)
    if kind == "power":
        return r.choice([-1, 1]) * 2 ** r.randint(0, 62) + r.randint(-1, 1)
    if kind == "half":
        return r.choice([-1, 1]) * 2 ** r.choice([31, 32]) + r.randint(-2, 2)
    if kind == "end":
        return r.choice([LEAST, LARGEST, LEAST + 1, LARGEST - 1, -(2**53) - 1, 2**53 + 1])
    return r.randint(LEAST, LARGEST)


def numbers(r: random.Random) -> tuple[int, ...]:
    """Of three calls; mostly of one sign, as some ops take none of the other."""
    first = _one(r)
    later = [_one(r) for _ in range(2)]
    if r.random() < 0.7:
        later = [n if (n < 0) == (first < 0) else ~n for n in later]
    return (first, *later)
