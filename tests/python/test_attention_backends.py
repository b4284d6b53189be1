"""The choice among torch's attention backends, with times made up; test_gpu*.py runs them."""

from __future__ import annotations

import operator
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import inkle
from inkle import attention, attention_backends

FLASH, EFFICIENT, CUDNN = 1, 2, 3


@pytest.fixture(autouse=True)
def fresh():
    attention_backends.forget()
    order = torch._C._get_sdp_priority_order()
    yield
    assert torch._C._get_sdp_priority_order() == order
    attention_backends.forget()


def call(length=1024, **keywords):
    shape = ((8, 12, length, 64), (length * 768, 64, 768, 1))
    given = {"device": 0, "dtype": torch.bfloat16, "query": shape, "key": shape, "value": shape,
             "mask": None, "mask_dtype": None, "dropout": 0.0, "is_causal": True, "scale": None,
             "has_gradient": False, "result": None}  # fmt: skip
    return attention_backends.Call(**{**given, **keywords})


def first() -> int:
    return torch._C._get_sdp_priority_order()[0]


def pick(times, can=(FLASH, EFFICIENT, CUDNN)):
    """With these times by backend; exceptions are thrown. ``can``: backends that take the call."""

    def choice() -> int:
        return next(b for b in (*torch._C._get_sdp_priority_order(), 0) if b in (*can, 0))

    def time(run) -> float:
        run()
        found = times[first()]
        if isinstance(found, Exception):
            raise found
        return found

    ran = []
    return attention_backends.fastest(call(), choice, lambda: ran.append(first()), time), ran


def test_the_fastest_is_chosen():
    assert pick({FLASH: 100, EFFICIENT: 120, CUDNN: 80}) == (CUDNN, [FLASH, EFFICIENT, CUDNN])


def test_torch_chooses_where_little_is_gained():
    assert pick({FLASH: 100, EFFICIENT: 120, CUDNN: 99})[0] is None
    assert pick({FLASH: 100, EFFICIENT: 120, CUDNN: 130})[0] is None


def test_kernels_that_cannot_take_the_call_are_not_timed():
    assert pick({FLASH: 100, EFFICIENT: 10}, can=(FLASH, EFFICIENT)) == (EFFICIENT, [FLASH, EFFICIENT])
    assert pick({}, can=()) == (None, [])


@pytest.mark.parametrize("error", [RuntimeError("no plan\nfor it"), torch.OutOfMemoryError("full")])
def test_kernels_that_fail_are_left_out(error):
    assert pick({FLASH: 100, EFFICIENT: 50, CUDNN: error})[0] == EFFICIENT
    assert pick({FLASH: error, EFFICIENT: 50, CUDNN: error})[0] == EFFICIENT
    assert pick({FLASH: error, EFFICIENT: error, CUDNN: error})[0] is None


def test_a_choice_is_remembered():
    asked = []

    def measure(c):
        asked.append(c)
        return CUDNN

    for _ in range(3):
        assert attention_backends.choose(call(), measure) == CUDNN
    assert attention_backends.choose(call(dropout=0.1), measure) == CUDNN
    assert asked == [call(), call(dropout=0.1)]
    assert attention_backends.known() == {call(): CUDNN, call(dropout=0.1): CUDNN}


def test_growing_sequences_stop_being_measured():
    asked = []
    for length in range(1024, 1056):
        attention_backends.choose(call(length), lambda c: asked.append(c))
    assert len(asked) == 8
    attention_backends.choose(call(64), lambda c: asked.append(c))  # too small
    assert len(asked) == 8
    attention_backends.choose(call(is_causal=False), lambda c: asked.append(c))  # another kind
    assert len(asked) == 9


@pytest.mark.parametrize("random", ["fast", "eager"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_calls_under_autograd(dropout, random, monkeypatch):
    """As on a GPU, but for the times."""
    asked = []

    def for_training(tensors, mask, *rest):
        asked.append(([attention_backends._hinted(t) for t in tensors], rest))

    monkeypatch.setattr(attention, "_trained", lambda node: None)
    monkeypatch.setattr(attention, "_has_choice", lambda node: True)
    monkeypatch.setattr(attention_backends, "for_training", for_training)
    torch._dynamo.reset()
    inkle.reset()
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 8, 16, requires_grad=True) for _ in range(3)]

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, None, dropout, True, scale=0.5)

    options = {"random": random}
    got = torch.compile(function, backend="inkle", fullgraph=True, options=options)(*inputs)
    is_left_alone = random == "eager" and dropout > 0
    if is_left_alone:
        assert asked == []
        return
    shape = ((2, 3, 8, 16), (384, 128, 16, 1))
    assert asked and all(a == ([shape] * 3, (dropout, True, 0.5, False)) for a in asked)
    if dropout == 0:
        wanted = function(*inputs)
        torch.testing.assert_close(got, wanted)
        seed = torch.randn_like(wanted)
        a, b = (torch.autograd.grad(y, inputs, seed) for y in (got, wanted))
        torch.testing.assert_close(a, b)


