"""What users bring along: passes over FX graphs, patterns of two functions, partitioners."""

from __future__ import annotations

import logging
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch.partitioners import default_partition

import inkle
from checks import compiled, randn, same

pytestmark = pytest.mark.usefixtures("device")

ROOT = pathlib.Path(__file__).parents[2]
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()


def lines(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "inkle"]


# --- Passes ---------------------------------------------------------------------------------------


def sines_to_cosines(graph: torch.fx.Graph) -> None:
    """Of Dynamo's graph, of functions and methods."""
    for node in graph.nodes:
        if node.target in (torch.sin, "sin"):
            node.target = torch.cos if node.op == "call_function" else "cos"


def aten_sines_doubled(graph: torch.fx.Graph) -> None:
    """2 * sin(x): a node is made, and read instead."""
    for node in list(graph.nodes):
        if node.target is aten.sin.default:
            with graph.inserting_after(node):
                doubled = graph.call_function(aten.mul.Tensor)
            node.replace_all_uses_with(doubled)
            doubled.args = (node, 2)


@pytest.mark.parametrize("key", ["pre_grad_pass", "pre_grad_custom_pass"])
def test_a_pass_before_the_joint_graph_has_its_gradient(key):
    run = compiled(lambda x: x.sin() + torch.sin(x), **{key: sines_to_cosines})
    x = randn(4, requires_grad=True)
    y = run(x)
    same(y.detach(), 2 * x.detach().cos())
    y.sum().backward()
    same(x.grad, -2 * x.detach().sin())
    assert all(r.compiled for r in inkle.reports())


@pytest.mark.parametrize("partition", ["own", "default"])
@pytest.mark.parametrize("key", ["joint_pass", "joint_custom_pre_pass", "joint_custom_post_pass"])
def test_a_pass_over_the_joint_graph_sees_forward_and_backward(key, partition):
    # The gradient of cos is -sin: the pass doubles that alone.
    run = compiled(lambda x: x.cos() * x, partition=partition, **{key: aten_sines_doubled})
    x = randn(4, requires_grad=True)
    y = run(x)
    same(y.detach(), x.detach().cos() * x.detach())
    y.sum().backward()
    plain = x.detach()
    same(x.grad, plain.cos() - 2 * plain.sin() * plain)


def test_a_pass_over_the_joint_graph_sees_inference():
    run = compiled(lambda x: x.sin(), joint_pass=[aten_sines_doubled, aten_sines_doubled])
    with torch.no_grad():
        same(run(randn(4)), 4 * randn(4).sin())


def test_a_pass_that_makes_another_type_settles_those_that_read_it():
    def to_half(graph):
        for node in list(graph.nodes):
            if node.target is aten.sin.default:
                with graph.inserting_after(node):
                    half = graph.call_function(aten._to_copy.default)
                node.replace_all_uses_with(half)
                half.args, half.kwargs = (node,), {"dtype": torch.float64}

    run = compiled(lambda x: (x.sin() + 1).cos(), joint_pass=to_half)
    with torch.no_grad():
        same(run(randn(4)), (randn(4).sin().double() + 1).cos())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("key", ["post_grad_pass", "post_grad_custom_pre_pass"])
def test_a_pass_after_the_joint_graph_sees_each_half(key, training):
    seen = []

    def look(graph):
        seen.append(sum(n.target is aten.sin.default for n in graph.nodes))
        aten_sines_doubled(graph)

    run = compiled(lambda x: x.cos().cos(), **{key: look})
    x = randn(4, requires_grad=training)
    y = run(x)
    same(y.detach(), x.detach().cos().cos())
    if training:
        y.sum().backward()
        plain = x.detach()
        same(x.grad, 4 * plain.cos().sin() * plain.sin())
    assert len(seen) == (2 if training else 1) and sum(seen) == (2 if training else 0)


def test_a_pass_that_wants_to_know_whether_it_is_inference():
    custom_graph_pass = pytest.importorskip("torch._inductor.custom_graph_pass")
    if not hasattr(custom_graph_pass, "CustomInferenceAwareGraphPass"):
        pytest.skip("not of this torch")
    seen = []

    class Look(custom_graph_pass.CustomInferenceAwareGraphPass):
        def __call__(self, graph, is_inference):
            seen.append(is_inference)

        def uuid(self):
            return "look"

    run = compiled(lambda x: x.cos(), post_grad_pass=Look())
    with torch.no_grad():
        run(randn(4))
    run(randn(4, requires_grad=True)).sum().backward()
    assert seen == [True, False, False]


def test_passes_of_inductors_settings_run():
    with torch._inductor.config.patch(
        pre_grad_custom_pass=sines_to_cosines, joint_custom_pre_pass=aten_sines_doubled
    ), torch.no_grad():
        run = compiled(lambda x: x.sin() + x.cos())
        same(run(randn(4)), 2 * randn(4).cos())


