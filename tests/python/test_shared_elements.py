"""Views whose elements share memory, and strides that lead beyond the elements of a view."""

from __future__ import annotations

import pytest
import torch

import inkle


SHARED_WRITES = {
    "a row": lambda x: torch.select_scatter(x.unfold(1, 4, 2), -torch.ones(3, 4), 1, 1),
    "rows": lambda x: torch.slice_scatter(x.unfold(1, 4, 2), -torch.ones(3, 1, 4), 1, 1, 2),
    "a diagonal": lambda x: torch.diagonal_scatter(x.unfold(1, 4, 2), -torch.ones(3, 3), 0, 1, 2),
    "a row of what is computed": lambda x: torch.select_scatter((x * 2).unfold(1, 4, 2), -torch.ones(3, 4), 1, 1),
}


@pytest.mark.parametrize("name", SHARED_WRITES)
def test_writes_to_elements_that_share_memory(name: str) -> None:
    """Eager keeps the strides, so that what is written stands at each place that shares the memory."""
    torch._dynamo.reset()
    inkle.reset()
    x = torch.arange(27.0).view(3, 9)
    expected = SHARED_WRITES[name](x)
    result = torch.compile(SHARED_WRITES[name], backend="inkle")(x)
    assert torch.equal(result, expected) and result.stride() == expected.stride()
    assert any("self share memory" in reason for _, _, reason in inkle.reports()[0].eager)


def test_a_write_to_a_copy_whose_elements_share_memory() -> None:
    """It is no write in place, though nobody reads the copy any more."""
    torch._dynamo.reset()

    def write(x: torch.Tensor) -> torch.Tensor:
        shared = x.as_strided((2, 2), (1, 1))
        copied = torch.slice_scatter(shared, shared[::2] + 1, 0, 0, None, 2)
        return copied.index_put((torch.tensor([0, 0]),), copied[:1], accumulate=True)

    x = torch.arange(6.0, dtype=torch.float64) + 3
    assert torch.equal(torch.compile(write, backend="inkle")(x), write(x))


def test_a_step_by_which_elements_come_to_share_memory() -> None:
    """The strides are symbolic: a guard tells both cases apart."""
    torch._dynamo.reset()
    inkle.reset()

    def write(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.select_scatter(x.unfold(1, 4, n), -torch.ones(3, 4), 1, 1)

    compiled = torch.compile(write, backend="inkle", dynamic=True)
    x = torch.arange(51.0).view(3, 17)
    for n in (4, 5, 2, 3, 6):
        assert torch.equal(compiled(x, n), write(x, n)), n


@pytest.mark.parametrize("counts", [(5, 6, 2, 0, 1), (1, 5), (0, 6, 2)])
def test_strides_beyond_the_rows_of_a_view_where_sizes_vary(counts: tuple[int, ...]) -> None:
    """A guard tells whether they lead to the view's own elements; else eager has the memory."""
    torch._dynamo.reset()
    inkle.reset()

    def read(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y[:n].as_strided((3, 3), (1, 5)) + 1, y.sum()

    compiled = torch.compile(read, backend="inkle", dynamic=True)
    x = torch.arange(36.0).view(6, 6)
    for n in counts:
        assert all(torch.equal(got, want) for got, want in zip(compiled(x, n), read(x, n))), n
    assert inkle.reports()[0].compiled == (counts[0] > 2)


@pytest.mark.parametrize("offset", [None, 1])
def test_strides_beyond_an_element_whose_place_varies(offset: int | None) -> None:
    """Where it lies is symbolic, its sizes are not."""
    torch._dynamo.reset()
    inkle.reset()

    def read(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.select(0, n % x.shape[0]).as_strided((2, 2), (1, 1), offset) * 1

    compiled = torch.compile(read, backend="inkle", dynamic=True)
    x = torch.arange(40.0)[:30]
    for n in (4, 7, 1):
        assert torch.equal(compiled(x, n), read(x, n)), n
    assert not any(r.fault for r in inkle.reports())
