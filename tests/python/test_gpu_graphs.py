"""Calls on a GPU that are recorded and replayed, and weights that change beside them."""

from __future__ import annotations

import concurrent.futures

import pytest
import torch
import torch.nn.functional as F

import inkle
from checks import bf16

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.usefixtures("on_gpu"),
]


def test_graphs_keep_results_of_earlier_calls():
    weight = bf16(64, 64)
    run = torch.compile(lambda x: torch.relu(x @ weight) + 1, backend="inkle", mode="reduce-overhead")
    with torch.no_grad():
        inputs = [bf16(32, 64) for _ in range(6)]
        results = [run(x) for x in inputs]
        for x, result in zip(inputs, results):
            torch.testing.assert_close(result, torch.relu(x @ weight) + 1, rtol=2e-2, atol=2e-2)
    recorded, replayed, reason = inkle.reports()[-1].callable.graphs
    assert recorded >= 1 and replayed >= 4, reason


def test_graphs_lend_large_results():
    weight = bf16(1024, 1024)

    def function(x):
        return torch.relu(x @ weight) + 1

    run = torch.compile(function, backend="inkle", mode="reduce-overhead", dynamic=False)
    with torch.no_grad():
        inputs = [bf16(1024, 1024) for _ in range(8)]
        small = bf16(768, 1024)
        results = []
        for i, x in enumerate(inputs * 2):
            result = run(x)
            results.append(result[5:9] if i % 2 else result)  # a view keeps the storage, too
            del result
            run(small)  # another recording, in the pool that all share
        for i, x in enumerate(inputs * 2):
            expected = function(x)
            expected = expected[5:9] if i % 2 else expected
            torch.testing.assert_close(results[i], expected, rtol=2e-2, atol=2e-2)
        results.clear()
        for x in inputs * 2:  # dropped at once
            torch.testing.assert_close(run(x), function(x), rtol=2e-2, atol=2e-2)
    recorded, replayed, reason = inkle.reports()[0].callable.graphs
    assert 3 <= recorded <= 5 and replayed >= 28, (recorded, replayed, reason)


