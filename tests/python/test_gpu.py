"""What only a GPU has: streams, devices, attention's kernels, long rows."""

from __future__ import annotations

import concurrent.futures

import pytest
import torch
import torch.nn.functional as F

from checks import bf16
from inkle import attention_backends

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.usefixtures("on_gpu"),
]


def compiled(function, **keywords):
    return torch.compile(function, backend="inkle", options={"strict": True}, **keywords)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("window", [(4, 4, 0), (7, 2, 3), (3, 1, 1)])
def test_images_of_three_channels(channels_last, window):
    size, stride, padding = window
    layer = torch.nn.Conv2d(3, 32, size, stride, padding, dtype=torch.bfloat16)
    x = bf16(2, 3, 28, 28)
    if channels_last:
        layer, x = layer.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted, found = layer(x), compiled(layer)(x)
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_unrolled_rows_wait_for_the_product_before_them():
    """What is read too early is what the call before has left there."""

    def pooled(x, a, bias, b, more, scale, shift):
        images = (x + bias)[:, :384].reshape(2, 8, 8, 384).permute(0, 3, 1, 2)
        rows = F.max_pool2d(images, 3, 2, 1).view(2, 384, -1).transpose(1, 2)
        both = rows + F.linear(a, b, more).view(2, 16, 384)
        return both, F.layer_norm(both, (384,), scale, shift)

    x = torch.randn(128, 1536)
    rest = [torch.randn(*sizes) for sizes in ((1536,), (384, 384), (384,), (384,), (384,))]
    calls = [torch.randn(32, 384) for _ in range(300)]
    run = compiled(pooled)
    with torch.no_grad():
        found = [run(x, a, *rest) for a in calls]
        wanted = [pooled(x, a, *rest) for a in calls]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("sizes", [(5,), (10, 5), (67, 7)])
def test_rows_that_other_threads_of_a_warp_read(sizes):
    """Of targets that are all there: what torch 2.11 traces is wrong behind one that is -1."""
    x, target = torch.randn(sizes), torch.randint(sizes[-1], sizes)
    run = compiled(F.multilabel_margin_loss)
    found, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    first, second = run(found, target), F.multilabel_margin_loss(wanted, target)
    first.backward()
    second.backward()
    torch.testing.assert_close((first, found.grad), (second, wanted.grad))


def test_dropout_of_an_argument_that_is_not_aligned_draws_as_in_eager():
    """Torch's kernel draws in another order where it can read several elements at once."""

    def dropped(x):
        return F.dropout(x, 0.5), x * 2

    run = torch.compile(dropped, backend="inkle", options={"strict": True, "random": "eager"})
    for count in (2, 5, 1000):
        x = torch.randn(count + 3)[3:]
        torch.manual_seed(count)
        wanted = dropped(x)
        torch.manual_seed(count)
        torch.testing.assert_close(run(x), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("is_read_by_a_kernel", [False, True])
def test_dropout_of_a_view_of_eager_that_is_not_aligned_draws_as_in_eager(is_read_by_a_kernel):
    """A slice by a number is a view that eager makes."""

    def dropped(x, n):
        part = x[:: 1 + n % 3]
        return F.dropout(part, 0.5), part * 2 if is_read_by_a_kernel else n

    run = torch.compile(
        dropped, backend="inkle", dynamic=True, options={"strict": True, "random": "eager"}
    )
    for n, count in ((3, 5), (-5, 40), (-16, 1000)):
        x = torch.randn(3 * count + 3)[3:].view(3, count, 1)
        torch.manual_seed(count)
        wanted = dropped(x, n)
        torch.manual_seed(count)
        torch.testing.assert_close(run(x, n), wanted, rtol=0, atol=0)


def _added_to(x):
    x.add_(1)
    return F.dropout(x, 0.5)


def _copied_to_itself(x):
    flat = x.view(-1)
    flat[1:].copy_(flat[:-1].clone())
    return F.dropout(x, 0.5), x * 2


def _dropped_across(x):
    x[:, :1].copy_(x[:, -1:])
    return F.dropout(x.T, 0.5), x.T * 2


def _written_after_a_part_is_dropped(x):
    dropped = F.dropout(x[1:, :3], 0.5)
    x.add_(3)
    return dropped


_WRITERS = [_added_to, _copied_to_itself, _dropped_across, _written_after_a_part_is_dropped]


@pytest.mark.parametrize("written", _WRITERS)
@pytest.mark.parametrize("count", [5, 40, 1000])
def test_dropout_of_a_written_argument_that_is_not_aligned_draws_as_in_eager(written, count):
    run = torch.compile(written, backend="inkle", options={"strict": True, "random": "eager"})
    numbers = torch.randn(count + 3)
    made = []
    for function in (written, run):
        x = numbers.clone()[3:].view(5, -1)
        torch.manual_seed(count)
        made.append((function(x), x))
    torch.testing.assert_close(*made, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16])
