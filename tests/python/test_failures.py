"""Nothing below Dynamo raises: whatever fails while a graph is compiled ends in eager, with one line."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inkle
from checks import IS_OLDER_TORCH, compiled, randn, same
from inkle import attention, backend, dropout, joint, layouts, loss, pair, segments

pytestmark = pytest.mark.usefixtures("device")

# --- Ops that AOTAutograd does not take -----------------------------------------------------------

library = torch.library.Library("inkle_failures", "FRAGMENT")


def define(schema: str, function) -> None:
    library.define(schema)
    for key in ("CompositeExplicitAutograd", "Meta"):
        library.impl(schema.split("(")[0], function, key)


define("flat(Tensor(a) x) -> Tensor(a)", lambda x: x.view(-1))
define("itself(Tensor(a) x) -> Tensor(a)", lambda x: x)
define("grow_(Tensor(a!) x) -> Tensor(a!)", lambda x: x.add_(1))
library.define("raises(Tensor(a) x) -> Tensor(a)")
library.impl("raises", lambda x: x, "Meta")


def raises(x):
    raise ValueError("no filter has so many taps")


for key in ("CPU", "CUDA"):
    library.impl("raises", raises, key)


class Filter(torch.autograd.Function):
    """A recursive filter that fills the memory it is given, as those of audio libraries do."""

    @staticmethod
    def forward(ctx, x):
        out = torch.ops.inkle_failures.grow_(x.clone())
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, gradient):
        (out,) = ctx.saved_tensors
        return gradient * torch.ops.inkle_failures.itself(out).cos()


OPS = {
    "a view": lambda x: torch.ops.inkle_failures.flat(x.sin()).cos(),
    "a view of an argument": lambda x: torch.ops.inkle_failures.flat(x).cos(),
    "its argument": lambda x: torch.ops.inkle_failures.itself(x.sin()).cos(),
    "written and returned": lambda x: torch.ops.inkle_failures.grow_(x.sin()).cos(),
    "in an autograd function": lambda x: Filter.apply(x.sin()).cos(),
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()


def lines(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "inkle"]


class Around(nn.Module):
    """A function between parameters, with a buffer that each call writes."""

    def __init__(self, function):
        super().__init__()
        self.function, self.linear = function, nn.Linear(4, 6)
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x):
        self.calls += 1
        return self.function(self.linear(x))


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", OPS)
def test_custom_ops_with_results_in_the_memory_of_arguments(name, training, caplog):
    torch.manual_seed(0)
    module = Around(OPS[name]).to(torch.get_default_device())
    plain = copy.deepcopy(module)
    run = compiled(module, strict=False)
    if IS_OLDER_TORCH and name == "in an autograd function":
        # Dynamo itself, whatever the backend, has zeros for this gradient there.
        plain = torch.compile(plain, backend="eager")
    with torch.set_grad_enabled(training), caplog.at_level(logging.WARNING, "inkle"):
        for _ in range(2):
            found, wanted = run(randn(3, 4)), plain(randn(3, 4))
            same(found, wanted)
            same(module.calls, plain.calls)
            if training:
                found.sum().backward()
                wanted.sum().backward()
                same(module.linear.weight.grad, plain.linear.weight.grad)
    (message,) = lines(caplog)
    assert "a graph runs in eager (not supported)" in message, message
    assert "inkle_failures" in message and "test_failures.py:" in message, message
    assert len(message) <= 300 and "\n" not in message
    (report,) = inkle.reports()
    assert "alias annotations" in report.reason and not report.fault and not report.compiled


def test_an_argument_that_the_op_writes_is_written_once():
    def write(x):
        return torch.ops.inkle_failures.grow_(x), x * 2

    x, y = randn(3), randn(3)
    with torch.no_grad():
        found, wanted = compiled(write, strict=False)(x), write(y)
    same(x, y)
    for a, b in zip(found, wanted):
        same(a, b)
    assert found[0].data_ptr() == x.data_ptr()


def test_what_runs_instead_is_the_program_as_it_was_given():
    """Not with the dropout and the loss that Inkle has in place of torch's."""
    def lossy(x, target):
        x = F.dropout(torch.ops.inkle_failures.itself(x.sin()), 0.5, True)
        return F.cross_entropy(x, target)

    target = torch.arange(4)
    losses = []
    for run in (lossy, compiled(lossy, strict=False, random="fast")):
        torch.manual_seed(3)
        x = randn(4, 8).requires_grad_()
        loss = run(x, target)
        loss.backward()
        losses.append((loss.detach(), x.grad))
    for a, b in zip(*losses):
        assert torch.equal(a, b)


def test_strict_raises_what_aot_autograd_does():
    with pytest.raises(Exception, match="alias annotations"):
        compiled(OPS["a view"], strict=True)(randn(3))


def test_an_error_of_eager_surfaces_as_it_is():
    run = compiled(lambda x: torch.ops.inkle_failures.raises(x.sin()), strict=False)
    for training in (False, True):
        with pytest.raises(ValueError, match="^no filter has so many taps$"):
            run(randn(3, requires_grad=training))


@pytest.mark.skipif(IS_OLDER_TORCH, reason="eager warns there")
def test_an_op_that_eager_refuses_is_refused():
    @torch.library.custom_op("inkle_failures::same", mutates_args=())
    def same_memory(x: torch.Tensor) -> torch.Tensor:
        return x

    same_memory.register_fake(lambda x: x)
    for function in (same_memory, compiled(same_memory, strict=False)):
        with pytest.raises(RuntimeError, match="may not alias|must not also be an input"):
            function(randn(3))


# --- Faults in each stage -------------------------------------------------------------------------