def test_states_of_efficient_attention_lie_on_the_processor():
    mode = torch._subclasses.FakeTensorMode()
    with mode:
        shape = torch.empty(2, 3, 8, 16, device="cuda")
        state = torch.empty((), dtype=torch.int64, device="cuda")
    graph = torch.fx.Graph()
    given = []
    for name in ("gradient", "q", "k", "v", "out", "rows", "seed", "offset"):
        given.append(graph.placeholder(name))
        given[-1].meta["val"] = state if name in ("seed", "offset") else shape
    gradient, q, k, v, out, rows, seed, offset = given
    forward = graph.call_function(
        torch.ops.aten._scaled_dot_product_efficient_attention.default, (q, k, v, None, True)
    )
    forward.meta["val"] = (shape, shape, state, state)
    parts = [graph.call_function(operator.getitem, (forward, i)) for i in range(4)]
    for i, part in enumerate(parts):
        part.meta["val"] = forward.meta["val"][i]
    backward = graph.call_function(
        torch.ops.aten._scaled_dot_product_efficient_attention_backward.default,
        (gradient, q, k, v, None, out, rows, seed, offset, 0.0, [True, True, True, False]),
    )
    backward.meta["val"] = (shape, shape, shape, None)
    graph.output((*parts, backward))
    attention.correct_devices(torch.fx.GraphModule({}, graph))
    kinds = [node.meta["val"].device.type for node in (*parts, *given)]
    assert kinds == ["cuda", "cuda", "cpu", "cpu"] + ["cuda"] * 6 + ["cpu", "cpu"]
    assert [t.device.type for t in forward.meta["val"]] == kinds[:4]


@pytest.mark.parametrize(
    "keywords, repeated",
    [({}, True), ({"dtype": torch.bfloat16}, False), ({"shared": 3}, False), ({"shared": 0}, False),
     ({"as_they_are": EFFICIENT}, False), ({"wide": 0}, False)],
)  # fmt: skip
def test_keys_that_queries_share_are_repeated_where_only_then_there_is_a_kernel(
    monkeypatch, keywords, repeated
):
    given = {"dtype": torch.float32, "shared": 2, "as_they_are": 0, "wide": EFFICIENT}
    given |= keywords

    def choice(q, k, v, mask, dropout, is_causal, scale, enable_gqa=False):
        assert enable_gqa or q.shape == k.shape == v.shape
        return given["as_they_are"] if enable_gqa else given["wide"]

    monkeypatch.setattr(torch, "_fused_sdp_choice", choice)
    q, k, v = (torch.zeros(2, heads, 5, 4, dtype=given["dtype"])
               for heads in (8, given["shared"], given["shared"]))  # fmt: skip
    assert attention_backends._wants_repeated(q, k, v, False, 0.5) == repeated


@pytest.mark.parametrize("masked", [False, True])
def test_keys_are_not_repeated_beside_a_mask(monkeypatch, masked):
    asked = []
    monkeypatch.setattr(attention_backends, "_wants_repeated", lambda *given: asked.append(given))
    q, k = torch.randn(2, 8, 5, 4), torch.randn(2, 2, 5, 4)
    mask = torch.ones(5, 5, dtype=torch.bool) if masked else None
    monkeypatch.setattr(attention_backends, "choose", lambda *given: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    found = attention_backends.attend(q, k, k, mask, False, 0.5, (160, 20, 4, 1))
    wanted = F.scaled_dot_product_attention(q, k, k, mask, scale=0.5, enable_gqa=True)
    torch.testing.assert_close(found, wanted)
    assert bool(asked) == (not masked)


# Of a process that has chosen no kernel before.
FIRST = """
import sys, torch
from inkle import attention_backends
q = torch.randn(1, 2, 64, 64, dtype=torch.float16, device="cuda")
with attention_backends.preferring(int(sys.argv[1])):
    print(torch._fused_sdp_choice(q, q, q, None, 0.0, True))
within = torch._C._get_sdp_priority_order()
torch._fused_sdp_choice(q, q, q)
print(torch._C._get_sdp_priority_order() == within)
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("backend", [FLASH, EFFICIENT])
def test_the_first_choice_of_a_process(backend):
    ran = subprocess.run([sys.executable, "-c", FIRST, str(backend)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(backend), "True"], ran.stderr