@pytest.mark.parametrize("count", [4, 33, 1000])
def test_extremes_of_negated_integers(count, dtype):
    """ptxas loses a sign where it makes one instruction of two maxima."""
    def extremes(x):
        y = -x
        return y.amax(-1), y.amin(-1), y.amax(0), y.amin(0), torch.maximum(torch.maximum(y, -x.roll(1)), -x.roll(2))

    x = torch.randint(-30, 30, (64, count), dtype=dtype)
    for found, wanted in zip(compiled(extremes)(x), extremes(x), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("rows", [3, 5, 6, 7, 9, 11, 13])
def test_rows_whose_number_copies_of_a_loop_do_not_divide(rows):
    """NVVM ran a loop over 5 rows, in copies of 4, until the ninth."""
    def scattered(x):
        y = x[:1].expand(x.shape).flip(0)
        return torch.diagonal_scatter(y, y.diagonal() + 1), x.flip(0).cumsum(0)

    inputs = [torch.randn(rows, 4).requires_grad_() for _ in range(2)]
    with torch.no_grad():
        inputs[1].copy_(inputs[0])
    results = [scattered(inputs[0]), compiled(scattered)(inputs[1])]
    weights = torch.randn(rows, 4)
    for a, b in results:
        (a * weights + b * weights).sum().backward()
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad)


def test_multiples_of_the_least_integer_wrap_around():
    def multiples(x, n):
        return n - x, x * n

    n = torch.iinfo(torch.int64).min
    for found, wanted in zip(compiled(multiples)(torch.arange(12), n), multiples(torch.arange(12), n), strict=True):
        assert torch.equal(found, wanted)


def test_what_eager_makes_on_another_device_than_stated():
    """The states of random numbers of efficient attention; nothing but the caller has them."""
    q = bf16(2, 16, 4, 32)

    def attend(q):
        return torch.ops.aten._efficient_attention_forward(q, q, q, None, None, None, None, None, 0.0, 0)

    wanted = attend(q)
    found = torch.compile(attend, backend="inkle")(q)
    torch.testing.assert_close(found[0], wanted[0])
    assert [f.device if isinstance(f, torch.Tensor) else f for f in found[2:]] == [
        w.device if isinstance(w, torch.Tensor) else w for w in wanted[2:]
    ]


def test_a_view_of_eager_that_is_not_aligned_and_is_written_in_its_place():
    """A kernel writes to its aligned copy, and what eager reads afterwards has that."""

    def written(x, n):
        part = x.as_strided((4,), (1,), 1 + n % 3)
        changed = part.scatter(0, torch.zeros(1, dtype=torch.int64), 5)
        return torch.polar(changed, changed), n

    run = torch.compile(written, backend="inkle", dynamic=True)
    for n in range(3):
        x = torch.arange(8.0)
        torch.testing.assert_close(run(x, n), written(x, n))
        assert torch.equal(x, torch.arange(8.0))


def test_an_index_out_of_range_is_an_error_of_a_later_call():
    table = torch.randn(10, 64)
    run = compiled(lambda i: F.embedding(i, table) * 2)
    good = torch.zeros(4, dtype=torch.long)
    run(good)
    run(torch.full((4,), 11))
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match=r"index out of range in .*\(embedding\)$"):
        run(good)
    torch.testing.assert_close(run(good), table[:1].expand(4, 64) * 2)


