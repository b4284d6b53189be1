"""What a GPU's compiler is told ahead, on machines without one."""

from __future__ import annotations

import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from inkle import machine


class Compiler:
    """Remembers what it was asked for."""

    def __init__(self):
        self.asked = []

    def warm_up(self):
        self.asked.append("kernels")

    def warm_up_libraries(self, convolutions, grouped):
        self.asked.append((convolutions, grouped))


@pytest.fixture
def compiler(monkeypatch):
    made = Compiler()
    monkeypatch.setattr(machine, "get_compiler", lambda gpu: made)
    monkeypatch.setattr(machine, "_warm", set())
    return made


def asked(compiler, module, device="cuda"):
    """What is asked for by the graph of a module, sorted by its text."""
    compiler.asked.clear()
    with FakeTensorMode():
        inputs = [torch.empty(2, device=device)]
    machine.warm_up(torch.fx.symbolic_trace(module), inputs)
    for thread in threading.enumerate():
        if thread.name.startswith("inkle warm up"):
            thread.join()
    return sorted(compiler.asked, key=str)


def convolve(groups, how=torch.conv2d, **keywords):
    def function(x):
        return how(x, torch.ones(8, 1, 3, 3), None, 1, 0, 1, groups, **keywords).relu()

    return function


def test_each_kind_is_warmed_up_once(compiler):
    assert asked(compiler, lambda x: x @ x) == [(False, False), "kernels"]
    assert asked(compiler, lambda x: x @ x + 1) == []
    assert asked(compiler, convolve(1)) == [(True, False)]
    assert asked(compiler, convolve(8)) == [(True, True)]
    assert asked(compiler, convolve(8)) == []


@pytest.mark.parametrize("how", [torch.conv2d, torch.nn.functional.conv2d])
def test_groups_are_seen(compiler, how):
    assert (True, True) in asked(compiler, convolve(8, how))


def test_groups_by_name_and_of_transposed_ones(compiler):
    weight = torch.ones(8, 1, 3, 3)
    assert (True, True) in asked(compiler, lambda x: torch.conv2d(x, weight, groups=8))
    transposed = torch.nn.functional.conv_transpose2d
    machine._warm.clear()
    assert (True, True) in asked(compiler, lambda x: transposed(x, weight, None, 1, 0, 0, 8))
    machine._warm.clear()
    assert (True, False) in asked(compiler, lambda x: transposed(x, weight))


def test_nothing_is_started_for_a_processor(compiler):
    assert asked(compiler, convolve(8), "cpu") == []


def test_other_names_are_no_convolutions(compiler):
    assert (False, False) in asked(compiler, lambda x: torch.ops.prims.convert_element_type(x, torch.half))
