"""Which results share memory with each other and with arguments: as in eager, and so do writes to
them reach each other."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F

Tensors = tuple[torch.Tensor, ...]


def _with(a: torch.Tensor, *views: Callable[[torch.Tensor], torch.Tensor]) -> Tensors:
    return tuple(view(a) for view in views)


def _same(a: torch.Tensor) -> torch.Tensor:
    return a


# Of x: f32[4,3].
PROGRAMS: dict[str, Callable[[torch.Tensor], Tensors]] = {
    "equal sums": lambda x: (x + 1, x + 1),
    "equal reductions": lambda x: (x.sum(0), x.sum(0)),
    "equal products": lambda x: (x @ x.t(), x @ x.t()),
    "equal clones": lambda x: (x.clone(), x.clone()),
    "equal constants": lambda x: (torch.zeros(3), torch.zeros(3)),
    "equal literals": lambda x: (torch.tensor([1, 2]), torch.tensor([1, 2])),
    "views of zeros": lambda x: _with(
        torch.zeros(3), _same, lambda a: a[0:2], lambda a: a.view(3, 1)
    ),
    "views of a literal": lambda x: _with(
        torch.tensor([1]), lambda a: a[0:1], lambda a: a[0:1].squeeze()
    ),
    "a written literal": lambda x: _with(
        torch.tensor([1, 2]), lambda a: a[0].zero_(), _same, lambda a: a[1:]
    ),
    "views of the identity": lambda x: _with(
        torch.eye(3), _same, torch.t, lambda a: a.diagonal()
    ),
    "views of a range": lambda x: _with(
        torch.arange(4), _same, lambda a: a.view(2, 2), lambda a: a[1]
    ),
    "a view of a scalar": lambda x: _with(torch.tensor(3.0), _same, lambda a: a.view(1)),
    "views of the argument": lambda x: (x[1:], x.view(-1), x),
    "parts of the argument": lambda x: (x[1:], x[2:]),
    "a view and its copy": lambda x: (x[1:], x[1:].clone()),
    "no operation": lambda x: (x + 0, x * 1, x.to(torch.float32), x.contiguous()),
    "dropout of nothing": lambda x: (F.dropout(x, 0.0, True), x),
    "detached": lambda x: (x.detach(), x.expand_as(x)),
    "expanded": lambda x: _with((x + 1).sum(0), lambda a: a.expand(4, 3), _same),
    "transposed": lambda x: _with(x * 2, torch.t, _same, lambda a: a.reshape(-1)),
    "reshaped with a copy": lambda x: _with(x * 2, lambda a: a.t().reshape(-1), _same),
    "chunks and an equal value": lambda x: (x * 2).chunk(2, 0) + (x * 2,),
    "chunks of two equal values": lambda x: (x * 2).chunk(2, 0) + (x * 2).chunk(2, 0),
    "chunks of two equal products": lambda x: (x @ x.t()).chunk(2) + (x @ x.t()).chunk(2, 1),
    "some of the chunks": lambda x: (x * 2).chunk(4, 0)[1:3],
    "chunks with arithmetic": lambda x: tuple(c + 1 for c in (x * 2).chunk(2, 0)),
    "selected by all": lambda x: (torch.where(torch.ones_like(x, dtype=torch.bool), x, x), x),
    "times one": lambda x: _with(x.neg(), lambda a: a * 1, lambda a: a + 0, _same),
    "a list of one": lambda x: (torch.cat([x]), x),
    "padded by nothing": lambda x: (F.pad(x, (0, 0)), x),
    "flipped alone": lambda x: (x[:, :1].flip(1), x),
    "repeated once": lambda x: (x.repeat(1, 1), x),
    "all indices": lambda x: (x[torch.arange(x.shape[0])], x),
    "there and back": lambda x: (x.to(torch.float64).to(torch.float32), x),
    "written through a view": lambda x: _with(
        x.clone(), lambda a: a.view(-1).add_(1), _same, lambda a: a[0]
    ),
    "whole slices": lambda x: (x[:], x[0:], x[..., :]),
    "the real part": lambda x: (x.real, x),
    "a written argument": lambda x: (x.add_(1), x[0], x.t()),
    "copied into the argument": lambda x: _with(
        x + 1, lambda b: x.copy_(b), _same, lambda b: b[1:], lambda b: x[1:]
    ),
    "a view of a sum of zeros": lambda x: _with(
        torch.zeros(4, 3) + torch.ones(3), lambda a: a[1], lambda a: a[:, 1], _same
    ),
    "split and joined": lambda x: _with(
        torch.cat([x, x]), _same, lambda a: a[:4], lambda a: a.unflatten(0, (2, 4)).transpose(0, 1)
    ),
    "gaps": lambda x: _with(x * 3, lambda a: a[::2, ::2], lambda a: a[1::2], lambda a: a[0, 1]),
}
WRITES_ARGUMENT = ("a written argument", "copied into the argument")
CASES = [
    (name, grad, dynamic)
    for name in PROGRAMS
    for grad in (False, True)
    for dynamic in (False, True)
    if not (grad and name in WRITES_ARGUMENT)
]


def _geometry(results: Tensors, x: torch.Tensor) -> list[Any]:
    """Who shares a storage, and where in it each lies."""
    tensors = [*results, x]
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [
        [[a == b for a in places] for b in places],
        [(tuple(t.shape), t.stride(), t.storage_offset()) for t in tensors],
    ]


def _argument(grad: bool) -> torch.Tensor:
    return torch.arange(12.0).sub(5).reshape(4, 3).requires_grad_(grad)


def _written(results: Tensors, x: torch.Tensor, number: int) -> list[Any]:
    """All values after a write to one of the results; what stops it."""
    error = ""
    with torch.no_grad():
        try:
            results[number].copy_(results[number] + 100)
        except RuntimeError as refusal:
            error = str(refusal).splitlines()[0]
    return [error, *(t.detach().tolist() for t in (*results, x))]


@pytest.mark.parametrize(("name", "grad", "dynamic"), CASES)
def test_results_share_as_in_eager(name: str, grad: bool, dynamic: bool) -> None:
    program = PROGRAMS[name]
    run = torch.compile(program, backend="inkle", dynamic=dynamic, options={"strict": True})
    x, y = _argument(grad), _argument(grad)
    wanted, got = program(x), run(y)
    assert _geometry(got, y) == _geometry(wanted, x)
    for number in range(len(wanted)):
        x, y = _argument(grad), _argument(grad)
        wanted, got = program(x), run(y)
        assert _written(got, y, number) == _written(wanted, x, number), f"result {number}"


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in WRITES_ARGUMENT])
def test_a_call_that_fails_shares_as_in_eager(name: str) -> None:
    run = torch.compile(PROGRAMS[name], backend="inkle", options={"fail_stage": "run"})
    x, y = _argument(True), _argument(True)
    wanted, got = PROGRAMS[name](x), run(y)
    assert _geometry(got, y) == _geometry(wanted, x)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_that_change(dynamic: bool) -> None:
    def program(x: torch.Tensor) -> Tensors:
        a = x * 2
        n = x.shape[0] // 2
        return a[n:], a[:n], x * 2, x[n:], torch.zeros(x.shape[0]).view(-1, 1)

    run = torch.compile(program, backend="inkle", dynamic=dynamic, options={"strict": True})
    for size in (4, 6, 9):
        x = torch.randn(size, 3)
        assert _geometry(run(x), x) == _geometry(program(x), x)


@pytest.mark.parametrize("view", [
    lambda y: y.detach(), lambda y: y.view(4, 3), lambda y: y.view_as(y), lambda y: y[:],
])  # fmt: skip
def test_results_that_lie_alike_are_two_tensors(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = x * 2
        return y, view(y), y

    run = torch.compile(program, backend="inkle", options={"strict": True})
    for call in (program, run):
        a, b, c = call(torch.ones(4, 3))
        assert a is not b and a is c
        b.t_()
        assert a.shape == (4, 3) and b.shape == (3, 4)
        b.fill_(7)
        assert a.sum() == 84


def test_a_write_after_a_graph_break_is_seen() -> None:
    def program() -> torch.Tensor:
        a = torch.tensor([1])
        a = a[0:1]
        b = a.squeeze()
        a[0] = 0
        if a[0] < 1e5:
            pass
        a[0] = 2
        return b

    assert torch.compile(program, backend="inkle")().item() == program().item() == 2


def test_results_may_be_written_where_autograd_looks() -> None:
    """As of any tensor that was made without gradients, a program's own."""

    def program(x: torch.Tensor) -> Tensors:
        mask = torch.zeros(4, 3)
        return mask, mask[1:]

    weight = torch.randn(3, 3, requires_grad=True)
    with torch.no_grad():
        mask, part = torch.compile(program, backend="inkle")(torch.randn(4, 3))
    part *= weight
    part.sum().backward()
    assert weight.grad is not None
    assert mask.untyped_storage().data_ptr() == part.untyped_storage().data_ptr()