@pytest.mark.parametrize("key", ["pre_grad_pass", "joint_pass", "post_grad_pass"])
@pytest.mark.parametrize("training", [False, True])
def test_a_pass_that_raises_ends_in_eager_with_one_line(key, training, caplog):
    def broken(graph):
        for node in list(graph.nodes):
            if node.op == "call_function":
                node.args = ()
        raise KeyError("mine")

    run = compiled(lambda x: x.sin() * 2, strict=False, **{key: broken})
    x = randn(4, requires_grad=training)
    with caplog.at_level(logging.WARNING, "inkle"):
        same(run(x).detach(), x.detach().sin() * 2)
        if training:
            run(x).sum().backward()
            same(x.grad, 2 * x.detach().cos())
    (line,) = set(lines(caplog)) if key != "post_grad_pass" else lines(caplog)[:1]
    assert "a fault in a pass of the user" in line and "broken: KeyError: 'mine'" in line, line
    assert not any(r.fault for r in inkle.reports())


@pytest.mark.parametrize("key", ["pre_grad_pass", "joint_pass"])
def test_a_pass_that_leaves_no_graph_is_told(key, caplog):
    def drop(graph):
        graph.output_node().args = ((),)

    run = compiled(lambda x: (x.sin(), x.cos()), strict=False, **{key: drop})
    with torch.no_grad(), caplog.at_level(logging.WARNING, "inkle"):
        for found, wanted in zip(run(randn(4)), (randn(4).sin(), randn(4).cos())):
            same(found, wanted)
    assert "another number of results" in lines(caplog)[0]
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="another number of results"):
        compiled(lambda x: (x.sin(), x.cos()), **{key: drop})(randn(4))


# --- Patterns -------------------------------------------------------------------------------------


def test_a_pattern_is_replaced_however_it_is_spelled():
    def search(x):
        return torch.relu(x) * torch.sigmoid(x)

    def replacement(x):
        return x - 100

    def program(a, b, c, d):
        first = F.relu(a) * a.sigmoid()
        second = torch.mul(torch.relu(b), b.sigmoid())
        third = c.relu().mul(torch.sigmoid(c))
        return first, second, third, d.relu() * a.sigmoid()

    run = compiled(program, patterns=[(search, replacement)])
    args = [randn(4) for _ in range(4)]
    with torch.no_grad():
        found = run(*args)
    for one, arg in zip(found[:3], args):
        same(one, arg - 100)
    same(found[3], args[3].relu() * args[0].sigmoid())


def test_arguments_by_name_by_position_and_left_out_are_one():
    def search(x, weight, bias):
        return F.softmax(F.linear(x, weight, bias), dim=-1)

    def replacement(x, weight, bias):
        return torch.nn.functional.log_softmax(F.linear(x, weight, bias), dim=-1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 6)

        def forward(self, x):
            return F.softmax(self.linear(x), -1), self.linear(x).softmax(dim=0)

    model = Model().to(torch.get_default_device())
    x = randn(3, 4)
    run = compiled(model, patterns=[(search, replacement)])
    found, wanted = run(x), model(x)
    same(found[0], F.log_softmax(model.linear(x), -1))
    same(found[1], wanted[1])
    found[0].sum().backward()  # through the replacement
    grad = model.linear.weight.grad.clone()
    model.linear.weight.grad = None
    F.log_softmax(model.linear(x), -1).sum().backward()
    same(grad, model.linear.weight.grad, 1e-4)


def test_numbers_of_a_pattern_are_arguments_or_compared():
    def scaled(x, factor):
        return (x * factor).tanh()

    run = compiled(
        lambda x: ((x * 3).tanh(), (x * 5).sin(), (x * x).tanh()),
        patterns=[
            (scaled, lambda x, factor: x + factor),
            (lambda x: (x * 4).sin(), lambda x: x * 0),
        ],
    )
    with torch.no_grad():
        found = run(randn(4))
    x = randn(4)
    for one, wanted in zip(found, (x + 3, (x * 5).sin(), x + x)):
        same(one, wanted)


def test_a_pattern_with_a_condition():
    asked = []

    def is_wide(match):
        asked.append(sorted(match))
        return match["x"].meta["example_value"].shape[-1] > 5

    run = compiled(
        lambda a, b: (a.sin().cos(), b.sin().cos()),
        patterns=[(lambda x: x.sin().cos(), lambda x: x + 1, is_wide)],
    )
    a, b = randn(3), randn(8)
    with torch.no_grad():
        found = run(a, b)
    same(found[0], a.sin().cos())
    same(found[1], b + 1)
    assert asked == [["x"], ["x"]]


def test_what_is_read_outside_or_written_between_is_no_match():
    def search(x):
        return x.sin().cos()

    def program(x, y, z):
        inner = x.sin()
        second = y.sin()
        y.add_(1)
        return inner, inner.cos(), second.cos(), z.sin().cos()

    run = compiled(program, patterns=[(search, lambda x: x - 100)])
    x, y, z = randn(4), randn(4), randn(4)
    with torch.no_grad():
        found, wanted = run(x, y.clone(), z), program(x, y.clone(), z)
    for one, other in zip(found[:3], wanted[:3]):
        same(one, other)
    same(found[3], z - 100)


