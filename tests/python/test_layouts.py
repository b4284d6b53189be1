"""Library calls get the layouts they are fast in, whatever layout their results must have."""

import re

import pytest
import torch

import inkle  # noqa: F401: registers the backend

pytestmark = pytest.mark.usefixtures("device")


def plan_of(f, *args):
    """Compiles and runs `f`; its plan's text, after comparing value and strides with eager."""
    texts = {}
    torch._dynamo.reset()
    compiled = torch.compile(
        f, backend="inkle", options={"strict": True, "dump": lambda s, t: texts.__setitem__(s, t)}
    )
    with torch.no_grad():
        want, got = f(*args), compiled(*args)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return texts["plan"]


def results(plan, call):
    """Strides of the results of all calls of that name; "" where dense and row-major."""
    found = re.findall(rf"call {call} .*? -> \w+\[([^\]]*)\]", plan)
    assert found
    return [x.split("; ")[1] if "; " in x else "" for x in found]


@pytest.mark.cpu_only  # on a GPU f32 stays as eager has it
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("groups", [1, 8, 64])
def test_convolution_into_rows_of_pixels(relu, groups):
    x, w = torch.randn(2, 64, 12, 12), torch.randn(64, 64 // groups, 3, 3)

    def f(x, w):
        y = torch.conv2d(x, w, padding=1, groups=groups)
        return y.relu() if relu else y

    for strides in results(plan_of(f, x, w), "convolution"):
        assert strides.split(",")[1] == "1"


def test_product_returned_transposed():
    a, b = torch.randn(48, 32), torch.randn(32, 40)
    for f in (lambda a, b: (a @ b).relu().t(), lambda a, b: (a @ b).t().contiguous() * 2):
        assert results(plan_of(f, a, b), "matmul") == [""]


@pytest.mark.cpu_only
def test_residual_stream_stays_channels_last():
    """Blocks of ConvNeXt: products over channels between convolutions, no copy of the image."""
    conv = torch.randn(32, 1, 3, 3) / 3
    up, down = torch.randn(32, 64) / 6, torch.randn(64, 32) / 8

    def f(x):
        x = x.to(memory_format=torch.channels_last)
        for _ in range(2):
            y = torch.conv2d(x, conv, padding=1, groups=32).permute(0, 2, 3, 1)
            x = x + torch.nn.functional.gelu(y @ up).matmul(down).permute(0, 3, 1, 2)
        return torch.conv2d(x, conv, padding=1, groups=32)

    plan = plan_of(f, torch.randn(1, 32, 10, 10))
    assert all(strides == "" for strides in results(plan, "matmul"))
    assert len(re.findall("launch", plan)) <= 2


def test_residual_that_is_looked_up():
    """The rows of an embedding, added to a product, are no operand that a library can address."""
    table, w, ids = torch.randn(20, 32), torch.randn(32, 32) / 6, torch.randint(0, 20, (2, 5))

    def f(ids):
        x = torch.nn.functional.embedding(ids, table)
        return x + (x * 2) @ w

    assert results(plan_of(f, ids), "matmul") == [""]


def test_long_sums_of_sequences_are_taken_apart():
    """Layers of a speech encoder against f64: what counts is the order of 1536 additions."""
    torch.manual_seed(0)
    weights = [torch.randn(512, 512, 3) / 512**0.5 for _ in range(4)]

    def f(x, weights):
        for w in weights:
            x = torch.nn.functional.gelu(torch.conv1d(x, w, stride=2))
        return x

    x = torch.randn(1, 512, 300)
    exact = f(x.double(), [w.double() for w in weights])
    scale = exact.abs().max()

    def error(y):
        return ((y.double() - exact).pow(2).mean().sqrt() / scale).item()

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="inkle", options={"strict": True})
    with torch.no_grad():
        # 2.4 times as sums of 1536 products, 1.75 as sums of 384.
        assert error(compiled(x, weights)) <= 2.1 * error(f(x, weights))
