"""Tensors are read the short way as the long way reads them, whatever has become of them."""

from __future__ import annotations

import pytest
import torch

from checks import randn
from inkle import _inkle

pytestmark = pytest.mark.usefixtures("device")


class Tagged(torch.Tensor):
    pass


def given(tensor):
    """`tensor` with other data, as optimizers and loaders do it."""
    tensor.data = randn(7, 2).t()
    return tensor


def resized(tensor):
    return tensor.resize_(3, 5, 2)


def moved(tensor):
    tensor.set_(randn(4, 4)[1:, 1:])
    return tensor


TENSORS = {
    "plain": lambda: randn(3, 4),
    "rank 0": lambda: torch.tensor(3),
    "no elements": lambda: randn(0, 5),
    "a view": lambda: randn(6, 8)[1:5:2, 3:],
    "transposed": lambda: randn(3, 4, 5).permute(2, 0, 1),
    "expanded": lambda: randn(1, 4).expand(3, 4),
    "of rank 7": lambda: randn(2, 1, 2, 1, 3, 1, 2),
    "parameter": lambda: torch.nn.Parameter(randn(3, 4)),
    "of a subclass": lambda: randn(3, 4).as_subclass(Tagged),
    "given other data": lambda: given(torch.nn.Parameter(randn(3, 4))),
    "resized": lambda: resized(randn(3, 4)),
    "set": lambda: moved(randn(3, 4)),
    "a result with a history": lambda: randn(3, 4, requires_grad=True) * 2,
    **{str(dtype): lambda dtype=dtype: torch.zeros(3, 4).to(dtype) for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
        torch.uint32, torch.float16, torch.bfloat16, torch.float64, torch.complex64,
        torch.float8_e4m3fn, torch.float8_e5m2,
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_both_ways_read_the_same(name):
    _inkle.read_tensor(TENSORS[name]())  # the first of a dtype goes the long way and is learned from
    tensor = TENSORS[name]()
    found, long = _inkle.read_tensor(tensor), _inkle.read_tensor_by_exchange(tensor)
    assert _inkle.read_tensor_directly(tensor) == (None if name == "of a subclass" else long)
    assert found == long
    address, _, kind, index, sizes, strides = found
    assert address == tensor.data_ptr()
    assert (kind == 1, index) == (tensor.is_cuda, max(tensor.get_device(), 0))
    assert (tuple(sizes), tuple(strides)) == (tuple(tensor.shape), tensor.stride())


def test_a_dtype_is_learned_from_what_it_is():
    """Dtypes of one size, in turns."""
    for _ in range(3):
        for dtype, name in ((torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.int16, "i16")):
            assert _inkle.read_tensor(torch.zeros(3, dtype=dtype))[1] == name


def test_tensors_without_strides_are_refused():
    sparse = torch.eye(3).to_sparse()
    assert _inkle.read_tensor(torch.eye(3)) and _inkle.read_tensor_directly(sparse) is None
    with pytest.raises((RuntimeError, BufferError)):
        _inkle.read_tensor(sparse)
