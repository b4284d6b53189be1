"""The smallest random function (``fuzz_draw.py``) that differs as a larger one does."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable, Iterator

from fuzz_draw import Block, Program


def _smaller(statements: list[Any]) -> Iterator[list[Any]]:
    """Each with one thing less."""
    for at, s in enumerate(statements):
        rest = statements[:at], statements[at + 1 :]
        yield rest[0] + rest[1]
        if isinstance(s, Block):
            yield rest[0] + s.body + rest[1]
            for body in _smaller(s.body):
                yield [*rest[0], Block(s.head, body, s.other), *rest[1]]
            if s.other:
                yield [*rest[0], Block(s.head, s.body), *rest[1]]
                for body in _smaller(s.other):
                    yield [*rest[0], Block(s.head, s.body, body), *rest[1]]


def _steps(program: Program) -> Iterator[Program]:
    for statements in _smaller(program.statements):
        yield dataclasses.replace(program, statements=statements)
    for at in range(len(program.results)):
        results = program.results[:at] + program.results[at + 1 :]
        yield dataclasses.replace(program, results=results)
    if program.results != [next(iter(program.arguments))]:
        yield dataclasses.replace(program, results=[next(iter(program.arguments))])
    for name, argument in program.arguments.items():
        used = name in program.source.split(":", 1)[1]
        if not used:
            left = {n: a for n, a in program.arguments.items() if n != name}
            yield dataclasses.replace(program, arguments=left)
        elif argument.kind != "dense":
            changed = {**program.arguments, name: dataclasses.replace(argument, kind="dense")}
            yield dataclasses.replace(program, arguments=changed)
    if program.grad:
        yield dataclasses.replace(program, grad=False)
    if program.dynamic is not False:
        yield dataclasses.replace(program, dynamic=False)


def reduced(program: Program, differs: Callable[[Program], bool], seconds: float = 1e9) -> Program:
    """One of which nothing can be left out without the difference going, or what is left in so long."""
    end = time.monotonic() + seconds
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for step in _steps(program):
            if time.monotonic() > end:
                return program
            if step.results and differs(step):
                program, is_smaller = step, True
                break
    return program
