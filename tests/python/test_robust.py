"""The backend when things go wrong: faults, wrong calls, threads, forks; and its options."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
import threading
import weakref

import numpy
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import inkle
from inkle import _inkle
from checks import compiled, eager_ops, randn, same
from inkle.importer import GraphImporter
from inkle.machine import as_strided, native_options
from inkle.options import parse

pytestmark = pytest.mark.usefixtures("device")

STAGES = ["frontend", "passes", "lower", "schedule", "codegen", "run"]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()


def callable_of(function, *args, **options):
    """The compiled callable behind a function, and the flat arguments that it takes."""
    with torch.no_grad():
        compiled(function, **options)(*args)
    return inkle.reports()[-1].callable


@pytest.mark.cpu_only  # with another default device lines of torch stand between
@pytest.mark.parametrize("stage", STAGES)
def test_a_failing_stage_ends_in_eager_with_one_warning(stage, caplog):
    run = compiled(lambda x: (x.sin() + 1).sum(0), strict=False, fail_stage=stage)
    x = randn(4, 5)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "inkle"):
        for _ in range(3):
            same(run(x), (x.sin() + 1).sum(0))
    messages = [r.getMessage() for r in caplog.records if r.name == "inkle"]
    assert len(messages) == 1, messages
    assert f"stage {stage}" in messages[0] and "test_robust.py:" in messages[0]
    assert "aten.sin" in messages[0]
    assert len(messages[0]) <= 300 and "\n" not in messages[0]
    assert inkle.reports()[0].reason


@pytest.mark.cpu_only
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", _inkle.kernel_passes(gpu=False))
def test_a_failing_kernel_pass_ends_in_eager_with_one_warning(name, wrong, caplog):
    stage = f"codegen/{name}" + ("/wrong" if wrong else "")
    run = compiled(lambda x: x.softmax(1), strict=False, fail_stage=stage)
    x = randn(4, 5)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "inkle"):
        for _ in range(3):
            same(run(x), x.softmax(1))
    messages = [r.getMessage() for r in caplog.records if r.name == "inkle"]
    assert len(messages) == 1, messages
    expected = rf"after {name}: kernel @.*value \d+ is used" if wrong else f"in kernel pass {name}"
    fault = inkle.reports()[0].fault
    assert re.search(expected, fault), fault
    assert messages[0].startswith("inkle: a graph runs in eager (a fault in the compiler)")
    assert f"after {name}" in messages[0] if wrong else "made to fail" in messages[0]


@pytest.mark.cpu_only
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", _inkle.kernel_passes(gpu=True))
def test_a_failing_kernel_pass_of_a_gpu_is_named(name, wrong):
    """Compiled for a GPU that need not be there, so that nothing runs."""
    with FakeTensorMode():
        x = torch.empty(4, 64, device="cuda")
        graph = make_fx(lambda x: torch.ops.aten._softmax(x, 1, False))(x)
    importer = GraphImporter(graph, "program", set(), {})
    importer.run()
    stage = f"codegen/{name}" + ("/wrong" if wrong else "")
    options = native_options(parse(None, {"fail_stage": stage}), training=False)
    compiler = _inkle.Compiler.null("sm_90a")
    expected = rf"after {name}: kernel @.*value \d+ is used" if wrong else f"in kernel pass {name}"
    with pytest.raises(_inkle.InternalError, match=f"(?s){expected}"):
        compiler.compile(importer.importer, options, importer.targets, as_strided)


@pytest.mark.parametrize("stage", STAGES)
def test_strict_raises(stage):
    run = compiled(lambda x: x.sin() + 1, fail_stage=stage)
    with torch.no_grad(), pytest.raises(Exception, match="made to fail"):
        run(randn(4))


@pytest.mark.parametrize("function", [
    lambda x: x.clone().diagonal(1), lambda x: x.clone()[:, ::2], lambda x: x.clone().unfold(1, 3, 2),
])  # fmt: skip
def test_a_call_of_training_that_fails_keeps_the_strides_of_copies(function):
    """No pass needs the copy before the view, and the result has memory of its own."""
    x = randn(2, 7, 2).requires_grad_()
    found, wanted = compiled(function, strict=False, fail_stage="run")(x), function(x)
    assert found.stride() == wanted.stride()
    same(found, wanted)
    assert found.data_ptr() != x.data_ptr()
    found.sum().backward()
    same(x.grad, torch.autograd.grad(wanted.sum(), x)[0])


def test_a_call_of_training_that_fails_reads_memory_by_the_strides_that_its_values_have():
    """Of a copy of an expanded tensor, which no other op needs."""

    def read(x):
        y = x.expand(2, *x.shape).contiguous()
        y.transpose(0, -1).copy_(y.transpose(0, -1))
        return y.as_strided((2, 2), (1, 1)).sigmoid()

    x = torch.randn(4, 1, requires_grad=True)
    found, wanted = compiled(read, strict=False, fail_stage="run")(x), read(x)
    same(found, wanted)
    same(*(torch.autograd.grad(result.sum(), x)[0] for result in (found, wanted)))


def test_a_call_that_fails_leaves_mutated_inputs_right(caplog):
    run = compiled(lambda x: x.add_(1), strict=False, fail_stage="run")
    x = randn(4)
    with torch.no_grad():
        same(run(x.clone()), x + 1)


@pytest.mark.cpu_only  # elsewhere a later call raises
@pytest.mark.parametrize("function, op", [
    (lambda x, i: torch.nn.functional.embedding(i, x), "embedding"),
    (lambda x, i: (x.sin()[i] * 2 + 1).softmax(-1), "index"),
    (lambda x, i: x.index_select(0, i), "index_select"),
])
def test_index_out_of_range(function, op):
    x = randn(4, 3)
    run = compiled(function)
    with torch.no_grad():
        same(run(x, torch.tensor([1, 3])), function(x, torch.tensor([1, 3])))
        for wrong in (torch.tensor([1, 4]), torch.tensor([1 << 40, 0])):
            with pytest.raises(IndexError) as raised:
                run(x, wrong)
            assert isinstance(raised.value, RuntimeError)  # what eager raises for some of these
            assert re.fullmatch(rf"index out of range in test_robust.py:\d+ \({op}\)",
                                str(raised.value))  # fmt: skip
        same(run(x, torch.tensor([0, 2])), function(x, torch.tensor([0, 2])))


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "args, message",
    [
        ([randn(4, 5), randn(5)], "takes 1 arguments, 2 were given"),
        ([randn(4, 6)], r"argument .*expected f32\[4,5\].*got f32\[4,6\]"),
        ([randn(4)], r"argument .*expected f32 of rank 2.*got f32\[4\]"),
        ([randn(5, 4).t()], r"argument .*strides"),
        ([randn(4, 5).double()], r"argument .*expected f32.*got f64"),
        ([3], "expected a tensor, got a int"),
        ([None], "expected a tensor, got a NoneType"),
        ([torch._efficientzerotensor(4, 5)], r"argument .*f32\[4,5\].*has no memory"),
    ],
)
def test_wrong_arguments_of_a_direct_call(args, message):
    run = callable_of(lambda x: x + 1, randn(4, 5))
    with pytest.raises(inkle.WrongArgument, match=message):
        run(args)
    same(run([randn(4, 5)])[0], randn(4, 5) + 1)


@pytest.mark.parametrize("training", [False, True])
def test_an_integer_of_more_than_64_bits_goes_to_eager(training, caplog):
    run = compiled(lambda x, n: x * n, strict=False, dynamic=True)
    with caplog.at_level(logging.WARNING, "inkle"):
        for n in (2, 3, 2**63 - 1, -(2**63), 2**63, 2**63):
            x = randn(3, requires_grad=training)
            same(run(x, n), x * n)
        for n in (2**64, -(2**63) - 1):
            with pytest.raises((OverflowError, ValueError)):  # eager raises the first
                run(randn(3, requires_grad=training), n)
    assert "not supported" in caplog.text and "more than 64 bits" in caplog.text
    assert not any(r.fault for r in inkle.reports())


def test_out_of_memory_is_an_error_and_the_process_goes_on():
    torch._dynamo.reset()
    run = compiled(lambda x: (x + 1).expand(1 << 24, 1 << 24) * 2.0, dynamic=False)
    with torch.no_grad(), pytest.raises(RuntimeError, match="memory|blocks"):
        run(randn(1, 1))
    same(compiled(lambda x: x + 1)(randn(3)), randn(3) + 1)


@pytest.mark.cpu_only
def test_what_runs_in_place_of_a_call_may_be_nothing():
    x, weight = randn(3), randn(3)
    run = callable_of(lambda x: x + 1, x, strict=False)
    run.set_frozen([None, weight], None)
    same(run([x, weight])[0], x + 1)
    with pytest.raises(inkle.WrongArgument, match="other weights"):
        run([x, randn(3)])
    with pytest.raises(RuntimeError, match="do not add up"):
        run.set_frozen([None, None], None)
    same(run([x, weight])[0], x + 1)  # as before
    run.fails = True
    run.set_fallback(lambda arguments, message, is_fault: (len(arguments), is_fault))
    assert run([x, weight]) == (2, True)
    run.set_fallback(None)
    with pytest.raises(RuntimeError, match="made to fail"):
        run([x, weight])


def test_errors_of_eager_ops_come_through():
    run = compiled(lambda x: torch.linalg.cholesky_ex(x, check_errors=True)[0], strict=False)
    with torch.no_grad(), pytest.raises(RuntimeError):
        run(-torch.eye(3))


@pytest.mark.parametrize(
    "options, allowed",
    [
        ({"frozen": True}, "freeze"),
        ({"numerics": "exact"}, "'eager', 'bitwise', 'fast', 'batch_invariant'"),
        ({"fail_stage": "linker"}, "'frontend', 'passes'"),
        ({"strict": 1}, "True, False"),
    ],
)
def test_unknown_options_name_what_is_allowed(options, allowed):
    run = torch.compile(lambda x: x + 1, backend="inkle", options=options)
    with pytest.raises(Exception, match="inkle: .*one of .*" + allowed):
        run(randn(3))


@pytest.mark.cpu_only
def test_an_unknown_instruction_set_names_what_is_allowed(monkeypatch, caplog):
    monkeypatch.setenv("INKLE_ISA", "nonsense")
    message = "INKLE_ISA is 'nonsense', expected avx2 or avx512"
    with caplog.at_level(logging.WARNING, "inkle"):
        with pytest.raises(Exception, match=message):
            compiled(lambda x: x + 1, strict=False)(randn(3))
    assert not caplog.records
    monkeypatch.delenv("INKLE_ISA")
    same(compiled(lambda x: x + 1)(randn(3)), randn(3) + 1)


@pytest.mark.cpu_only
@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null", "full"])
def test_a_folder_that_takes_no_texts_is_warned_of_once(folder, monkeypatch, caplog, tmp_path):
    if folder == "full":
        folder = str(tmp_path)
        for number in range(50):  # a device that is full
            os.symlink("/dev/full", tmp_path / f"{number:03}-passes.txt")
        monkeypatch.setattr(inkle.dumps, "_count", 0)
    monkeypatch.setenv("INKLE_DUMP_DIR", folder)
    with caplog.at_level(logging.WARNING, "inkle"):
        for i in range(2):
            same(compiled(lambda x: x.sin() + i)(randn(3)), randn(3).sin() + i)
            torch._dynamo.reset()
    messages = [r.getMessage() for r in caplog.records if r.name == "inkle"]
    assert len(messages) == 1 and f"INKLE_DUMP_DIR={folder} " in messages[0], messages


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_modes(mode):
    same(torch.compile(lambda x: x + 1, backend="inkle", mode=mode)(randn(3)), randn(3) + 1)


def test_unknown_mode():
    with pytest.raises(Exception, match="unknown mode|Unrecognized mode"):
        torch.compile(lambda x: x + 1, backend="inkle", mode="fastest")(randn(3))


def test_threads_share_one_callable():
    function = lambda x: (x @ x.t()).softmax(-1).sum(0) + x.sin().sum()  # noqa: E731
    run = callable_of(function, randn(64, 64))
    inputs = [randn(64, 64) * i for i in range(1, 5)]
    wanted = [function(x) for x in inputs]
    wrong = []

    def work(i):
        for _ in range(50):
            (found,) = run([inputs[i]])
            if not torch.allclose(found, wanted[i], rtol=1e-4, atol=1e-4):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.cpu_only
def test_fork_after_compilation():
    x = randn(256, 256)
    run = callable_of(lambda x: x @ x + x.sum(0), x)
    wanted = run([x])[0].numpy()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if numpy.allclose(run([x])[0], wanted, rtol=1e-4, atol=1e-4) else 2
        finally:
            os._exit(status)
    done, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    same(run([x])[0], torch.from_numpy(wanted))


_IN_A_CHILD = """
import os, sys, threading, torch, inkle
torch.set_num_threads(2)
x, y = torch.ones(128, 256), torch.ones(256, 512)
def multiply():
    found = torch.compile(lambda x, y: x @ y, backend="inkle")(x, y)
    return bool((found == 256).all())
