"""Programs with calls to eager in AOTAutograd's cache: the same bits cold and warm."""
import numpy
import pytest
import torch

from test_cache import cache, pytestmark  # noqa: F401: a fixture, and when to skip

from inkle import aot_cache

needs_cache = pytest.mark.skipif(not aot_cache.HAS_SHORT_KEYS, reason="AOTAutograd's cache is off with this torch")
pytestmark = [pytestmark, needs_cache]  # noqa: F811

COUNTERS = """
from torch._dynamo.utils import counters
print(dict(sorted((k.removeprefix("autograd_cache_"), v) for k, v in counters["aot_autograd"].items())),
      sum("cache" not in dict(r.stages) for r in inkle.reports()),
      sorted({op for r in inkle.reports() for op, _, _ in r.eager}), file=sys.stderr)
"""

OPS = """
import sys, torch, inkle

@torch.library.custom_op("inkletest::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float, name: str) -> torch.Tensor:
    return x * by

@scaled.register_fake
def _(x, by, name):
    return torch.empty_like(x)

if sys.argv[1] != "without":
    @torch.library.custom_op("inkletest::scaled_back", mutates_args=())
    def scaled_back(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    @scaled_back.register_fake
    def _(x, by):
        return torch.empty_like(x)

def backward(ctx, grad):
    return (grad * 0.75 if sys.argv[1] == "without" else scaled_back(grad, 0.75)), None, None

scaled.register_autograd(backward, setup_context=lambda ctx, inputs, output: None)

def bits(*tensors):
    print(*(t.detach().numpy().tobytes().hex() for t in tensors))

torch.manual_seed(0)
"""

STEP = OPS + """
def model(x, w):
    y = scaled(torch.tanh(x @ w), 0.75, "by name")
    values, order = torch.sort(y, dim=1)
    heads = values.view(1, 2, -1, 4)
    mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).sin().reshape(values.shape)
    return mixed + torch.linalg.qr(y[:6].T @ y[:6] + torch.eye(8))[1].sum(), order, torch.randperm(3000).sort()[0][-1]

compiled = torch.compile(model, backend="inkle", dynamic=sys.argv[2] == "dynamic", fullgraph=True)
w = torch.randn(8, 8, requires_grad=True)
for rows in (6, 9):
    x = torch.arange(rows * 8.0).view(rows, 8).sin().requires_grad_()
    out, order, last = compiled(x, w)
    out.square().sum().backward()
    bits(out, order, last, x.grad, w.grad)
with torch.no_grad():
    bits(*compiled(x, w))
"""


def states(done):
    text = done.stderr.splitlines()[-1]
    counts, rest = text[: text.index("}") + 1], text[text.index("}") + 1 :]
    made, eager = rest.strip().split(" ", 1)
    return eval(counts), int(made), eval(eager)  # noqa: S307


@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_calls_to_eager_are_kept(cache, way):  # noqa: F811
    cold, warm = (cache.python(STEP + COUNTERS, "with", way) for _ in range(2))
    assert warm.stdout == cold.stdout
    counts, _, eager = states(cold)
    assert {"inkletest::scaled", "inkletest::scaled_back", "aten::sort", "inkle::ranks"} <= set(eager)
    again, made, same = states(warm)
    assert again == {"hit": counts["saved"]} and made == 0 and same == eager


def test_an_op_that_is_gone_is_a_miss(cache):  # noqa: F811
    cold = cache.python(STEP + COUNTERS, "with", "static")
    other = cache.python(STEP + COUNTERS, "without", "static")
    assert other.stdout == cold.stdout
    counts, made, eager = states(other)
    # The graphs of steps call it, the one without gradients does not.
    assert counts == {"hit": 1, "miss": 2, "saved": 2} and made > 0
    assert "inkletest::scaled_back" not in eager
    assert "warning" not in other.stderr.lower() and "inkle: " not in other.stderr
    # What it calls is there again.
    assert cache.python(STEP + COUNTERS, "with", "static").stdout == cold.stdout