def test_replays_give_a_shared_tensor_the_sizes_of_the_first_result():
    def function(x):
        y = x + 1
        return y.view(2, 6), y.t(), y, y.sum(0, keepdim=True), y[..., :1]

    run = torch.compile(function, backend="inkle", mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(4, 3, device="cuda")
            expected, results = function(x), run(x)
            for one, other in zip(expected, results):
                assert (one.shape, one.stride()) == (other.shape, other.stride())
                one.mul_(2)
                other.mul_(2)
            torch.testing.assert_close(results, expected)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_changed_weights_are_prepared_anew(mode):
    conv = torch.nn.Conv2d(16, 32, 3, padding=1, bias=False, dtype=torch.bfloat16)
    norm = torch.nn.BatchNorm2d(32, dtype=torch.bfloat16)
    model = torch.nn.Sequential(conv, norm, torch.nn.ReLU()).eval()
    model = model.to(memory_format=torch.channels_last)
    run = torch.compile(model, backend="inkle", mode=mode)
    x = bf16(2, 16, 14, 14).to(memory_format=torch.channels_last)
    with torch.no_grad():
        for step in range(12):
            if step % 4 == 3:
                norm.weight.mul_(1.5)
                conv.weight.add_(0.01)
            torch.testing.assert_close(run(x), model(x), rtol=3e-2, atol=3e-2)


class _Projections(torch.nn.Module):
    """Three products of one input, which become one."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(512, 512, dtype=torch.bfloat16) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(*(y(x).unflatten(-1, (8, 64)).transpose(1, 2)
                                                for y in (self.q, self.k, self.v)))  # fmt: skip


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("change", ["scaled", "clamped"])
def test_weights_changed_without_a_version_are_seen_a_call_later(change, mode):
    module = _Projections().eval()
    run = torch.compile(module, backend="inkle", mode=mode)
    x = bf16(4, 128, 512)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(run(x), module(x), rtol=3e-2, atol=3e-2)
        for p in (module.v.weight, module.v.bias):
            before = p._version
            if change == "scaled":
                p.data.mul_(-2)
            else:
                p.data.clamp_(-0.02, 0.02)
            assert p._version == before
        run(x)  # this one may still use the old ones
        torch.cuda.synchronize()
        for _ in range(3):
            torch.testing.assert_close(run(x), module(x), rtol=3e-2, atol=3e-2)


def test_graphs_follow_moving_inputs_and_new_shapes():
    run = torch.compile(lambda x: F.softmax(x, -1) * 2, backend="inkle", mode="reduce-overhead",
                        dynamic=True)  # fmt: skip
    with torch.no_grad():
        kept = []
        for size in (16, 32, 16, 48, 32, 16, 16, 48):
            x = bf16(size, 64)
            kept.append(x)
            torch.testing.assert_close(run(x), F.softmax(x, -1) * 2, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("moves", [False, True])
def test_graphs_without_memory_are_given_up(moves):
    torch.cuda.empty_cache()  # of other tests' memory, which copies would find
    weight = torch.randn(4096, 4096)
    inputs = [torch.randn(4096, 4096) for _ in range(4 if moves else 1)] * (1 if moves else 4)
    run = torch.compile(lambda x: torch.softmax(x @ weight, -1), backend="inkle",
                        mode="reduce-overhead")  # fmt: skip
    with torch.no_grad():
        wanted = [torch.softmax(x @ weight, -1).sum() for x in inputs]
        run(inputs[0])
        run(inputs[0]).sum() if moves else None
        torch.cuda.synchronize()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**23) / total)
        try:
            found = [run(x).sum() for x in inputs]
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    torch.testing.assert_close(found, wanted)
    recorded, _, reason = inkle.reports()[-1].callable.graphs
    assert recorded == int(moves) and "memory" in reason


@pytest.mark.parametrize("rows", [32, 1024])  # results that are copied, and that are not
def test_graphs_of_one_callable_in_two_threads(rows):
    def function(x):
        return (x * 2 + 1).softmax(-1)

    run = torch.compile(function, backend="inkle", mode="reduce-overhead", dynamic=False)
    inputs = [torch.randn(rows, 1024) for _ in range(32)]
    with torch.no_grad():
        run(inputs[0])
    program = inkle.reports()[0].callable

    def work(first):
        kept = []
        for i in range(400):
            x = inputs[(2 * i + first) % len(inputs)]
            kept = kept[-2:] + [(x, program([x])[0])]
            for x, found in kept:
                torch.testing.assert_close(found, function(x))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, first) for first in (0, 1)]:
            done.result(timeout=120)
    recorded, replayed, reason = program.graphs
    assert recorded >= 1 and replayed >= 100, reason


def test_graphs_write_to_mutated_arguments():
    def step(x, total):
        total.add_(x.sum(0))
        return x * 2

    run = torch.compile(step, backend="inkle", mode="reduce-overhead")
    total, expected = torch.zeros(64), torch.zeros(64)
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(8, 64)
            torch.testing.assert_close(run(x, total), x * 2)
            expected += x.sum(0)
    torch.testing.assert_close(total, expected)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_numbers_of_the_cpu(mode):
    """Numbers that change, as dynamic shapes make them of floats, and rows to look up."""

    def function(x, number, other, rows):
        return ((x * number + other).softmax(-1))[rows]

    run = torch.compile(function, backend="inkle", mode=mode, dynamic=True)
    rows = torch.arange(100, device="cpu").remainder_(8).pin_memory()
    with torch.no_grad():
        for i in range(12):
            x = torch.randn(8, 16)
            numbers = [torch.tensor(0.5 + (i // 3), dtype=torch.float64, device="cpu"),
                       torch.tensor(float(i), device="cpu")]  # fmt: skip
            wanted = function(x, *numbers, rows)
            found = run(x, *numbers, rows)
            rows.add_(1).remainder_(8)  # what was asked before has read it
            numbers[0].zero_()
            torch.testing.assert_close(found, wanted)
    if mode is not None:
        recorded, replayed, reason = inkle.reports()[-1].callable.graphs
        assert recorded >= 1 and replayed >= 8, reason


def test_floats_of_dynamic_shapes_are_recorded():
    class Scaled(torch.nn.Module):
        def __init__(self, eps):
            super().__init__()
            self.eps = eps

        def forward(self, x, factor):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * factor

    model = torch.nn.Sequential(Scaled(1e-6))[0]
    run = torch.compile(model, backend="inkle", mode="reduce-overhead", dynamic=True)
    with torch.no_grad():
        for i in range(16):
            x = torch.randn(4 + i // 8, 64)
            torch.testing.assert_close(run(x, 0.5 + i), model(x, 0.5 + i))
    recorded, replayed, reason = inkle.reports()[-1].callable.graphs
    assert 2 <= recorded <= 4 and replayed >= 12, reason  # anew once inputs move


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_programs_without_results(mode):
    """Recording one, too, the interpreter's lock is held again after the launches."""

    def function(x, total):
        total.add_(x.sum(0))
        x.mul_(2)

    run = torch.compile(function, backend="inkle", mode=mode)
    torch.manual_seed(0)
    ours, eagers = [[torch.randn(8, 64), torch.zeros(64)] for _ in range(2)]
    for a, b in zip(ours, eagers):
        b.copy_(a)
    with torch.no_grad():
        for _ in range(6):
            run(*ours)
            function(*eagers)
    torch.testing.assert_close(ours, eagers)
    if mode is not None:
        recorded, replayed, reason = inkle.reports()[-1].callable.graphs
        assert recorded >= 1 and replayed >= 4, reason


@pytest.mark.parametrize("kind", ["dense", "odd", "gaps", "complex"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_graphs_write_to_arguments_that_move(kind, dynamic):
    """Written through views, so that a kernel stores to the argument itself; results with gaps."""

    def function(x):
        x[1:].mul_(2)
        x[:, :1] = 0
        x.copy_(x + x.flip(0))
        return x.t(), x[1:] * 2, x.real[:1]

    def argument(number):
        torch.manual_seed(number)
        memory = torch.randn(64 + 4 * 40, dtype=torch.complex64 if kind == "complex" else None)
        begin = 1 + 2 * number if kind == "odd" else 4 * number
        if kind == "gaps":
            return memory, memory[begin : begin + 64].view(4, 16)[:, :9]
        return memory, memory[begin : begin + 36].view(4, 9)

    torch._dynamo.reset()
    run = torch.compile(function, backend="inkle", mode="reduce-overhead", dynamic=dynamic)
    kept = []
    for number in (0, 0, 5, 1, 7, 7, 30):
        (ours, x), (eagers, y) = argument(number), argument(number)
        found, wanted = run(x), function(y)
        kept.append((ours, found, eagers, wanted))
        for memory, results, wanted_memory, wanted_results in kept:
            torch.testing.assert_close(memory, wanted_memory)
            for a, b in zip(results, wanted_results):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", ["gaps", "repeated", "transposed", "shared", "wide"])
def test_graphs_copy_inputs_that_move(kind):
    """Each call has another address; what cannot be copied with its strides is not recorded."""

    def argument(number):
        torch.manual_seed(number)
        memory = torch.randn(128, 4096)
        return {
            "gaps": lambda: memory[:, :1000],
            "repeated": lambda: memory[:1, :100].expand(128, 100),
            "transposed": lambda: memory[:32].t()[:, ::2],
            "shared": lambda: memory.as_strided((64, 100), (50, 1)),
            "wide": lambda: memory[:, :4],
        }[kind]()

    run = torch.compile(lambda x: x.softmax(-1) + x[:1], backend="inkle", mode="reduce-overhead")
    with torch.no_grad():
        held = [argument(number) for number in range(6)]
        for x in held:
            torch.testing.assert_close(run(x), x.softmax(-1) + x[:1])
    recorded, replayed, reason = inkle.reports()[-1].callable.graphs
    if kind in ("shared", "wide"):
        assert "moves" in reason
    else:
        assert recorded >= 1 and replayed >= 3 and not reason, (recorded, replayed, reason)
