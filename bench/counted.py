"""Counts the ops of all graphs that reach the compiler by the way they run."""

from __future__ import annotations

import collections
import functools
from typing import Any


@functools.cache
def _ways() -> dict[str, str]:
    """ATen name of an op -> how its row does it, from the generated page."""
    from inkle import _inkle

    result = {}
    for line in _inkle.ops_markdown().splitlines():
        cells = [c.strip() for c in line.split("|")]
        if len(cells) < 6 or not cells[1].startswith("`"):
            continue
        for overload in cells[4].split():
            result[overload.replace("::", ".", 1)] = cells[3]
    return result


class Counted:
    """Ops of all graphs that reach the compiler, by name and way; wraps the backend's function."""

    def __init__(self) -> None:
        from inkle import backend, pair

        self.ways: collections.Counter[str] = collections.Counter()
        self.in_eager: collections.Counter[str] = collections.Counter()
        self.why: dict[str, str] = {}
        self.fallbacks: list[str] = []
        self.inkle_seconds = 0.0
        inner = backend.compile_graph

        @functools.wraps(inner)
        def compile_graph(gm: Any, name: str, options: Any, *args: Any, **keywords: Any) -> Any:
            before = len(backend.reports())
            result = inner(gm, name, options, *args, **keywords)
            if made := backend.reports()[before:]:
                self._count(gm, made)
            return result

        compile_pair = pair.Partition.compile

        @functools.wraps(compile_pair)
        def compile_joint(partition: Any, joint: Any, failure: Any) -> Any:
            before = len(backend.reports())
            result = compile_pair(partition, joint, failure)
            self._count(joint.gm, backend.reports()[before:])
            return result

        self._undo = [(backend, "compile_graph", inner), (pair.Partition, "compile", compile_pair)]
        backend.compile_graph = compile_graph
        pair.Partition.compile = compile_joint

    def remove(self) -> None:
        for holder, name, value in self._undo:
            setattr(holder, name, value)

    def _count(self, gm: Any, reports: list[Any]) -> None:
        import torch

        eager: collections.Counter[str] = collections.Counter()
        for report in reports:
            self.inkle_seconds += report.seconds
            if not report.compiled:
                self.fallbacks.append(" ".join(report.reason.split())[:400])
            for op, _, reason in report.eager:
                eager[op.replace("::", ".", 1)] += 1
                self.why[op.replace("::", ".", 1)] = reason
        is_fallen = any(not r.compiled for r in reports)
        for node in gm.graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
                continue
            if node.target.is_view or "val" not in node.meta:
                continue
            name = str(node.target)
            if is_fallen or eager[name] > 0 or eager[name.removesuffix(".default")] > 0:
                self.ways["eager"] += 1
                if not is_fallen:
                    self.in_eager[name] += 1
            else:
                bare = name.removesuffix(".default")
                self.ways[_ways().get(bare, _ways().get(bare.split(".")[0] + "." + bare.split(".")[1],
                                                        "native"))] += 1  # fmt: skip