def test_other_streams():
    run = compiled(lambda x: torch.exp(x).sum(-1))
    x = torch.randn(256, 512)
    expected = torch.exp(x).sum(-1)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        result = run(x)
    stream.synchronize()
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_another_device():
    run = compiled(lambda x: x * 2 + 1)
    x = torch.randn(64, device="cuda:1")
    result = run(x)
    assert result.device == x.device
    torch.testing.assert_close(result, x * 2 + 1)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_model_on_any_device(where, current, mode):
    device = torch.device("cuda", where)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.LayerNorm(64)
    ).to(device, torch.bfloat16)
    x = torch.randn(32, 64, device=device, dtype=torch.bfloat16)
    keywords = {"options": {"strict": True, "graphs": mode is not None}}
    run = torch.compile(model, backend="inkle", **keywords)
    with torch.no_grad(), torch.cuda.device(current):
        wanted = model(x)
        for _ in range(3):
            result = run(x)
            assert result.device == device
            assert torch.cuda.current_device() == current
            torch.testing.assert_close(result, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("length", [513, 1003, 4104, 50257])
@pytest.mark.parametrize("start", [0, 1])
def test_rows_at_odd_places(dtype, length, start):
    def function(x):
        x = x[:, start:]
        return (torch.softmax(x, -1), x.logsumexp(-1), x.abs().sum(-1), x.amax(-1), x.argmax(-1),
                F.layer_norm(x, x.shape[-1:]))  # fmt: skip

    torch.manual_seed(0)
    x = torch.randn(37, length + start).to(dtype)
    x[3, start] = 20  # the first element and the last one count
    x[4, -1] = 20
    x[5, start] = float("nan")
    x[6, -1] = float("nan")
    tolerance = 2e-2 if dtype == torch.bfloat16 else 2e-5
    found, wanted = compiled(function)(x), function(x)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64])
