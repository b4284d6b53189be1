"""Ops that are left to eager on purpose, to see whose errors a difference is made of."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

# Programs that were kept do not tell what was left to eager.
os.environ["INKLE_CACHE_DIR"] = ""


@contextlib.contextmanager
def left_to_eager(parts: Sequence[str]) -> Iterator[None]:
    """Within it graphs run the ops whose names hold one of ``parts`` in eager.

    With ``convolution`` among them, tensors also keep the layouts that eager has.
    """
    from inkle import importer, layouts

    make, channels_last = importer.GraphImporter.__init__, layouts.channels_last

    def made(self: Any, gm: Any, name: Any, parameters: Any, in_eager: dict[str, str],
             *more: Any, **named: Any) -> None:  # fmt: skip
        for node in gm.graph.nodes:
            if any(part in str(node.target) for part in parts):
                in_eager.setdefault(node.name, "asked for")
        make(self, gm, name, parameters, in_eager, *more, **named)

    if parts:
        importer.GraphImporter.__init__ = made  # type: ignore[method-assign]
    if "convolution" in parts:
        layouts.channels_last = lambda value: None
    try:
        yield
    finally:
        importer.GraphImporter.__init__ = make  # type: ignore[method-assign]
        layouts.channels_last = channels_last
