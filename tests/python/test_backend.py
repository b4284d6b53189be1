"""What a compiled function shows of itself: values, dtypes, strides, aliasing, mutation."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import inkle
from checks import IS_OLDER_TORCH, check, compiled, eager_ops, narrow, ramp, randn, same

pytestmark = pytest.mark.usefixtures("device")

I64 = torch.int64
CONSTANT = randn(4, 4)
CASES = {}


def case(name, function, make, **how):
    CASES[name] = (function, make, how)


# --- Strides and aliasing -------------------------------------------------------------------------

case("transposed", lambda x: (x.t() + 1, (x + 1).t()), lambda: [randn(3, 5)])
case(
    "channels last",
    lambda x: (x + 1, F.relu(x) * 2),
    lambda: [randn(2, 3, 4, 5).to(memory_format=torch.channels_last)],
)
case(
    "permuted",
    lambda x: (x.exp(), x.sum(0), x.softmax(-1)),
    lambda: [randn(4, 5, 6).permute(2, 0, 1)],
)
case("views of inputs", lambda x: (x.view(-1), x[1:], x.t(), x + 1), lambda: [randn(4, 6)])
case("inputs", lambda x: (x, x + 1, x), lambda: [randn(4, 6)])
case("views of outputs", lambda x: ((y := x * 2), y[1:], y[1:].t()), lambda: [randn(4, 6)])
case("a view before its base", lambda x: ((y := x * 2)[1:], y, y.t()), lambda: [randn(4, 6)])
case("outputs twice", lambda x: ((y := x * 2), y, (y, {"a": y})), lambda: [randn(4)])
case("no tensors", lambda x: (x * 2, None, 3, "s", x.shape[0]), lambda: [randn(4)])
case("detached", lambda x: (x.detach(), x.detach() + 1), lambda: [randn(5, 8)])
case("split", lambda x: x.split(2), lambda: [randn(5, 8)])
case(
    "as_strided",
    lambda x: (x.as_strided((2, 2), (3, 1)) * 3, (x * 2).as_strided((2, 2), (3, 1), 1)),
    lambda: [randn(5, 8)],
)
case("expanded", lambda x: (x + 1, x.sum(0), x.clone()), lambda: [randn(1, 5).expand(4, 5)])
case(
    "powers of two",
    lambda x, n: (x.ldexp(n), n.ldexp(n), x.double().ldexp(x), x.half().ldexp(x.half())),
    lambda: [torch.tensor([1.5, 17.0, 1e-30]), torch.tensor([3, -140, 130])],
)
case(
    "deviations whose squares f32 does not hold",
    lambda x: (x.std(1), x.var(1), *torch.std_mean(x, 1), x.bfloat16().std(1), *torch.var_mean(x.bfloat16(), 1)),
    lambda: [randn(3, 9) * torch.tensor([[1e-23], [2e-20], [1.2e19]])],
)
case(
    "running sums that overflow and come back",
    lambda x: (x.cumsum(0), x.cumprod(0), (x / 1e30).cumprod(0) * 2),
    lambda: [torch.tensor([3e38, 3e38, -3e38, 1e-38, -3e38])],
)
case(
    "overlapping",
    lambda x: (x + 1, x.sum()),
    lambda: [torch.as_strided(ramp(10, 10), (4, 3), (2, 1))],
)
case("offset", lambda x: (x + 1, x[1:] * 2, x.view(2, 3)), lambda: [ramp(10, 10)[3:9]])
case(
    "misaligned",
    lambda x: x * 2 + 1,
    lambda: [torch.frombuffer(bytearray(range(41)), dtype=torch.float32, offset=1, count=10)],
)
case("view as integers", lambda x: (x.view(torch.int32), (x + 1).view(torch.int32)),
     lambda: [randn(5, 8)])

# --- Mutation -------------------------------------------------------------------------------------


def write_slices(x, y):
    x[1:3] = y[:2]
    x[:, 0] += 1
    x[::2, 1].mul_(2)
    return x.sum()


case("add_", lambda x: x.add_(1), lambda: [randn(4)])
case("add_ and more", lambda x: (x.add_(1), x * 2)[1], lambda: [randn(4)])
case("slices", write_slices, lambda: [randn(4, 5), randn(2, 5)])
case("copy_", lambda x, y: x.copy_(y), lambda: [randn(4, 5), ramp(5, 5, dtype=torch.int32)])
case("copy_ transposed", lambda x, y: x.t().copy_(y), lambda: [randn(4, 5), randn(5, 1)])
case("fill_", lambda x: (x.zero_(), x.fill_(3))[1], lambda: [randn(4, 5)])
case("through a view", lambda x: (x.view(-1).add_(1), x * 2)[1], lambda: [randn(4, 5)])
case(
    "arguments that overlap",
    lambda x, y: (x.add_(1), y * 2)[1],
    lambda: (lambda b: [b[0:4], b[2:6]])(ramp(8, 8)),
)
case("one argument twice", lambda x, y: (x.add_(1), x + y)[1], lambda: [ramp(8, 8)] * 2)
case("chunks", lambda x: [y.add_(i) for i, y in enumerate(x.chunk(3))], lambda: [randn(5, 8)])
case("integers through a view", lambda x: (x.view(torch.int32).add_(1), x * 2)[1],
     lambda: [randn(5, 8)])
case("diagonal", lambda x: (x.diagonal().add_(1), x.unfold(0, 2, 1)), lambda: [randn(4, 4)])
case("strided", lambda x: x.mul_(2), lambda: [randn(6, 4)[::2]])
case("part of a part", lambda x: (x[1:].mul_(2), x.sum())[1], lambda: [randn(6, 4)[1:4]])
case("a view returned", lambda x: (x.add_(1), x[1:])[1], lambda: [randn(6, 4)])
case("a list", lambda xs: [x.add_(1) for x in xs], lambda: [[randn(3), randn(4)]])
case("out=", lambda x, o: torch.add(x, 1, out=o), lambda: [randn(5, 8), randn(5, 8)])
case("metadata", lambda x: x.unsqueeze_(0) + 1, lambda: [randn(3)])
case("batch norm", torch.nn.BatchNorm1d(6), lambda: [randn(5, 6)])

# --- Sizes and dtypes -----------------------------------------------------------------------------

case(
    "size 0",
    lambda x: (x + 1, x.sum(), x.sum(0), x.view(-1), x.t(), torch.cat([x, x])),
    lambda: [randn(0, 5)],
)
case("contraction of size 0", lambda x: (x @ x.t(), x.sum(1), x.mean()), lambda: [randn(5, 0)])
case(
    "size 1",
    lambda x: (x + 1, x.sum(), x.squeeze(), x.softmax(-1), F.layer_norm(x, (1,))),
    lambda: [randn(1, 1)],
)
case(
    "rank 0",
    lambda x, y: (x + y, x * 2, x.view(1), x.sum(), x.expand(3)),
    lambda: [torch.tensor(2.0), torch.tensor(3)],
)


def arithmetic(x):
    negated = x if x.dtype == torch.uint8 else -x
    return (x + x, x * 2, x.sum(), x.sum(1), x / 3, x.amax(0), x.argmax(), x > 0, x.float(),
            negated)


for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int16,
              torch.int8, torch.uint8):
    case(str(dtype), arithmetic, lambda dtype=dtype: [(randn(4, 5) * 8).abs().to(dtype)])
case("sine and cosine of doubles", lambda x: torch.sin(x) * torch.cos(x),
     lambda: [randn(4, 5).double()])
for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
    case(str(dtype), lambda x: (x.float() * 2, x.clone(), x.float().to(x.dtype)),
         lambda dtype=dtype: [randn(4, 5).to(dtype)])
for dtype in (torch.uint16, torch.uint32):
    case(str(dtype), lambda x: (x.int() + 1, x.view(-1), x.clone()),
         lambda dtype=dtype: [ramp(20, 4, 5).to(dtype)])
case("bool", lambda x: (x & x, ~x, x.sum(), x.any(), x.float() + 1), lambda: [randn(4, 5) > 0])
case("complex", lambda x: (x + x, x * 2j, x.abs(), x.real, x.sum(), x @ x.t()),
     lambda: [randn(4, 4, dtype=torch.complex64)])
case("complex results", lambda x: torch.fft.fft(x), lambda: [randn(4, 4)])
case("conjugates", lambda x: (x.conj() * 2, x.conj()), lambda: [randn(4, dtype=torch.complex64)])
case("promotion", lambda x, y: (x + y, x * y, x / y, x + 1.5, x.bfloat16() + y.float()),
     lambda: [ramp(5, 5, dtype=I64), ramp(5, 5, dtype=torch.int32) + 1])
case("int64 products", lambda x: x * 2147483647 * 3, lambda: [ramp(5, 5, dtype=I64)])
case("bounds that a dtype does not hold",
     lambda x, y, n: (x.clamp(-300, 70000), x.clamp(max=n), y.clamp(-300, 3), y.clamp_min(-n)),
     lambda: [torch.tensor([0, 5, 200], dtype=torch.uint8), torch.tensor([-5, 5], dtype=torch.int8),
              1000])
case("symbolic bounds that a dtype does not hold", lambda x, n: x.clamp(-n, n),
     lambda: [torch.tensor([0, 5, 200], dtype=torch.uint8), 1000], dynamic=True)
case("integer division", lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc")),
     lambda: [ramp(8, 8, dtype=I64) - 4, torch.tensor([3, -3, 2, -2, 1, 5, 7, 9])])

# --- Arguments that are no tensors, constants, random numbers -------------------------------------

case("scalars", lambda x, a, b, c: x * a + b if c else x, lambda: [randn(4), 3, 2.5, True])
case("nested arguments", lambda d: {"z": d["a"] + d["b"][0]},
     lambda: [{"a": randn(3), "b": [randn(3)]}])
case("literals", lambda x: (x + CONSTANT, x + torch.tensor([1.0, 2.0, 3.0, 4.0]), CONSTANT),
     lambda: [randn(4, 4)])
case("constants only", lambda x: (x.new_ones(3) * 2, torch.arange(5, device=x.device), torch.eye(3, device=x.device)),
     lambda: [randn(2)])


def random_numbers(x):
    on = {"device": x.device}
    return (x + torch.rand(4, 8, **on), torch.randint(0, 9, (3,), **on), torch.randn_like(x),
            torch.randperm(5, **on), torch.rand(3, **on), F.dropout(x, 0.5, True))


def random_in_order(x):
    return torch.rand(3, device=x.device) * x[:3], x + torch.rand(4, device=x.device)


case("random", random_numbers, lambda: [randn(4, 8)])
case("random in order", random_in_order, lambda: [randn(4)])
case("masks as indices", lambda x: (x.clone().masked_fill_(x > 0, 0.0),
                                    x.index_put((x > 0,), torch.tensor(1.0))),
     lambda: [randn(4, 8)])
case("indices", lambda x, i: (x[i], x[:, i], F.embedding(i.abs(), x), x.index_select(0, i.abs())),
     lambda: [randn(4, 8), torch.tensor([-1, 3, 0])])
case("attention", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
     lambda: [randn(2, 2, 8, 4)])
case("branches", lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (x,)),
     lambda: [randn(4)])

# --- Symbolic sizes -------------------------------------------------------------------------------

case("dynamic", lambda x, y: (x @ y, x.shape[0] * 2, x.view(-1), torch.cat([x, x])),
     lambda: [randn(5, 6), randn(6, 7)], dynamic=True)
case("sizes in arithmetic", lambda x: (x.reshape(x.shape[0] // 2, -1), x.sum(0),
                                       torch.arange(x.shape[0], device=x.device),
                                       x.new_zeros(x.shape[0] + 1)),
     lambda: [randn(6, 4)], dynamic=True)
case("quotients of sizes, rounded",
     lambda x: (x.new_ones(math.ceil(x.shape[0] / 3)) * 2, math.ceil(x.shape[0] / 3) + x.sum(),
                math.floor(x.shape[1] / 4) + x.sum()),
     lambda: [randn(7, 9)], dynamic=True)
case("sizes as arguments", lambda x, n: (x[:n] * 2, n + 1, x.sum() + n), lambda: [randn(8), 5],
     dynamic=True)


# Tensors that lie on the CPU, bounds that eager refuses elsewhere, sums that it has in f64 here, and
# powers that an older torch computes in f32.
_OF_THE_CPU = ("misaligned", "literals", "bounds that a dtype does not hold",
               "symbolic bounds that a dtype does not hold", "powers of two",
               "running sums that overflow and come back",
               "deviations whose squares f32 does not hold")  # fmt: skip


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.cpu_only if name in _OF_THE_CPU else ()) for name in CASES
])
def test_like_eager(name):
    if IS_OLDER_TORCH and "does not hold" in name:
        pytest.skip("eager refuses such bounds")
    function, make, how = CASES[name]
    with torch.no_grad():
        reports = check(function, make, **how)
    assert len(reports) == 1 and reports[0].compiled


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0] * 2,
        lambda x: x * x.sum().item(),
        lambda x: (x.nonzero() * 2, x.nonzero().shape[0]),
        lambda x: torch.unique(x),
        lambda x: torch.linalg.inv(x[:, :4]),
        lambda x: torch.sparse.mm(x.relu().to_sparse(), torch.ones(8, 2)),
    ],
)
def test_what_is_left_to_eager(function):
    with torch.no_grad():
        check(function, lambda: [randn(4, 8)], strict=False)


def test_sizes_from_data_in_the_graph():
    with torch.no_grad(), torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        reports = check(lambda x: (x.nonzero() * 2, x * x.sum().item()), lambda: [randn(4, 8)],
                        strict=False)
    assert all(r.compiled or r.reason for r in reports)


def test_dtype_of_no_code_runs_op_by_op():
    with torch.no_grad():
        reports = check(lambda x: x + x, lambda: [randn(4, dtype=torch.complex64)])
    assert eager_ops(reports) == ["aten::add.Tensor"]


def test_automatic_dynamic_sizes():
    torch._dynamo.reset()
    inkle.reset()
    run = compiled(lambda x: (x @ x.t()).softmax(-1).sum(0))
    with torch.no_grad():
        for n in (3, 7, 11, 64, 1, 2, 0):
            x = randn(n, 4)
            same(run(x), (x @ x.t()).softmax(-1).sum(0))
    assert all(r.compiled for r in inkle.reports())
    assert len(inkle.reports()) <= 4  # the first, one with a symbol, sizes 1 and 0 on their own


def test_marked_dynamic():
    torch._dynamo.reset()
    inkle.reset()
    run = compiled(lambda x: x.mean(0) + x.shape[0])
    with torch.no_grad():
        for n in (5, 9, 33):
            x = randn(n, 4)
            torch._dynamo.mark_dynamic(x, 0)
            same(run(x), x.mean(0) + n)
    assert len(inkle.reports()) == 1


def test_weights_changed_in_place_are_seen():
    torch._dynamo.reset()
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(),
                                 torch.nn.Linear(8 * 36, 5)).eval()
    run = compiled(module)
    x = randn(1, 3, 8, 8)
    with torch.no_grad():
        for change in (lambda p: p.mul_(0.5), lambda p: p.data.add_(0.25), lambda p: p.zero_()):
            same(run(x), module(x))
            for p in module.parameters():
                change(p)
        same(run(x), module(x))


def test_tensor_subclass_runs_in_eager():
    class Tagged(torch.Tensor):
        pass

    with torch.no_grad():
        check(lambda x: x * 2 + 1, lambda: [randn(4).as_subclass(Tagged)], strict=False)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_modes(mode):
    module = torch.nn.Linear(4, 3)
    with mode():
        check(lambda x: module(x).relu(), lambda: [randn(2, 4)], calls=2)


def test_autocast_outside():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1))
    with torch.no_grad(), narrow(module[0].weight):
        check(lambda x: (module(x), torch.cdist(x, x)), lambda: [randn(2, 4)])


def test_large_graph():
    def function(x):
        for i in range(400):
            x = x * 1.001 + i if i % 2 else x.sin()
        return x

    with torch.no_grad():
        reports = check(function, lambda: [randn(64)], tolerance=1e-4)
    assert reports[0].launches < 100


PRODUCTS = {
    "mm": (lambda a, b: a @ b, [(5, 6), (6, 7)]),
    "mm of a transpose": (lambda a, b: a @ b.T, [(5, 6), (7, 6)]),
    "bmm": (lambda a, b: a @ b, [(3, 5, 6), (3, 6, 7)]),
    "linear": (lambda a, b: F.linear(a, b), [(8, 16), (32, 16)]),
    "conv": (lambda a, b: F.conv2d(a, b), [(2, 16, 8, 8), (32, 16, 3, 3)]),
}
CHAINS = {
    "two factors": lambda x: x * 2.0 * 3.0,
    "factor of a sum": lambda x: (x + 2.0) * 3.0,
    "sum of a product": lambda x: x * 2.0 + 3.0,
    "two sums": lambda x: x * 2.0 + 3.0 + 4.0,
    "around relu": lambda x: F.relu(x * 2.0) * 3.0,
    "around silu": lambda x: F.silu(x * 0.5) * 2.0 - 1.0,
    "two slopes": lambda x: F.leaky_relu(F.leaky_relu(x, 0.1), 0.3),
    "relu, elu": lambda x: F.elu(F.relu(x) - 1.0, 0.5),
    "elu, elu": lambda x: F.elu(F.elu(x, 2.0), 0.5),
    "leaky, relu": lambda x: F.relu(F.leaky_relu(x, 0.2) + 0.1),
    "two clamps": lambda x: x.clamp(-1.0, 2.0).clamp(-0.5, 3.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_numbers_behind_products(product, chain, dtype):
    """Each with its own factors and slopes, whoever computes them."""
    function, sizes = PRODUCTS[product]
    with torch.no_grad():
        check(
            lambda *tensors: CHAINS[chain](function(*tensors)),
            lambda: [randn(*s).to(dtype) for s in sizes],
            tolerance=1e-5 if dtype == torch.float32 else 3e-2,
        )


def test_fills_at_indices_from_the_end():
    def filled(x, i):
        y = x.clone()
        y[i] = -1
        y[:, i] = 2
        return y, torch.index_fill(x, 0, i, 7.0)

    with torch.no_grad():
        check(filled, lambda: [randn(5, 6), torch.tensor([-1, 2, -4])])


def test_ops_whose_results_torch_foresees_wrong():
    """The gradient of embedding_bag in bf16: its sizes are not those of torch's fake tensors."""

    def pooled(weight, indices, offsets):
        return F.embedding_bag(indices, weight, offsets, mode="sum")

    weight = randn(7, 4).bfloat16().requires_grad_()
    indices, offsets = torch.arange(9) % 7, torch.tensor([0, 4])
    wanted = torch.autograd.grad(pooled(weight, indices, offsets).sum(), weight)
    y = compiled(pooled, strict=False)(weight, indices, offsets)
    same(torch.autograd.grad(y.sum(), weight)[0], wanted[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_windows_that_overlap(dtype):
    """Libraries take no matrices whose rows share elements."""
    inkle.reset()
    weight = torch.arange(8.0).reshape(4, 2).to(dtype)
    for product in (lambda x: F.linear(x.unfold(-1, 2, 1), weight) + 1,
                    lambda x: F.linear(x.unfold(-1, 2, 1), x.unfold(-1, 2, 1)).roll(2),
                    lambda x: x.view(2, 4).unfold(0, 2, 1) @ weight.t() - 1):  # fmt: skip
        x = torch.arange(8.0).to(dtype)
        found, wanted = torch.compile(product, backend="inkle")(x), product(x)
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()
    assert [r.fault for r in inkle.reports() if r.fault] == []