FAILS = """
from inkle import aot_cache
restored = []
restore = aot_cache.StoredProgram.post_compile
def post_compile(self, *given):
    restore(self, *given)
    self.__call__.fails = True
    restored.append(self)
aot_cache.StoredProgram.post_compile = post_compile
"""


def test_a_restored_program_falls_back_with_its_calls(cache):  # noqa: F811
    want = cache.python(STEP, "with", "static").stdout.split()
    failed = cache.python(STEP.replace("torch.manual_seed(0)", "torch.manual_seed(0)" + FAILS, 1)
                          + "print(len(restored), file=sys.stderr)", "with", "static")
    for number, (a, b) in enumerate(zip(want, failed.stdout.split(), strict=True)):
        if a != b:
            a, b = (numpy.frombuffer(bytes.fromhex(text), "f4") for text in (a, b))
            # The gradient of QR cancels: errors are those of its largest terms.
            numpy.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * abs(b).max(), err_msg=str(number))
    assert "a call runs in eager" in failed.stderr and failed.stderr.splitlines()[-1] == "5"


TRANSFORMER = """
import sys, torch, inkle

def bits(*tensors):
    print(*(t.detach().numpy().tobytes().hex() for t in tensors))

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
head = torch.nn.Linear(16, 5)

def step(x, labels):
    return torch.nn.functional.cross_entropy(head(layer(x)).flatten(0, 1), labels)

compiled = torch.compile(step, backend="inkle")
x = torch.randn(2, 7, 16, requires_grad=True)
loss = compiled(x, torch.arange(14) % 5)
loss.backward()
bits(loss, x.grad, head.weight.grad, layer.linear1.weight.grad)
"""


def test_attention_and_losses_are_kept(cache):  # noqa: F811
    cold, warm = (cache.python(TRANSFORMER + COUNTERS) for _ in range(2))
    assert warm.stdout == cold.stdout
    assert states(warm)[:2] == ({"hit": 1}, 0)


def test_what_cannot_be_pickled_is_not_kept(cache):  # noqa: F811
    text = """
import sys, torch, inkle

def branch(x):
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)) * 2

compiled = torch.compile(branch, backend="inkle", fullgraph=True)
with torch.no_grad():
    print(compiled(torch.arange(6.0)), compiled(-torch.arange(6.0)))
"""
    cold, warm = (cache.python(text + COUNTERS) for _ in range(2))
    assert warm.stdout == cold.stdout
    counts, _, eager = states(warm)
    assert eager == ["higher_order::cond"] and "saved" not in counts and "hit" not in counts


def test_calls_are_data():
    import pickle

    from inkle.eager_calls import OPERAND, MissingOp, OpCall, Results, find_op, name_of_op

    add = torch.ops.aten.add.Tensor
    assert find_op(name_of_op(add)) is add
    call = pickle.loads(pickle.dumps(OpCall(add, [OPERAND, OPERAND, OPERAND], Results())))
    call.resolve()
    x = torch.arange(3.0)
    torch.testing.assert_close(call(x, x, 1)[0], x + x)
    for name in ("inkletest::none.default", "aten::add.no_such"):
        with pytest.raises(MissingOp, match="is not registered"):
            find_op(name)


TOLD = """
import sys, torch, inkle
torch.compile(torch.sin, backend="inkle", mode="max-autotune")(torch.ones(3, requires_grad=sys.argv[1] == "train"))
"""


@pytest.mark.parametrize("way", ["train", "infer"])
def test_each_process_is_told_of_options_without_effect(cache, way):  # noqa: F811
    cold, warm = (cache.python(TOLD + COUNTERS, way) for _ in range(2))
    assert states(cold)[1] > 0 and states(warm)[1] == 0
    for done in (cold, warm):
        assert done.stderr.count("mode 'max-autotune' (Inkle's 'graphs', 'tune') has no effect") == 1
