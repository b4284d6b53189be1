"""Small variants of the eight models of docs/benchmarks.md through torch.compile, against eager."""

import dataclasses
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import common  # noqa: E402
import eight  # noqa: E402

import inkle  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    inkle.reset()
    yield
    torch._dynamo.reset()


def make(name, dtype):
    """Made on the CPU, wherever it runs: the same numbers."""
    device = torch.get_default_device()
    with torch.device("cpu"):
        case = eight.make(name, small=True).to(DTYPES[dtype])
    inputs = tuple(x.to(device) for x in case.inputs)
    return dataclasses.replace(case, model=case.model.to(device), inputs=inputs)


def disturbed(case, seed):
    """The inputs of a case with other values: token numbers and masks stay what they are."""
    generator = torch.Generator("cpu").manual_seed(seed)

    def one(x):
        if x.is_floating_point():
            return torch.randn(x.shape, generator=generator, device="cpu").to(x)
        return x[:, torch.randperm(x.shape[1], generator=generator, device="cpu").to(x.device)]

    return tuple(one(x) for x in case.inputs)


def check(case, compiled, dtype, inputs):
    """Pools several inputs, since the rule compares two RMS errors of few numbers."""
    doubled = case.to(torch.float64)
    found = common.Accuracy(common.FLOORS[dtype])
    with torch.no_grad():
        for given in inputs:
            wide = tuple(x.double() if x.is_floating_point() else x for x in given)
            reference = doubled.model(*wide)
            eager, got = case.model(*given), compiled(*given)
            assert common.layout_difference(got, eager) == ""
            found.add(got, eager, reference)
    assert found.ok, str(found)


def assert_all_compiled():
    for report in inkle.reports():
        assert report.compiled, report.reason
    assert inkle.reports()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", eight.names())
def test_static(name, dtype):
    case = make(name, dtype)
    compiled = torch.compile(case.model, backend="inkle", dynamic=False, options={"strict": True})
    check(case, compiled, DTYPES[dtype], [disturbed(case, seed) for seed in range(4)])
    assert_all_compiled()
    assert len(inkle.reports()) == 1


def longer(case):
    """Inputs with another batch (images) or another length (tokens)."""

    def one(x):
        return torch.cat([x, x.roll(1, -1)], dim=0 if x.is_floating_point() else 1)[..., :24]

    if case.inputs[0].is_floating_point():
        return tuple(torch.cat([x, x.roll(1, -1), x.roll(2, -1)]) for x in case.inputs)
    return tuple(one(x) for x in case.inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", eight.names())
def test_dynamic(name, dtype):
    case = make(name, dtype)
    compiled = torch.compile(case.model, backend="inkle", dynamic=True, options={"strict": True})
    inputs = [disturbed(case, 0), disturbed(case, 1), longer(case)]
    check(case, compiled, DTYPES[dtype], inputs)
    assert_all_compiled()