if (child := os.fork()) == 0:
    right = [multiply()]
    torch._dynamo.reset(); inkle.reset()
    thread = threading.Thread(target=lambda: right.append(multiply()))
    thread.start(); thread.join()
    os._exit(0 if right == [True, True] else 2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.cpu_only
def test_products_compiled_in_a_forked_child(tmp_path):
    """Torch gives each new thread its number of threads, the child's teams have one."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    (tmp_path / "program.py").write_text(_IN_A_CHILD)
    process = subprocess.run([sys.executable, "-W", "ignore", tmp_path / "program.py"], timeout=120,
                             env=environment, stderr=subprocess.PIPE)  # fmt: skip
    assert process.returncode == 0, process.stderr.decode()[-2000:]


def test_outputs_outlive_later_calls_and_are_torchs_own():
    run = callable_of(lambda x: x * 2, randn(8))
    kept = [run([randn(8) * i])[0] for i in range(4)]
    for i, found in enumerate(kept):
        same(found, randn(8) * i * 2)
    kept[0].resize_(100)  # memory from elsewhere could not


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(self.norm(self.convolution(x)).relu().mean((2, 3)))


def network(seed):
    torch.manual_seed(seed)
    made = Network()
    for p in (made.norm.running_mean, made.norm.running_var, made.norm.weight, made.norm.bias):
        p.data.uniform_(0.5, 1.5)
    return made.eval()


def test_freeze_folds_and_holds_weights():
    module = network(1)
    x = randn(2, 3, 8, 8)
    plain, frozen = compiled(module), compiled(module, freeze=True)
    with torch.no_grad():
        wanted = module(x)
        same(plain(x), wanted, 1e-4)
        same(frozen(x), wanted, 1e-4)
        before, after = inkle.reports()
        # The weights are no arguments, and the norm is part of the convolution.
        assert after.callable.plan.splitlines()[0].count(": f32[") == 1
        assert len(after.steps) < len(before.steps)
        module.linear.bias.add_(1)  # constants do not change
        same(frozen(x), wanted, 1e-4)
    assert not eager_ops(inkle.reports())


CHANGES = {
    "scaled": lambda p: p.data.mul_(2),
    "copied": lambda p: p.data.copy_(torch.randn_like(p).abs() + 0.1),
    "clamped": lambda p: p.data.clamp_(0.05, 0.1),
    "numpy": lambda p: numpy.multiply(p.detach().numpy(), 0.5, out=p.detach().numpy()),
    "set": lambda p: setattr(p, "data", p.data + 0.25),
}


@pytest.mark.cpu_only  # elsewhere a later call sees them
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("make", [lambda: network(1), lambda: nn.Linear(192, 300)],
                         ids=["folded", "packed"])  # fmt: skip
def test_weights_changed_without_a_version_are_seen(make, change):
    module = make().eval()
    x = randn(2, 3, 8, 8) if isinstance(module, Network) else randn(3, 192)
    run = compiled(module)
    with torch.no_grad():
        for _ in range(2):
            same(run(x), module(x), 1e-4)
        for p in module.parameters():
            before = p._version
            change(p)
            assert p._version == before
            same(run(x), module(x), 1e-4)


def test_freeze_of_instances_that_share_code():
    modules = [network(seed) for seed in range(3)]
    x = randn(2, 3, 8, 8)
    run = torch.compile(lambda m, x: m(x), backend="inkle",
                        options={"freeze": True, "strict": True})
    with torch.no_grad():
        for _ in range(2):
            for module in modules:
                same(run(module, x), module(x), 1e-4)


def test_freeze_leaves_training_alone():
    module = network(1).train()
    run = compiled(module, freeze=True)
    for _ in range(2):
        run(randn(2, 3, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.cpu_only
def test_reports():
    module = nn.Linear(4, 3)
    with torch.no_grad():
        compiled(lambda x: module(x).softmax(-1))(randn(2, 4))
    (report,) = inkle.reports()
    assert report.compiled and not report.reason and report.seconds > 0
    stages = [name for name, _ in report.stages]
    assert {"passes", "lower", "schedule", "codegen"} <= set(stages)
    assert report.launches + report.library_calls == len(report.steps) > 0
    assert report.kernels >= 1 and report.library_calls == 1
    assert any("test_robust.py" in step["source"] for step in report.steps)


def freed(train=False, **options):
    """Whether weights and programs are gone when nothing uses them any more."""
    module, x = nn.Linear(8, 8).to(torch.get_default_device()), randn(2, 8)
    run = compiled(module, **options)
    if train:
        run(x).sum().backward()
    else:
        with torch.no_grad():
            run(x)
    assert inkle.reports()
    for report in inkle.reports():
        report.callable.probe = Probe()
    probes = [weakref.ref(report.callable.probe) for report in inkle.reports()]
    weight = weakref.ref(module.weight)
    del module, run, report
    torch._dynamo.reset()
    gc.collect()
    gc.collect()
    assert not any(report.callable for report in inkle.reports())
    return weight() is None, all(probe() is None for probe in probes)


class Probe:
    pass


@pytest.mark.parametrize("options", [{"strict": False}, {"strict": True}, {"freeze": True},
                                     {"freeze": True, "strict": False}], ids=str)  # fmt: skip
def test_programs_that_nobody_uses_are_freed(options):
    assert freed(**options) == (True, True)


@pytest.mark.parametrize("strict", [False, True])
def test_programs_of_training_are_freed(strict):
    assert freed(train=True, strict=strict) == (True, True)


def test_attributes_of_a_program_are_seen_by_the_collector():
    run = callable_of(lambda x: x + 1, randn(4))
    run.itself, probe = run, Probe()
    run.probe, seen = probe, weakref.ref(probe)
    del run, probe
    torch._dynamo.reset()
    inkle.reset()
    gc.collect()
    gc.collect()
    assert seen() is None