class Network(nn.Module):
    """Has what each stage looks for: a convolution, a norm, attention, dropout and a loss."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 5)

    def forward(self, x, target):
        x = self.norm(self.convolution(x)).relu().flatten(2).transpose(1, 2)
        x = F.dropout(F.scaled_dot_product_attention(x, x, x), 0.0, self.training)
        return F.cross_entropy(self.linear(x.mean(1)), target)


def failing(*places, once=False):
    """Makes functions raise, or their first calls."""

    def patch(monkeypatch):
        for owner, name in places:
            def fault(*arguments, original=getattr(owner, name), calls=[], **named):  # noqa: B006
                calls.append(arguments)
                if once and len(calls) > 1:
                    return original(*arguments, **named)
                raise RuntimeError("injected")

            monkeypatch.setattr(owner, name, fault)

    return patch


# Where the whole program runs in eager.
WHOLE = {
    "replacement of attention": failing((attention, "replace")),
    "replacement of losses": failing((loss, "replace")),
    "replacement of dropout": failing((dropout, "replace")),
    "warming up": failing((backend, "warm_up")),
    "AOTAutograd": failing((backend, "aot_module_simplified")),
    "tracing": failing((torch._functorch.aot_autograd, "create_aot_state")),
}
# Where a graph of AOTAutograd does, or is compiled another way.
PARTS = {
    "import": failing((backend, "GraphImporter"), (pair, "GraphImporter")),
    "options": failing((backend, "native_options"), (pair, "native_options")),
    "compiler": failing((backend, "get_compiler"), (pair, "get_compiler")),
    "GPU": failing((backend, "gpu_of"), (pair, "gpu_of")),
    "looking for halves": failing((joint, "compiled_graph")),
    "looking for boundaries": failing((segments, "must_split")),
    "looking for weights": failing((backend, "_parameter_positions")),
    "telling strides": failing((layouts, "report")),
    "all of a graph": failing((backend, "compile_graph")),
}
TRAINING = {
    "joint graph": failing((pair, "examine")),
    "what is kept": failing((pair, "Kept")),
    "stubs": failing((pair, "stubs")),
    "own partition and its forward": failing((pair, "examine"), (layouts, "saved_strides")),
    "both partitions": failing((pair, "examine"), (pair, "default_partition")),
}
WITHOUT_A_LINE = {"looking for weights", "telling strides"}  # nothing looks there in training


def check_fault(patch, training, monkeypatch, caplog, is_told=True, **options):
    torch.manual_seed(0)
    module = Network().to(torch.get_default_device()).train(training)
    plain = copy.deepcopy(module)
    x, target = randn(4, 3, 8, 8), torch.arange(4)
    run = compiled(module, strict=False, random="fast", **options)
    with torch.set_grad_enabled(training), caplog.at_level(logging.WARNING, "inkle"):
        with monkeypatch.context() as patched:
            patch(patched)
            found = run(x, target)
            if training:
                found.backward()
        wanted = plain(x, target)
        same(found, wanted)
        if training:
            wanted.backward()
            for a, b in zip(module.parameters(), plain.parameters()):
                same(a.grad, b.grad)
        for a, b in zip(module.buffers(), plain.buffers()):
            same(a, b)
        same(run(x, target), plain(x, target))
    messages = lines(caplog)
    assert len(messages) == is_told, messages
    kinds = "(a fault in the compiler)", "(not supported)"
    assert all("injected" in m and any(k in m for k in kinds) for m in messages), messages


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("stage", [*WHOLE, *PARTS])
def test_a_fault_ends_in_eager(stage, training, monkeypatch, caplog):
    is_told = not training or stage not in WITHOUT_A_LINE
    check_fault((WHOLE | PARTS)[stage], training, monkeypatch, caplog, is_told)


@pytest.mark.parametrize("stage", TRAINING)
def test_a_fault_in_training_ends_in_eager(stage, monkeypatch, caplog):
    check_fault(TRAINING[stage], True, monkeypatch, caplog)


HALVES = {
    "strides of the forward": failing((layouts, "saved_strides")),
    "strides of the backward": failing((layouts, "argument_strides"), once=True),
    "strides told": failing((layouts, "report")),
    "looking for halves": failing((joint, "compiled_graph")),
}


@pytest.mark.parametrize("stage", HALVES)
def test_a_fault_in_a_half_of_the_default_partition(stage, monkeypatch, caplog):
    """The other half is compiled, and hands over images as it likes to have them."""
    check_fault(HALVES[stage], True, monkeypatch, caplog, partition="default")


@pytest.mark.parametrize("calls", [0, 1, 2])
@pytest.mark.parametrize("partition", ["own", "default"])
def test_one_of_several_calls_raises(partition, calls, monkeypatch, caplog):
    """The first, second or third of what is compiled: forward or backward alone."""
    made, original = [], backend.compile_graph

    def fault(*arguments, **named):
        made.append(arguments)
        if len(made) == calls + 1:
            raise RuntimeError("injected")
        return original(*arguments, **named)

    patch = lambda patched: patched.setattr(backend, "compile_graph", fault)  # noqa: E731
    check_fault(patch, True, monkeypatch, caplog, is_told=calls < 2, partition=partition)


def test_lines_of_log_name_the_users_line_under_a_default_device(caplog):
    before = torch.get_default_device()
    torch.set_default_device(before)  # a mode, whose lines stand between
    try:
        run = compiled(OPS["a view"], strict=False)
        with torch.no_grad(), caplog.at_level(logging.WARNING, "inkle"):
            run(randn(3, 4))
    finally:
        torch.set_default_device(None if before.type == "cpu" else before)
    (message,) = lines(caplog)
    assert "test_failures.py:" in message, message
