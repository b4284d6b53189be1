"""CUDA text of generated kernels, the same whatever its names are."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    r"|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||::|[-+*/%&|^]=|.)",
    re.S,
)

# Words of the language and of its kernels; names that helpers declare are found in their text.
_LANGUAGE = frozenset(
    """alignas alignof asm auto bool break case char class const constexpr continue decltype default
    delete do double else enum explicit extern false float for friend goto if inline int long
    mutable namespace new nullptr operator private protected public register reinterpret_cast
    return short signed sizeof static static_assert static_cast struct switch template this true
    typedef typename union unsigned using virtual void volatile wchar_t while
    threadIdx blockIdx blockDim gridDim warpSize x y z w""".split()
)


def tokens(text: str) -> list[str]:
    """Without blanks and comments."""
    return [m.group() for m in _TOKEN.finditer(text) if m.lastgroup != "skip"]


def reserved_words(*preludes: str) -> frozenset[str]:
    names = {m.group() for p in preludes for m in re.finditer(r"[A-Za-z_]\w*", p)}
    return _LANGUAGE | names


def normalised(text: str, reserved: frozenset[str]) -> str:
    """A token a line. Names that are not reserved are numbered in the order in which they first
    appear: two texts are equal where a one-to-one renaming makes them so. Names with two leading
    underscores are the compiler's own."""
    numbers: dict[str, str] = {}
    result = []
    for token in tokens(text):
        is_name = token[0].isalpha() or token[0] == "_"
        if is_name and token not in reserved and not token.startswith("__"):
            token = numbers.setdefault(token, f"@{len(numbers)}")
        result.append(token)
    return "\n".join(result)
