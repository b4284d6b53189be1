"""Recorded graphs: the files of tests/corpus, each a text of many cases (src/cli/cases.h)."""

from __future__ import annotations

import dataclasses
import gzip
import pathlib
import re
import zlib
from typing import Iterable, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "corpus"
SUFFIX = ".cases.gz"
# In the order in which they are made.
GROUPS = ("golden", "classes", "small", "samples", "training", "models", "families")

# One in so many cases of a group belongs to the sample that takes less than a minute.
SAMPLED = {"golden": 8, "classes": 5, "small": 8, "samples": 16}


@dataclasses.dataclass
class Case:
    """A graph with its options and, of each tensor input, the range of its random numbers."""

    name: str
    text: str
    options: tuple[str, ...] = ()
    inputs: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        head = " ".join(["case", self.name, *self.options])
        ranges = [f"input {low!r} {high!r}" for low, high in self.inputs]
        return "\n".join([head, *ranges, self.text.rstrip("\n")]) + "\n"


def parse(text: str) -> list[Case]:
    """Raises ValueError for a text that does not begin with a case."""
    cases: list[Case] = []
    lines: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("case "):
            _, name, *options = line.split()
            cases.append(Case(name, "", tuple(options)))
            lines.append([])
        elif not cases:
            raise ValueError("expected 'case NAME'")
        elif line.startswith("input "):
            _, low, high = line.split()
            cases[-1].inputs.append((float(low), float(high)))
        else:
            lines[-1].append(line)
    for case, own in zip(cases, lines):
        case.text = "\n".join(own) + "\n"
    return cases


def write(path: pathlib.Path, cases: Iterable[Case]) -> None:
    """The same bytes for the same cases."""
    data = "".join(map(str, cases)).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def read(path: pathlib.Path) -> list[Case]:
    data = path.read_bytes()
    return parse((gzip.decompress(data) if path.suffix == ".gz" else data).decode())


def is_sampled(case: Case) -> bool:
    group = case.name.split("/")[0]
    every = SAMPLED.get(group, 0)
    return every > 0 and "no-run" not in case.options and zlib.crc32(case.name.encode()) % every == 0


def select(
    folder: pathlib.Path, groups: Sequence[str], pattern: str = "", sample: bool = False
) -> list[Case]:
    """Cases of the groups whose names hold the pattern. Raises FileNotFoundError for a group that is
    not recorded, ValueError where nothing is left."""
    read_from = [g for g in groups if not sample or g in SAMPLED]
    found = [c for group in read_from for c in read(folder / (group + SUFFIX))]
    found = [c for c in found if re.search(pattern, c.name) and (not sample or is_sampled(c))]
    if not found:
        raise ValueError(f"no case of {', '.join(groups)} has a name like '{pattern}'")
    return found
