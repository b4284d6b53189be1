"""What may be near in the tables of docs/coverage.md: the list of near.txt, each with its reason."""

from __future__ import annotations

import functools
import os

_LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "near.txt")


def parse(text: str) -> dict[tuple[str, str, str], str]:
    """(script, setting, name) -> why it may be near. ValueError for a line without a reason."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 4 or not all(cells):
            raise ValueError(f"near.txt:{number}: script | setting | name | reason: {line}")
        found[cells[0], cells[1], cells[2]] = cells[3]
    return found


@functools.cache
def _listed() -> dict[tuple[str, str, str], str]:
    with open(_LIST) as file:
        return parse(file.read())


def reason(script: str, setting: str, name: str) -> str:
    """Why it may be near; "" where it may not."""
    return _listed().get((script, setting, name.rsplit("/", 1)[-1]), "")
