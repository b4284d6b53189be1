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

    def warm_up_libraries(self, convolutions):
        self.asked.append(convolutions)


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


def convolve(x):
    return torch.conv2d(x, torch.ones(8, 8, 3, 3)).relu()


def test_each_kind_is_warmed_up_once(compiler):
    assert asked(compiler, lambda x: x @ x) == [False, "kernels"]
    assert asked(compiler, lambda x: x @ x + 1) == []
    assert asked(compiler, convolve) == [True]
    assert asked(compiler, convolve) == []


def test_transposed_convolutions_are_seen(compiler):
    transposed = torch.nn.functional.conv_transpose3d
    assert True in asked(compiler, lambda x: transposed(x, torch.ones(8, 8, 3, 3, 3)))


def test_nothing_is_started_for_a_processor(compiler):
    assert asked(compiler, convolve, "cpu") == []


def test_other_names_are_no_convolutions(compiler):
    convert = torch.ops.prims.convert_element_type
    assert False in asked(compiler, lambda x: convert(x, torch.half))
