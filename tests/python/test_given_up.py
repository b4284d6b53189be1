"""Nodes that a stage below the importer does not support: all are named in one error, and run in eager
in a second attempt, the last."""

import torch
from torch.nn.functional import scaled_dot_product_attention

import inkle


class _Twice(torch.nn.Module):
    """Attention of f64, for which no kernel is written."""

    def forward(self, q):
        first = scaled_dot_product_attention(q, q, q)
        second = scaled_dot_product_attention(torch.tanh(first), q, q, is_causal=True)
        return second * 2


def _compiled(model):
    torch._dynamo.reset()
    inkle.reset()
    return torch.compile(model, backend="inkle")


def test_all_nodes_are_left_to_eager_at_once():
    q = torch.randn(1, 2, 8, 16, dtype=torch.float64)
    model = _Twice().eval()
    with torch.no_grad():
        torch.testing.assert_close(_compiled(model)(q), model(q))
    (report,) = inkle.reports()
    assert report.compiled
    (given_up,) = report.given_up
    assert len(given_up.nodes) == 2 and given_up.seconds > 0
    for op, source, why in given_up.nodes:
        assert "attention" in op
        assert "test_given_up.py:" in source
        assert "f64" in why
    assert sorted(s for _, s, _ in report.eager) == sorted(s for _, s, _ in given_up.nodes)
    assert [s for s, _ in report.stages].count("retry") == 1
    assert report.seconds >= given_up.seconds


def test_a_graph_that_compiles_at_once_gives_nothing_up():
    x = torch.randn(8)
    with torch.no_grad():
        _compiled(torch.nn.Tanh())(x)
    assert inkle.reports()[-1].given_up == []


def test_both_halves_of_a_training_graph():
    q = torch.randn(1, 2, 8, 16, dtype=torch.float64, requires_grad=True)
    model = _Twice()
    _compiled(model)(q).sum().backward()
    found = q.grad.clone()
    q.grad = None
    model(q).sum().backward()
    torch.testing.assert_close(found, q.grad)
    assert all(len(r.given_up) <= 1 for r in inkle.reports())