def test_a_pattern_with_several_results():
    def search(x):
        inner = x.exp()
        return inner.sin(), inner.cos()

    run = compiled(
        lambda x: (x.exp().sin(), (lambda e: e.sin() + e.cos())(x.exp())),
        patterns=[(search, lambda x: (x + 1, x + 2))],
    )
    with torch.no_grad():
        found = run(randn(4))
    x = randn(4)
    same(found[0], x.exp().sin())
    same(found[1], 2 * x + 3)


def test_overlapping_matches_are_replaced_once_each():
    run = compiled(
        lambda x: x.sin().sin().sin(), patterns=[(lambda x: x.sin().sin(), lambda x: x + 1)]
    )
    with torch.no_grad():
        same(run(randn(4)), randn(4).sin() + 1)


@pytest.mark.parametrize(
    "pattern, message",
    [
        ((lambda x: x.sin(), lambda x, y: x), "different numbers of arguments"),
        ((lambda x: x.sin(), lambda x: (x, x)), "different numbers of results"),
        ((lambda x: x, lambda x: x), "must return what it computes"),
    ],
)
def test_wrong_patterns_are_told(pattern, message):
    with pytest.raises(Exception, match=message):
        compiled(lambda x: x.sin(), patterns=[pattern])(randn(3))


# --- Partitioners ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["partitioner", "custom_partitioner_fn"])
def test_a_partitioner_cuts_the_joint_graph(key):
    seen = []

    def cut(gm, inputs, *, num_fwd_outputs, **named):
        seen.append(num_fwd_outputs)
        return default_partition(gm, inputs, num_fwd_outputs=num_fwd_outputs, **named)

    run = compiled(lambda x: x.sin().exp(), **{key: cut})
    x = randn(4, requires_grad=True)
    run(x).sum().backward()
    same(x.grad, x.detach().cos() * x.detach().sin().exp())
    assert seen == [1] and [r.compiled for r in inkle.reports()] == [True, True]


def test_a_partitioner_of_inductors_settings():
    custom_graph_pass = pytest.importorskip("torch._inductor.custom_graph_pass")
    seen = []

    class Cut(custom_graph_pass.CustomPartitionerFn):
        def __call__(self, gm, inputs, **named):
            seen.append(1)
            return default_partition(gm, inputs, **named)

        def uuid(self):
            return "cut"

    with torch._inductor.config.patch(custom_partitioner_fn=Cut()):
        compiled(lambda x: x.sin().exp())(randn(4, requires_grad=True)).sum().backward()
    assert seen == [1]


# --- Caches ---------------------------------------------------------------------------------------

PROGRAM = """
import sys, torch, inkle
from inkle import aot_cache

class Pass:
    def __init__(self, factor, known):
        self.factor, self.known = factor, known
    def __call__(self, graph):
        for node in list(graph.nodes):
            if node.target is torch.ops.aten.sin.default:
                with graph.inserting_after(node):
                    made = graph.call_function(torch.ops.aten.mul.Tensor)
                node.replace_all_uses_with(made)
                made.args = (node, self.factor)
    def uuid(self):
        return self.known

x = torch.ones(3, device=sys.argv[1])
for factor, known in eval(sys.argv[2]):
    torch._dynamo.reset()
    inkle.reset()
    torch._dynamo.utils.counters.clear()
    options = {"strict": True}
    if factor:
        options["joint_pass"] = Pass(float(factor), known)
    run = torch.compile(lambda x: x.sin().cos(), backend="inkle", options=options)
    print(run(x)[0].item(), torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_cached_programs_are_those_of_the_same_passes(tmp_path):
    """In two processes: of each pass its factor and its uuid(), and whether AOTAutograd's cache has its program."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "python"), "INKLE_CACHE_DIR": str(tmp_path / "inkle"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch"), "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
    }  # fmt: skip

    def run(*passes):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(torch.get_default_device()), repr(passes)], env=environment, text=True,
            stdout=subprocess.PIPE, check=True, cwd=tmp_path,
        )  # fmt: skip
        lines = [line.split() for line in done.stdout.splitlines()]
        for (factor, known), (value, _) in zip(passes, lines, strict=True):
            wanted = (torch.ones(()).sin() * (factor or 1)).cos().item()
            assert abs(float(value) - wanted) < 1e-6, (factor, known)
        return [int(hits) for _, hits in lines]

    keeps = inkle.aot_cache.HAS_SHORT_KEYS
    # Without a uuid() nothing is kept.
    assert run((0, None), (2, "two"), (3, "three"), (4, None), (5, None)) == [0] * 5
    assert run((0, None), (2, "two"), (4, None), (0, None)) == [keeps, keeps, 0, keeps]