def test_a_write_to_what_the_backward_reads_is_refused() -> None:
    """As in eager: the result and what is saved of it have one version counter."""

    def program(x: torch.Tensor) -> Tensors:
        y = x.exp()
        return y, y[1:].detach()

    x = torch.randn(4, 3, requires_grad=True)
    for run in (program, torch.compile(program, backend="inkle")):
        y, part = run(x)
        with torch.no_grad():
            part.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_gradients_share_no_memory_that_steps_write() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x + w).sum()

    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    torch.compile(program, backend="inkle")(x, w).backward()
    assert x.grad is not None and w.grad is not None
    x.grad.mul_(5)
    assert w.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("family", ["wav2vec2", "hubert"])
def test_speech_models_with_time_masks_train(family: str) -> None:
    """They write masked frames into what graphs before the break have returned."""
    transformers = pytest.importorskip("transformers")
    numpy = pytest.importorskip("numpy")
    kinds = {
        "wav2vec2": (transformers.Wav2Vec2Config, transformers.Wav2Vec2Model),
        "hubert": (transformers.HubertConfig, transformers.HubertModel),
    }
    config_kind, model_kind = kinds[family]
    config = config_kind(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        conv_dim=(8, 8), conv_stride=(4, 2), conv_kernel=(8, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, apply_spec_augment=True,
        mask_time_prob=0.5, mask_time_length=2, mask_time_min_masks=2, mask_feature_prob=0.3,
        mask_feature_length=2, mask_feature_min_masks=1, hidden_dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0, layerdrop=0.0,
        feat_extract_norm="layer",
    )  # fmt: skip
    torch.manual_seed(0)
    model = model_kind(config).train()
    sound, weights = torch.randn(2, 400), torch.randn(2, 49, 16)

    def step(run: Callable[..., Any]) -> list[torch.Tensor]:
        numpy.random.seed(0)
        torch.manual_seed(1)
        model.zero_grad()
        result = run(sound).last_hidden_state
        (result * weights).sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return [result.detach(), *gradients]

    wanted = step(model)
    # The masks are drawn by numpy, of which Dynamo traces the calls.
    with torch._dynamo.config.patch(use_numpy_random_stream=True):
        found = step(torch.compile(model, backend="inkle"))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("same", [
    lambda y: F.dropout(y, 0.5, training=False), lambda y: y.contiguous(), torch.atleast_2d,
])  # fmt: skip
def test_what_eager_returns_twice_is_one_tensor(same: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def program(x: torch.Tensor) -> Tensors:
        y = x * 2
        return y, same(y), y.detach()

    for call in (program, torch.compile(program, backend="inkle", options={"strict": True})):
        a, b, c = call(torch.ones(4, 3))
        assert a is b and a is not c


@pytest.mark.parametrize("random", ["eager", "fast"])
def test_a_dropout_without_elements_is_its_operand(random: str) -> None:
    def program(x: torch.Tensor) -> Tensors:
        return F.dropout(x, 0.5), F.dropout(x * 2, p=0.5).mul_(3)

    x = torch.ones(0, 2)
    for call in (program, torch.compile(program, backend="inkle", options={"random": random, "strict": True})):
        a, b = call(x)
        assert a is x and b.shape == x.shape


def test_a_dropout_of_a_part_that_may_have_no_elements() -> None:
    def program(x: torch.Tensor, n: int) -> Tensors:
        part = x[:n] * 2
        return F.dropout(part, 0.5), part

    compiled = torch.compile(program, backend="inkle", dynamic=True, options={"strict": True})
    for n in (3, 0, 2):
        a, b = compiled(torch.ones(4), n)
        assert (a is b) == (n == 0) and a.shape == b.shape


@pytest.mark.parametrize("write", [
    lambda y, x: y.sin_(), lambda y, x: y.mul_(x), lambda y, x: y.t().mul_(x.t()),
])  # fmt: skip
def test_a_written_argument_is_kept_as_it_was(write: Callable[..., Any]) -> None:
    """AOTAutograd writes to it between forward and backward."""
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        write(y, x)
        return x * 3

    gradients = []
    for call in (program, torch.compile(program, backend="inkle", options={"strict": True})):
        x = torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()
        y = x.square()
        total = call(x, y).sum()
        gradients.append(torch.autograd.grad(total, x, retain_graph=True)[0])
        gradients.append(torch.autograd.grad(total + y.sum(), x)[0])
    torch.testing.assert_close(gradients[:2], gradients[2:])


def test_strides_of_the_angle_of_complex_numbers() -> None:
    x = torch.randn(4, 3, dtype=torch.complex64).t()
    run = torch.compile(lambda x: x.angle(), backend="inkle")
    assert run(x).stride() == x.angle().stride()


def test_strides_of_an_angle_that_is_repeated() -> None:
    x = torch.randn(4, 3, dtype=torch.complex64)
    run = torch.compile(lambda x: x.angle().expand(2, 4, 3), backend="inkle")
    assert run(x).stride() == (0, 3, 1)
    assert torch.equal(run(x), x.angle().expand(2, 4, 3))


def test_views_of_an_angle_that_lies_otherwise_than_stated() -> None:
    def parts(x: torch.Tensor) -> Tensors:
        y = x.angle()
        return y, y[1:]

    x = torch.randn(4, 3, dtype=torch.complex64).t()
    for found, wanted in zip(torch.compile(parts, backend="inkle")(x), parts(x)):
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()


@pytest.mark.parametrize("rows", [2, 5, 7])
def test_views_that_eager_makes_are_read_before_writes(rows: int) -> None:
    """The number of pieces is symbolic, so that eager splits."""

    def swap(x: torch.Tensor) -> torch.Tensor:
        first = x.chunk(2)[0]
        first[:1], first[-1:] = first[-1:].clone(), first[:1].clone()
        return x.expand(3, *x.shape).chunk(2)[0] + 1

    torch._dynamo.reset()
    run = torch.compile(swap, backend="inkle", dynamic=True)
    for n in (6, rows):
        found, wanted = (torch.arange(2.0 * n).reshape(n, 2) for _ in range(2))
        assert torch.equal(run(found), swap(wanted))
        assert torch.equal(found, wanted)


def test_a_view_of_arguments_that_share_memory_lies_where_it_does_in_eager() -> None:
    """AOTAutograd makes one argument of both, and the result of its strides."""

    def write(x: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        view *= 2
        x.view(-1).add_(1.5)
        return view

    run = torch.compile(write, backend="inkle")
    for _ in range(2):
        memories = [torch.arange(7.0) for _ in range(2)]
        inputs = [m[:6].view(2, 3)[:, 1:2] for m in memories]
        found, wanted = (f(x, x.reshape(2, -1)) for f, x in zip((run, write), inputs))
        assert torch.equal(memories[0], memories[1])
        assert torch.equal(found, wanted)
        assert found.data_ptr() == inputs[0].data_ptr()
        assert found.stride() == wanted.stride()


def _scaled(x: torch.Tensor) -> Tensors:
    """By a number that is known only while it runs."""
    y = x * x.sum().item()
    return y, y[..., :1], x[1:]


def _positive(x: torch.Tensor) -> Tensors:
    y = x[x[:, 0] > 0]
    return y, y[..., :1], x[1:]


@pytest.mark.parametrize("parts", [_scaled, _positive])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_view_of_what_data_decides_shares_its_memory(parts: Any, dynamic: bool) -> None:
    torch._dynamo.reset()
    run = torch.compile(parts, backend="inkle", dynamic=dynamic)
    for n in (2, 3):
        x = torch.arange(4.0 * n).reshape(4, n)
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            y, part, argument = run(x)
        assert torch.equal(y, parts(x)[0])
        y.add_(1)
        x.add_(1)
        assert torch.equal(part, y[..., :1])
        assert torch.equal(argument, x[1:])


def test_equal_gradients_leave_what_the_forward_keeps_alone() -> None:
    def product(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x + y) * w

    torch.manual_seed(0)
    inputs = [torch.randn(4, 4, requires_grad=True) for _ in range(3)]
    product(*inputs).square().sum().backward()
    wanted = [t.grad for t in inputs]
    for t in inputs:
        t.grad = None
    torch.compile(product, backend="inkle")(*inputs).square().sum().backward()
    for t, gradient in zip(inputs, wanted):
        torch.testing.assert_close(t.grad, gradient)


def _written_view(x: torch.Tensor) -> Tensors:
    y = x.sum((0, -1))
    view = y.swapaxes(0, -1)
    torch._dynamo.graph_break()
    view.swapaxes(0, -1).copy_(y)
    return (view,)


def _other_dtype_after_a_write(x: torch.Tensor) -> Tensors:
    y = x.long() + 3
    view = y.squeeze()
    if x.sum() >= 0:
        view.index_fill_(0, torch.tensor([0]), 2)
    return y, y.view(torch.int32)


def _filled_view(x: torch.Tensor) -> Tensors:
    y = F.pad(x.mT @ x, (-1, 1), value=1)
    view = y.reshape(y.shape[0], -1)
    torch._dynamo.graph_break()
    view.fill_(1)
    return (y[..., :1],)


@pytest.mark.parametrize("f", [_written_view, _other_dtype_after_a_write, _filled_view])
@pytest.mark.parametrize("grad", [False, True])
def test_views_are_arguments_of_the_next_graph(f: Callable[..., Tensors], grad: bool) -> None:
    """AOTAutograd of torch 2.11 refuses arguments that share memory and have no common base."""
    torch._dynamo.reset()
    x = torch.arange(6.0).view(2, 3)
    with torch.set_grad_enabled(grad):
        made = torch.compile(f, backend="inkle")(x)
        for mine, eager in zip(made, f(x)):
            torch.testing.assert_close(mine, eager, rtol=0, atol=0)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_without_gradients_results_are_views_to_autograd(
    grad: bool, cached: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in eager, also of a program that comes from AOTAutograd's cache."""
    from torch._functorch import config

    def f(x: torch.Tensor) -> Tensors:
        y = x + 1
        return y, y.squeeze(), y[1:]

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = torch.arange(6.0).view(2, 3)
    with torch.set_grad_enabled(grad), config.patch(enable_autograd_cache=cached):
        for _ in range(2):
            torch._dynamo.reset()
            whole, *views = torch.compile(f, backend="inkle")(x)
            assert not whole._is_view() and all(v._base is whole for v in views)
    if grad:  # writes that autograd follows reach what they do in eager
        views[1].mul_(torch.ones(3, requires_grad=True))
        assert whole.requires_grad and views[0].requires_grad


def test_what_is_detached_is_no_view_to_autograd() -> None:
    def f(x: torch.Tensor) -> Tensors:
        y = x + 1
        return y, y.detach()

    torch._dynamo.reset()
    whole, detached = torch.compile(f, backend="inkle")(torch.ones(3))
    detached.mul_(torch.ones(3, requires_grad=True))
    assert not whole.requires_grad and whole.data_ptr() == detached.data_ptr()


def test_of_views_and_what_is_detached_autograd_knows_which_are_which() -> None:
    """AOTAutograd refuses arguments whose bases differ, so what follows the graph break runs in eager."""

    def f(x: torch.Tensor) -> Tensors:
        whole = x / 2
        view, detached = whole[...], whole.detach()
        if view.sum().item() > 1:
            view[0] = 0.5
        view.mul_(-1)
        detached[0].mul_(2)
        view.mT[0].mul_(3)
        return whole, view, detached, detached[..., :1]

    x = torch.arange(15.0).reshape(3, 5)
    torch._dynamo.reset()
    expected, found = f(x), torch.compile(f, backend="inkle")(x)
    assert all(map(torch.equal, found, expected))
    assert [t._is_view() for t in found] == [t._is_view() for t in expected]
    assert found[1]._base is found[0]


@pytest.mark.parametrize("partition", ["default", "smallest"])
def test_beside_gradients_results_are_views_of_each_other(partition: str) -> None:
    """Where no gradients flow; AOTAutograd applies the views of the next graph to their base."""

    def f(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        whole = torch.zeros(y.shape[0], 2)
        flat = whole.view(-1)
        scaled = x * y.sum().item()
        flat[:2] = 1
        return whole[...], flat, scaled, scaled.detach()

    x, y = torch.ones(1, 3, requires_grad=True), torch.ones(3)
    torch._dynamo.reset()
    expected = f(x, y)
    found = torch.compile(f, backend="inkle", options={"partition": partition})(x, y)
    assert all(map(torch.equal, found, expected))
    assert [t._is_view() for t in found] == [t._is_view() for t in expected]
    found[2].sum().backward()
    assert torch.equal(x.grad, torch.full((1, 3), 3.0))


def test_an_operand_that_an_eager_op_returns_keeps_its_sizes() -> None:
    """Dropout of no elements is its operand, in whose memory another result lies with other sizes."""

    def f(x: torch.Tensor) -> Tensors:
        x.t().add_(1)
        return x.unsqueeze(0), torch.nn.functional.dropout(x.contiguous(), 0.5)

    torch._dynamo.reset()
    run = torch.compile(f, backend="inkle", options={"random": "eager"})
    assert [tuple(t.shape) for t in run(torch.ones(0))] == [(1, 0), (0,)]


@pytest.mark.parametrize("size", [3, 6])
def test_parts_of_an_unsafe_split_lie_in_the_argument_in_training(size: int) -> None:
    """AOTAutograd gives a tangent the fake storage of the result that it is the gradient of."""

    def f(x: torch.Tensor) -> Tensors:
        return torch.ops.aten.unsafe_split(x, size)

    x = torch.ones(5, requires_grad=True)
    torch._dynamo.reset()
    found = torch.compile(f, backend="inkle", fullgraph=True)(x)
    assert [t.data_ptr() - x.data_ptr() for t in found] == [t.data_ptr() - x.data_ptr() for t in f(x)]
    assert not any(t._is_view() for t in found)
    sum(t.sum() for t in found).backward()
    assert torch.equal(x.grad, torch.ones(5))


_ATEN = torch.ops.aten


@pytest.mark.parametrize("op", [
    lambda x, y, z: _ATEN.elu_backward(x, 1.5, 1.0, 1.0, False, y),
    lambda x, y, z: _ATEN.hardswish_backward(x, y),
    lambda x, y, z: _ATEN.hardsigmoid_backward(x, y),
    lambda x, y, z: _ATEN.hardtanh_backward(x, y, -1, 1),
    lambda x, y, z: _ATEN.softplus_backward(x, y, 1, 20),
    lambda x, y, z: _ATEN.mse_loss_backward(x, y, z, 0),
    lambda x, y, z: _ATEN.smooth_l1_loss_backward(x, y, z, 0, 1.0),
    lambda x, y, z: _ATEN.huber_loss_backward(x, y, z, 0, 1.0),
    lambda x, y, z: _ATEN.binary_cross_entropy(x.sigmoid(), y.sigmoid(), None, 0),
    lambda x, y, z: _ATEN.binary_cross_entropy_backward(x, y.sigmoid(), z.sigmoid(), None, 0),
    lambda x, y, z: _ATEN.native_dropout_backward(x, y > 0, 2.0),
    lambda x, y, z: _ATEN._log_softmax_backward_data(x, y, 0, x.dtype),
])  # fmt: skip
@pytest.mark.parametrize("transposed", [0, 1])
def test_strides_of_gradients_of_several_layouts(op: Callable[..., Any], transposed: int) -> None:
    """And a view by its place in memory has eager's values."""
    def program(*operands: torch.Tensor) -> Tensors:
        y = op(*operands)
        return y, y.as_strided((15,), (1,))

    operands = [torch.randn(3, 5) for _ in range(3)]
    operands[transposed] = torch.randn(5, 3).t()
    found, wanted = torch.compile(program, backend="inkle")(*operands), program(*operands)
    assert found[0].stride() == wanted[0].stride()
    torch.testing.assert_close(found, wanted)
