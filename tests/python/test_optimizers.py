"""Compiled optimizer steps and ops over lists of tensors, against eager: values, state, launches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import inkle
from checks import compiled, randn, same

pytestmark = pytest.mark.usefixtures("device")

LARGE = [(33, 65), (129,), (7, 3, 5), (2048, 3), (17,)]
MIXED = [*LARGE, (), (1,), (0,), (3, 0)]


def rate():
    return torch.tensor(0.01)


def steps_of_tensors():
    """On a GPU these optimizers count their steps there only if told to."""
    return {"capturable": torch.get_default_device().type == "cuda"}


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=rate(), momentum=0.9, weight_decay=0.01),
    "sgd nesterov": lambda p: torch.optim.SGD(p, lr=rate(), momentum=0.9, nesterov=True),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=rate(), momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=rate(), **steps_of_tensors()),
    "adam amsgrad": lambda p: torch.optim.Adam(p, lr=rate(), amsgrad=True, weight_decay=0.1, **steps_of_tensors()),
    "adamw": lambda p: torch.optim.AdamW(p, lr=rate(), **steps_of_tensors()),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True, **steps_of_tensors()),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=rate()),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=rate(), momentum=0.9, centered=True, **steps_of_tensors()),
    "rmsprop foreach": lambda p: torch.optim.RMSprop(p, lr=rate(), foreach=True, **steps_of_tensors()),
    "nadam": lambda p: torch.optim.NAdam(p, lr=rate(), **steps_of_tensors()),
    "nadam foreach": lambda p: torch.optim.NAdam(p, lr=rate(), foreach=True, **steps_of_tensors()),
}


def parameters(sizes, dtype=torch.float32):
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(s).to(dtype)) for s in sizes]


def give_gradients(seed, *lists):
    for tensors in lists:
        torch.manual_seed(seed)
        for p in tensors:
            p.grad = torch.randn(p.shape).to(p.dtype)


def state_of(optimizer, tensors):
    """The tensors of each kind of state, in the order of the parameters."""
    kinds = {key for p in tensors for key in optimizer.state[p]}
    return {
        key: [v for p in tensors if torch.is_tensor(v := optimizer.state[p].get(key))]
        for key in sorted(kinds)
        if any(torch.is_tensor(optimizer.state[p].get(key)) for p in tensors)
    }


def error(tensors, exact):
    parts = [(t.double() - e).flatten() for t, e in zip(tensors, exact)]
    return torch.cat(parts).square().mean().sqrt().item()


def close(found, wanted, exact):
    """In f32 as eager; in bf16 no further from f64 than eager, which rounds numbers to bf16, too."""
    assert len(found) == len(wanted) == len(exact)
    for a, b in zip(found, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape
        if b.dtype == torch.float32:
            same(a, b)
    floor = 1e-3 * max(e.abs().amax().item() for e in exact if e.numel())
    assert error(found, exact) <= 1.5 * error(wanted, exact) + floor


def run_steps(make, sizes, dtype=torch.float32, steps=4):
    """Eager and compiled steps side by side; the reports of those compiled."""
    torch._dynamo.reset()
    inkle.reset()
    plain, ours = parameters(sizes, dtype), parameters(sizes, dtype)
    exact = [nn.Parameter(p.detach().double()) for p in plain]
    wanted, found, reference = make(plain), make(ours), make(exact)
    addresses = [p.data_ptr() for p in ours]
    step = compiled(found.step)
    for number in range(steps):
        give_gradients(number, plain, ours)
        for p, q in zip(exact, plain):
            p.grad = q.grad.double()
        wanted.step()
        reference.step()
        step()
    close(*([t.detach() for t in tensors] for tensors in (ours, plain, exact)))
    states = state_of(found, ours), state_of(wanted, plain), state_of(reference, exact)
    for key in states[0]:
        close(*(state[key] for state in states))
    assert addresses == [p.data_ptr() for p in ours]
    assert all(r.compiled and not r.eager for r in inkle.reports())
    return inkle.reports()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, dtype):
    run_steps(OPTIMIZERS[name], MIXED, dtype)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_launches_do_not_grow_with_the_parameters(name):
    few = run_steps(OPTIMIZERS[name], LARGE)[-1]
    many = run_steps(OPTIMIZERS[name], LARGE * 4)[-1]
    assert many.launches == few.launches <= 2
    assert many.kernels == few.kernels


def test_adamw_reads_and_writes_each_element_once():
    report = run_steps(OPTIMIZERS["adamw"], LARGE)[-1]
    elements = sum(p.numel() for p in parameters(LARGE))
    # parameter, two moments and gradient in; parameter and moments out; and some numbers.
    assert report.bytes_moved <= 28 * elements + 64 * len(LARGE)


def test_rate_changes_without_a_new_compilation():
    torch._dynamo.reset()
    inkle.reset()
    plain, ours = parameters(LARGE), parameters(LARGE)
    wanted, found = OPTIMIZERS["adamw"](plain), OPTIMIZERS["adamw"](ours)
    step = compiled(found.step)
    for number in range(6):
        give_gradients(number, plain, ours)
        for optimizer in (wanted, found):
            optimizer.param_groups[0]["lr"].fill_(0.02 / (number + 1))
        wanted.step()
        step()
    for a, b in zip(ours, plain):
        same(a, b)
    assert len(inkle.reports()) == 1


def test_several_groups():
    def make(p):
        groups = [{"params": p[:2], "lr": rate()}, {"params": p[2:], "lr": rate() / 2}]
        return torch.optim.AdamW(groups, weight_decay=0.1, **steps_of_tensors())

    assert run_steps(make, LARGE)[-1].launches <= 4


LISTS = {
    "unary": lambda x, y: torch._foreach_exp(torch._foreach_neg(x)),
    "binary": lambda x, y: torch._foreach_div(torch._foreach_sub(x, y, alpha=2), torch._foreach_add(torch._foreach_abs(y), 1)),
    "numbers": lambda x, y: torch._foreach_mul(x, [float(i) for i in range(len(x))]),
    "one tensor": lambda x, y: torch._foreach_mul(x, y[0].sum()),
    "addcdiv": lambda x, y: torch._foreach_addcdiv(x, y, torch._foreach_exp(y), 0.5),
    "addcmul numbers": lambda x, y: torch._foreach_addcmul(x, y, y, [0.1 * i for i in range(len(x))]),
    "lerp": lambda x, y: torch._foreach_lerp(x, y, 0.3),
    "lerp lists": lambda x, y: torch._foreach_lerp(x, y, torch._foreach_sigmoid(y)),
    "pow": lambda x, y: torch._foreach_pow(torch._foreach_abs(x), 1.5),
    "pow of a number": lambda x, y: torch._foreach_pow(0.9, x),
    "bounds": lambda x, y: torch._foreach_clamp_max(torch._foreach_maximum(x, y), 0.5),
    "norm": lambda x, y: torch._foreach_norm(x),
    "norm 1": lambda x, y: torch._foreach_norm(x, 1),
}


@pytest.mark.parametrize("name", LISTS)
def test_ops_over_lists(name):
    torch._dynamo.reset()
    inkle.reset()
    function = LISTS[name]
    x, y = [randn(s) for s in MIXED], [randn(s) for s in MIXED]
    for a, b in zip(compiled(function)(x, y), function(x, y)):
        same(a, b)
    assert not inkle.reports()[-1].eager


def test_updates_in_place_keep_the_order_of_reads():
    def function(x, y, z):
        old = x * 2
        x.add_(y)
        z.copy_(x + old)
        y.mul_(old)
        return x.sum() + old.sum()

    torch._dynamo.reset()
    wanted, found = [randn(40, 50) for _ in range(3)], None
    found = [t.clone() for t in wanted]
    same(compiled(function)(*found), function(*wanted), 1e-4)
    for a, b in zip(found, wanted):
        same(a, b)


def test_updates_from_elsewhere_in_the_tensor():
    def function(x, y):
        flipped = x.flip(0) + y
        rows = x.sum(1, keepdim=True) + y
        x.copy_(flipped)
        y.add_(rows)
        return flipped * 2

    torch._dynamo.reset()
    wanted = [randn(40, 50) for _ in range(2)]
    found = [t.clone() for t in wanted]
    same(compiled(function)(*found), function(*wanted))
    for a, b in zip(found, wanted):
        same(a, b)
