"""The gate of CUDA kernels: the same text after normalising names, or machine code that is as good."""

from __future__ import annotations

import collections
import pathlib
import re
import tempfile
from typing import Callable

from corpus_parts import sass
from corpus_parts.comparing import Made, Parts
from corpus_parts.cuda_text import reserved_words


def differing(a: Made, b: Made) -> tuple[dict[tuple[sass.Kernel, sass.Kernel], str], int, list[str]]:
    """Pairs of kernels of other text or another launch; how many are the same; cases without pairs.
    With other helpers no two are the same."""
    reserved = reserved_words(a.prelude, b.prelude)
    old, new = Parts(a, reserved), Parts(b, reserved)
    has_other_helpers = a.prelude != b.prelude
    pairs, unpaired = sass.pairs_of(
        ((name, sass.launched(c)) for name, c in a.cases.items()),
        {name: sass.launched(c) for name, c in b.cases.items()},
    )
    found = {}
    for (x, y), where in pairs.items():
        launch = x.threads == y.threads and x.shared_bytes == y.shared_bytes
        if has_other_helpers or not launch or old.code(x.code) != new.code(y.code):
            found[x, y] = where
    return found, len(pairs) - len(found), unpaired


def _metrics(tool: pathlib.Path, made: Made, names: set[str], folder: pathlib.Path) -> dict[str, sass.Metrics | str]:
    texts = {name: made.text("code", name + ".cu") for name in sorted(names)}
    sass.assemble(tool, texts, folder, made.target["architecture"])
    return sass.measure_all(folder, sorted(names))


def judge(
    a: Made, b: Made, old_tool: pathlib.Path, new_tool: pathlib.Path,
    say: Callable[[str], None] = print,
) -> int:  # fmt: skip
    """Prints a line for each kernel that is worse. The exit status: 1 if any is."""
    pairs, same, unpaired = differing(a, b)
    failures = list(unpaired)
    identical = 0
    reasons: collections.Counter[str] = collections.Counter()
    if pairs:
        sass.find_program("cuobjdump")  # missing: before anything is compiled
        with tempfile.TemporaryDirectory(prefix="corpus-") as temporary:
            folder = pathlib.Path(temporary)
            old = _metrics(old_tool, a, {x.code for x, _ in pairs}, folder / "old")
            new = _metrics(new_tool, b, {y.code for _, y in pairs}, folder / "new")
        for (x, y), where in pairs.items():
            one, other = old[x.code], new[y.code]
            if isinstance(other, str):
                failures.append(f"{where}: no machine code: {other.splitlines()[0] if other else ''}")
            elif isinstance(one, str):
                continue  # there was none before
            elif why := sass.worse(one, other, x, y):
                failures.append(f"{where}: {'; '.join(why)}")
                reasons.update(re.split(r" \d", text)[0] for text in why)
            else:
                identical += one.hash == other.hash
    for line in failures:
        say(line)
    for reason, count in reasons.most_common():
        say(f"{count} with more {reason}" if "blocks" not in reason else f"{count} with fewer {reason}")
    passed = len(pairs) - (len(failures) - len(unpaired))
    say(f"{same} pairs of kernels with the same text, {identical} with the same machine code, "
        f"{passed - identical} others as good, "
        f"{len(failures) - len(unpaired)} worse, {len(unpaired)} cases without pairs")  # fmt: skip
    return 1 if failures else 0
