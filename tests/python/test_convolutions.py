"""Convolutions of f16 and bf16 on processors whose library has them in f32 alone."""

import json
import os
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import json, sys
import torch, inkle

torch.manual_seed(0)
F = torch.nn.functional
dtype = getattr(torch, sys.argv[1])
x, w, b = torch.randn(2, 8, 12, 10), torch.randn(6, 8, 3, 3) / 8, torch.randn(6)
depthwise = torch.randn(8, 1, 3, 3) / 3
down = torch.randn(8, 6, 3, 3) / 8

cases = {
    "plain": lambda x, w, b, d, t: F.conv2d(x, w, b, padding=1).relu(),
    "strided": lambda x, w, b, d, t: F.conv2d(x, w, None, stride=2),
    "depthwise": lambda x, w, b, d, t: F.conv2d(x, d, None, padding=1, groups=8),
    "transposed": lambda x, w, b, d, t: F.conv_transpose2d(x, t, b, stride=2, output_padding=1),
    "normed": lambda x, w, b, d, t: F.batch_norm(F.conv2d(x, w, b), None, None, training=True),
    "two_readers": lambda x, w, b, d, t: F.conv2d(x, w, b) + F.conv2d(x, w * 2, b),
}
found = {}
for name, f in cases.items():
    def gradients(*given, f=f):
        given = [g.detach().requires_grad_() for g in given]
        result = f(*given)
        grads = torch.autograd.grad(result.float().square().sum(), given, allow_unused=True)
        return [result.detach(), *(g for g in grads if g is not None)]

    given = [g.to(dtype) for g in (x, w, b, depthwise, down)]
    reference = gradients(*(g.double() for g in given))
    eager = gradients(*given)
    inkle.reset()
    compiled = torch.compile(f, backend="inkle", options={"strict": True})
    got = gradients(*given, f=compiled)
    eps = torch.finfo(dtype).eps
    for r, e, g in zip(reference, eager, got, strict=True):
        assert g.dtype == e.dtype and g.stride() == e.stride(), (name, g.stride(), e.stride())
        scale = r.abs().max().item()
        worst, worst_eager = ((y.double() - r).abs().max().item() / scale / eps for y in (g, e))
        # Rounded once: half an eps of the largest, and what the rounded result adds to gradients.
        assert worst <= max(1.0, 1.5 * worst_eager), (name, worst, worst_eager)
    found[name] = [report.eager for report in inkle.reports()]
print(json.dumps(found))
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_convolutions_without_a_library_of_their_dtype(dtype):
    environment = dict(os.environ, ONEDNN_MAX_CPU_ISA="AVX2", INKLE_ISA="avx2")
    done = subprocess.run([sys.executable, "-c", PROGRAM, dtype], env=environment, check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for name, (forward, backward) in json.loads(done.stdout).items():
        assert not forward, f"{name} ran in eager: {forward}"
        if dtype == "bfloat16":  # gradients in f16 are eager's on every CPU
            assert not backward, f"the gradient of {name} ran in eager: {backward}"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_result_of_another_dtype_than_the_operands(dtype):
    """What rounds images that lie as the convolution leaves them is no part of the library's call."""
    torch.manual_seed(0)
    x, w = torch.randn(2, 8, 12, 10).to(memory_format=torch.channels_last), torch.randn(6, 8, 3, 3)

    def f(x, w):
        return torch.nn.functional.conv2d(x, w).to(dtype)

    torch._dynamo.reset()
    got = torch.compile(f, backend="inkle", options={"strict": True})(x, w)
    wanted = f(x, w)
    assert got.dtype == dtype and got.stride() == wanted.stride()
    torch.testing.assert_close(got, wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-3)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("channels", [2, 3, 7, 12])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_weights_of_single_places_by_steps(rank, channels, stride, channels_last):
    """oneDNN (2.6.3, and that of torch 2.15) writes beyond its memory there. Eager's are no measure."""
    torch.manual_seed(0)
    convolve = getattr(torch.nn.functional, f"conv{rank}d")
    x, w = torch.randn(2, channels, *[16, 8, 8][:rank]), torch.randn(20, channels, *[1] * rank)
    if channels_last and rank > 1:
        form = torch.channels_last if rank == 2 else torch.channels_last_3d
        x = x.to(memory_format=form)

    def f(x, w):
        y = convolve(x, w, stride=stride)
        return torch.nn.functional.batch_norm(y, None, None, training=True).sin()

    def gradient(f, x, w):
        w = w.detach().clone().requires_grad_()
        y = f(x, w)
        (y.double() * torch.linspace(-1, 1, y.numel()).double().view(y.shape)).sum().backward()
        return w.grad.double()

    torch._dynamo.reset()
    got = gradient(torch.compile(f, backend="inkle", options={"strict": True}), x, w)
    exact = gradient(f, x.double(), w.double())
    assert (got - exact).abs().max() <= 1e-5 * exact.abs().max()