@pytest.mark.parametrize("length", [64, 1024, 7168, 8192, 16384])
def test_places_of_extremes(dtype, length):
    torch.manual_seed(0)
    x = torch.randint(-50, 50, (65, length)).to(dtype)  # many ties
    x[1] = 3
    if dtype.is_floating_point:
        x[2] = -float("inf")
        x[3] = float("inf")
        x[4, length // 2 :] = float("nan")
        x[5, -1] = float("nan")
        x[6, length // 2] = float("nan")
        x[7] = -0.0
        x[7, 5] = 0.0
    result = compiled(lambda x: (x.argmax(-1), x.argmin(-1)))(x)
    numbers = torch.arange(length, device="cpu")

    def first(row, best):
        return int(numbers[row.isnan() if row.isnan().any() else row == best][0])

    for place, best in zip(result, (x.amax(-1), x.amin(-1))):
        wanted = [first(row, value) for row, value in zip(x.cpu(), best.cpu())]
        assert place.tolist() == wanted


def test_tuned_schedules_give_the_same():
    def function(x, y):
        return torch.softmax(x, -1), (x * y).sum(0), F.layer_norm(x + y, (2048,)), x.argmax(-1)

    x, y = torch.randn(1024, 2048), torch.randn(1024, 2048)
    run = torch.compile(function, backend="inkle", mode="max-autotune-no-cudagraphs")
    for found, wanted in zip(run(x, y), function(x, y)):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_scalars_of_the_cpu():
    run = compiled(lambda x, s: x * s + s)
    x = torch.randn(64)
    for value in (2.0, 3.0):
        scalar = torch.tensor(value, device="cpu")
        torch.testing.assert_close(run(x, scalar), x * scalar + scalar)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_keep_nan(dtype):
    layer = torch.nn.Linear(128, 64, dtype=dtype)
    x = torch.randn(16, 128, dtype=dtype)
    x[3, 5] = float("nan")
    x[4, 6] = float("inf")
    for activation in (F.relu, lambda y: F.gelu(y, approximate="tanh"), F.gelu):
        torch._dynamo.reset()
        with torch.no_grad():
            expected = activation(layer(x))
            result = compiled(lambda x: activation(layer(x)))(x)
        assert torch.equal(result.isnan(), expected.isnan())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [F.relu, F.gelu, None])
def test_convolutions(bias, activation):
    layer = torch.nn.Conv2d(16, 32, 3, padding=1, bias=bias, dtype=torch.bfloat16)
    layer = layer.to(memory_format=torch.channels_last)
    x = bf16(2, 16, 14, 14).to(memory_format=torch.channels_last)
    function = (lambda x: activation(layer(x))) if activation else layer
    with torch.no_grad():
        wanted, found = function(x), compiled(function)(x)
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions_with_a_bias(dtype, groups):
    layer = torch.nn.ConvTranspose2d(16, 32, 3, 2, output_padding=1, groups=groups, dtype=dtype)
    x = torch.randn(2, 16, 14, 14, dtype=dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    for function in (layer, lambda x: F.relu(layer(x))):
        with torch.no_grad():
            wanted, found = function(x), compiled(function)(x)
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def _many_convolutions():
    """Sixteen of sizes of their own."""
    layers = [torch.nn.Conv2d(8 * i, 8 * i + 8, 3, padding=1) for i in range(1, 17)]
    return torch.nn.Sequential(*layers).to(torch.bfloat16, memory_format=torch.channels_last)


def test_convolutions_are_searched_beside_recordings():
    # The search goes on after a compilation that failed, and no recording is the worse for it.
    model = _many_convolutions()
    x = bf16(4, 8, 28, 28).to(memory_format=torch.channels_last)
    options = {"strict": False, "fail_stage": "codegen"}
    failing = torch.compile(model, backend="inkle", options=options)
    y = torch.ones(1000)
    (y + 1).sum()
    torch.cuda.synchronize()
    with torch.no_grad():
        found = failing(x)
        for _ in range(50):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                z = y * 2
            graph.replay()
            assert z.sum().item() == 2000
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(model)(x), found, rtol=2e-2, atol=2e-2)


def test_convolutions_of_two_graphs_are_searched_at_once():
    models = [_many_convolutions() for _ in range(2)]
    x = bf16(3, 8, 30, 30).to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted = [model(x) for model in models]
        runs = [compiled(model) for model in models]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda run: torch.no_grad()(run)(x), runs))
        for w, f in zip(wanted, found):
            torch.testing.assert_close(f, w, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("columns", [4099, 4096, 4098])
def test_fused_gemms(columns):
    layer = torch.nn.Linear(64, columns, dtype=torch.bfloat16)
    x = bf16(2048, 64)
    with torch.no_grad():
        torch.testing.assert_close(compiled(layer)(x), layer(x), rtol=2e-2, atol=2e-2)


def _heads_last(*sizes):
    return bf16(sizes[0], sizes[2], sizes[1], sizes[3]).transpose(1, 2)


@pytest.mark.parametrize("backend", [None, 1, 2, 3])
@pytest.mark.parametrize("kind", ["plain", "causal", "masked", "grouped"])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_attention_by_each_kernel(backend, kind, mode, monkeypatch):
    monkeypatch.setattr(attention_backends, "choose", lambda *given: backend)
    mask = (torch.rand(2, 1, 256, 256) > 0.3) if kind == "masked" else None
    heads = 2 if kind == "grouped" else 8

    def function(q, k, v):
        y = F.scaled_dot_product_attention(q * 2, k, v, mask, is_causal=kind == "causal",
                                           enable_gqa=kind == "grouped")  # fmt: skip
        return y.transpose(1, 2).reshape(2, 256, 512) + 1

    run = torch.compile(function, backend="inkle", mode=mode)
    with torch.no_grad():
        for make in (bf16, _heads_last):
            q, k, v = make(2, 8, 256, 64), make(2, heads, 256, 64), make(2, heads, 256, 64)
            for _ in range(3):
                torch.testing.assert_close(run(q, k, v), function(q, k, v), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_attention_in_f32_of_queries_that_share_keys_is_one_kernel(is_causal, mode):
    def function(q, k, v):
        y = F.scaled_dot_product_attention(q * 2, k, v, is_causal=is_causal, enable_gqa=True)
        return y.transpose(1, 2).reshape(q.shape[0], -1, 512) + 1

    run = torch.compile(function, backend="inkle", mode=mode)
    for batch, length in [(2, 256), (3, 77), (16, 24)]:  # one size, then symbols
        q, k, v = (torch.randn(batch, heads, length, 64) for heads in (8, 2, 2))
        with torch.no_grad():
            run(q, k, v)
            with torch.profiler.profile() as profile:
                found = run(q, k, v)
        wanted = function(q.double(), k.double(), v.double())
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
        assert not any("attention_math" in event.name for event in profile.events())


def test_training():
    def make():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64),
                                   torch.nn.Linear(64, 8))  # fmt: skip

    wanted, found = make(), make()
    run = compiled(found)
    for _ in range(3):
        x = torch.randn(16, 32)
        wanted(x).square().sum().backward()
        run(x).square().sum().backward()
    for a, b in zip(found.parameters(), wanted.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype, digits", [(torch.bfloat16, 8), (torch.float16, 11)])
def test_gelu_of_every_narrow_number(dtype, digits):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16, device="cuda")
    x = bits.view(dtype)
    found = compiled(F.gelu)(x)
    exact = F.gelu(x.double())
    special = ~exact.isfinite()
    torch.testing.assert_close(found[special].double(), exact[special], equal_nan=True)
    x, found, exact = x[~special].double(), found[~special].double(), exact[~special]
    overflows = exact.abs() > torch.finfo(dtype).max
    error = (found - exact)[~overflows].abs()
    # Half a unit in the last place, subnormal ones included, and an error of 3e-7 in 1 + erf.
    bound = 1.01 * exact.abs() + torch.finfo(dtype).tiny
    bound = bound * 2.0**-digits + x.abs() * 3e-7
    assert bool((error <= bound[~overflows]).all())


