"""What fusion is judged by: launches, bytes moved over the least possible, peak of working memory."""

from __future__ import annotations

import math
from typing import Any, Iterable

from corpus_parts.comparing import Made

# What is judged, and how a case's value is found; None: not known.
MEASURES = {
    "launches": lambda m: m["launches"] + m["calls"],
    "bytes": lambda m: m["bytes"] / m["least"] if m["least"] else None,
    "peak": lambda m: m.get("peak"),
}


def rows(old: Made, new: Made) -> Iterable[tuple[str, str, float, float]]:
    """(case, measure, old, new) of all cases that both builds compile."""
    for name, case in new.cases.items():
        before = old.cases.get(name, {}).get("moves")
        if before is None or "moves" not in case:
            continue
        for measure, value in MEASURES.items():
            a, b = value(before), value(case["moves"])
            if a is not None and b is not None:
                yield name, measure, a, b


def judge(target: str, old: Made, new: Made, show: int) -> bool:
    """Prints a line a measure and the cases that have more, or fewer; whether none has more."""
    found: dict[str, list[tuple[str, float, float]]] = {m: [] for m in MEASURES}
    for name, measure, a, b in rows(old, new):
        found[measure].append((name, a, b))
    fine = True
    for measure, cases in found.items():
        ratios = [b / a for _, a, b in cases if a > 0 and b > 0]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
        more = sorted((c for c in cases if c[2] > c[1] * (1 + 1e-9)), key=_change, reverse=True)
        fewer = sorted((c for c in cases if c[2] < c[1] * (1 - 1e-9)), key=_change)
        fine = fine and not more
        print(f"{target:8} {measure:9} {len(cases):5} cases, geomean {mean:.4f}, "
              f"{len(more)} more, {len(fewer)} fewer")  # fmt: skip
        for word, list_ in (("more", more), ("fewer", fewer)):
            for name, a, b in list_[:show]:
                print(f"    {word}: {name}: {_text(a)} -> {_text(b)}")
    return fine


def _change(case: tuple[str, float, float]) -> float:
    _, a, b = case
    return b / a if a else math.inf


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