# Sizes for which blocks turn tiles around, whole ones and not; those that are no multiple of an
# access are not transposed, nor are bytes.
_TRANSPOSED = {
    "whole": lambda: (lambda x, y: x.t() + y, bf16(4352, 4224), bf16(4224, 4352)),
    "tails": lambda: (lambda x, y: x.t() + y, bf16(4328, 4200), bf16(4200, 4328)),
    "no accesses": lambda: (lambda x, y: x.t() + y, bf16(4333, 4201), bf16(4201, 4333)),
    "one row": lambda: (lambda x, y: x.t() + y, bf16(1 << 20, 8), bf16(8, 1 << 20)),
    "f16": lambda: (lambda x, y: x.t() - y, bf16(4328, 4200).half(), bf16(4200, 4328).half()),
    "f32": lambda: (lambda x, y: x.t() * y, torch.randn(4324, 3012), torch.randn(3012, 4324)),
    "f64": lambda: (lambda x, y: x.t() * y, torch.randn(2050, 1026, dtype=torch.float64),
                    torch.randn(1026, 2050, dtype=torch.float64)),
    "bytes": lambda: (lambda x, y: x.t() + y, torch.randint(0, 100, (4352, 4224), dtype=torch.uint8),
                      torch.randint(0, 100, (4224, 4352), dtype=torch.uint8)),
    "integers": lambda: (lambda x, y: x.t() + y, torch.randint(0, 100, (4324, 3012)),
                         torch.randint(0, 100, (3012, 4324))),
    "copied": lambda: (lambda x: x.t().contiguous(), bf16(4328, 4200)),
    "narrow transposed": lambda: (lambda x, y: x.t() + y, bf16(4328, 4200), torch.randn(4200, 4328)),
    "wide transposed": lambda: (lambda x, y: x.t() + y, torch.randn(4328, 4200), bf16(4200, 4328)),
    "two": lambda: (lambda x, y, z: torch.maximum(x.t() + y, z.t()), bf16(4328, 4200),
                    bf16(4200, 4328), bf16(4328, 4200)),
    "three": lambda: (lambda x, y, z: x.t() + y.t() * z.t(), bf16(4328, 4200), bf16(4328, 4200),
                      bf16(4328, 4200)),
    "both ways": lambda: (lambda x: x.t() + x, bf16(4328, 4328)),
    "batch": lambda: (lambda x, y: x.transpose(1, 2) + y, bf16(40, 632, 1016), bf16(40, 1016, 632)),
    "moved": lambda: (lambda x, y: x.permute(2, 1, 3, 0) + y, bf16(1016, 6, 8, 632),
                      bf16(8, 6, 632, 1016)),
    "rows and columns": lambda: (lambda x, r, c: torch.relu(x.t() + r) * c, bf16(4328, 4200),
                                 bf16(4328), bf16(4200, 1)),
    "several results": lambda: (lambda x, y: (x.t() + y, x.t() > y), bf16(4328, 4200),
                                bf16(4200, 4328)),
    "looked up": lambda: (lambda x, y, i: x.t() + y[i], bf16(4328, 4200), bf16(100, 4328),
                          torch.randint(0, 100, (4200,))),
    "in place": lambda: (lambda x, y: (y * 1).add_(x.t()).mul_(2), bf16(4328, 4200),
                         bf16(4200, 4328)),
    "into an argument": lambda: (lambda x, y: y.add_(x.t()), bf16(4328, 4200), bf16(4200, 4328)),
}  # fmt: skip


@pytest.mark.parametrize("case", _TRANSPOSED)
@pytest.mark.parametrize("dynamic", [False, True])
def test_transposed_operands(case, dynamic):
    function, *arguments = _TRANSPOSED[case]()
    run = compiled(function, dynamic=dynamic)
    with torch.no_grad():
        wanted = function(*[a.clone() for a in arguments])
        found = run(*arguments)
    torch.testing.assert_close(found, wanted)
