"""Records the graphs that models become under torch.compile, as the compiler gets them.

A weight is recorded as the range of the uniform numbers that have its mean and its deviation.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Any, Callable, Iterator

from corpus_parts.cases import ROOT, Case
from corpus_parts.texts import input_types

for folder in ("python", "bench"):
    sys.path.insert(0, str(ROOT / folder))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import inkle.backend  # noqa: E402
import inkle.machine  # noqa: E402
import inkle.pair  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

F32, BF16 = torch.float32, torch.bfloat16
FAMILIES = 40
_DTYPES = {"f32": F32, "bf16": BF16}


def plain(text: str) -> str:
    """A graph's text without the user's lines."""
    return "".join(re.sub(r"\s+# [^\"]*$", "", line) + "\n" for line in text.splitlines())


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def range_of(tensor: torch.Tensor) -> tuple[float, float]:
    """Of random numbers that are like the tensor's."""
    if tensor.numel() == 0:
        return 0.0, 0.0
    tensor = tensor.detach()
    low, high = tensor.min().item(), tensor.max().item()
    if not tensor.is_floating_point():
        return float(low), float(high)
    values = tensor.double()
    values = values[values.isfinite()]
    if values.numel() < 2:
        return _rounded(low) if low == low else 0.0, _rounded(high) if high == high else 0.0
    mean, width = values.mean().item(), 3**0.5 * values.std().item()
    least, most = values.min().item(), values.max().item()
    return _rounded(max(least, mean - width)), _rounded(min(most, mean + width))


class Recorded(Exception):
    """Ends a call whose graphs are recorded and not run."""


class _Watched:
    """A compiler that keeps the text of the graphs that it is given."""

    def __init__(self, compiler: Any, recorder: Recorder):
        self._compiler, self._recorder = compiler, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler, name)

    def _texts(self, native: Any, run: Callable[[], Any]) -> tuple[Any, list[str]]:
        texts: list[str] = []
        native.dump = lambda stage, text: texts.append(text) if stage == "graph" else None
        try:
            return run(), texts
        finally:
            native.dump = None

    def compile(self, importer: Any, native: Any, *more: Any) -> Any:
        made, texts = self._texts(native, lambda: self._compiler.compile(importer, native, *more))
        self._recorder.keep(made[0], texts[0], native)
        return made

    def compile_halves(self, cut: Any, native: Any, *more: Any) -> Any:
        both, texts = self._texts(native, lambda: self._compiler.compile_halves(cut, native, *more))
        for made, text in zip(both, texts, strict=True):
            self._recorder.keep(made[0], text, native)
        return both


class Recorder:
    """In a `with` block, the graphs that are compiled and called, as cases."""

    def __init__(self, pattern: str = "") -> None:
        self.cases: list[Case] = []
        self._pattern = pattern
        self._prefix, self._options = "", ()
        self._texts: dict[int, tuple[Any, str, tuple[str, ...]]] = {}
        self._compile_graph = inkle.backend.compile_graph
        self.first = 0

    def __enter__(self) -> Recorder:
        def watched(gpu: int | None) -> _Watched:
            return _Watched(inkle.machine.get_compiler(gpu), self)

        inkle.backend.get_compiler = inkle.pair.get_compiler = watched
        inkle.backend.compile_graph = self._compile
        return self

    def __exit__(self, *_: object) -> None:
        inkle.backend.get_compiler = inkle.pair.get_compiler = inkle.machine.get_compiler
        inkle.backend.compile_graph = self._compile_graph

    def keep(self, compiled: Any, text: str, native: Any) -> None:
        options = tuple(o for o in ("training", "deterministic") if getattr(native, o))
        self._texts[id(compiled)] = compiled, plain(text), options

    def wants(self, prefix: str) -> bool:
        """Whether cases of this name are asked for."""
        return re.search(self._pattern, prefix) is not None

    def begin(self, prefix: str, options: tuple[str, ...] = ()) -> None:
        torch._dynamo.reset()
        inkle.reset()
        self._texts.clear()
        self._prefix, self._options = prefix, options
        self.first = len(self.cases)

    def _compile(self, *given: Any, **named: Any) -> Any:
        compiled = self._compile_graph(*given, **named)
        if id(compiled) not in self._texts:
            raise RuntimeError(f"{self._prefix}: a graph runs in eager")
        was_called = False

        def run(arguments: list[Any]) -> Any:
            nonlocal was_called
            if "no-run" in self._options:
                self._add_all()
                raise Recorded
            if not was_called:
                was_called = True
                self._add(compiled, arguments)
            return compiled(arguments)

        run._boxed_call = True
        return run

    def _add(self, compiled: Any, arguments: list[Any]) -> None:
        _, text, options = self._texts[id(compiled)]
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        if len(tensors) != len(input_types(text)):
            raise RuntimeError(f"{self._prefix}: {len(tensors)} tensors for {len(input_types(text))} inputs")
        self._append(text, options, [range_of(t) for t in tensors])

    def _add_all(self) -> None:
        """A forward and its backward are compiled before either is called."""
        for _, text, options in self._texts.values():
            self._append(text, options, [(0.0, 0.0)] * len(input_types(text)))

    def _append(self, text: str, options: tuple[str, ...], ranges: list[tuple[float, float]]) -> None:
        number = len(self.cases) - self.first
        name = self._prefix if number == 0 else f"{self._prefix}.{number}"
        self.cases.append(Case(name, text, (*options, *self._options), ranges))


def record_eight(recorder: Recorder, small: bool) -> None:
    import eight

    group = "small" if small else "models"
    for name in eight.names():
        case = eight.make(name, small)
        for dtype_name, dtype in _DTYPES.items():
            if not recorder.wants(prefix := f"{group}/{name}/{dtype_name}"):
                continue
            made = case if dtype == F32 else case.to(dtype)
            recorder.begin(prefix)
            with torch.no_grad():
                torch.compile(made.model, backend="inkle")(*made.inputs)
            print(recorder.cases[-1].name, file=sys.stderr)


def record_families(recorder: Recorder) -> None:
    """Inference in f32 of families that `bench/families.py --count 40` picks."""
    import zoo

    for name in zoo.pick(0, FAMILIES):
        if not recorder.wants(prefix := f"families/{name.replace('/', '-')}"):
            continue
        built = zoo.build(name)
        recorder.begin(prefix)
        with torch.no_grad():
            built.call(torch.compile(built.model, backend="inkle", dynamic=False), built.inputs(0))
        print(f"{prefix}: {len(recorder.cases) - recorder.first} graphs", file=sys.stderr)


def _decompose_attention(model: torch.nn.Module) -> None:
    """As matrix products and a softmax."""
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False


def record_training(recorder: Recorder) -> None:
    """Forward, backward and AdamW of the models of bench/training.py; those with attention also with
    it decomposed, which has kernels for every target: our own partition would fuse it again."""
    import training

    for name, make in training.MODELS.items():
        for kind in ("", "-decomposed") if name != "resnet50" else ("",):
            for dtype_name, dtype in _DTYPES.items():
                if not recorder.wants(prefix := f"training/{name}{kind}/{dtype_name}"):
                    continue
                torch.manual_seed(0)
                _, model, loss_of = make()
                if kind:
                    _decompose_attention(model)
                model = model.to(dtype).train()
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
                recorder.begin(prefix)
                partition = {"partition": "default"} if kind else {}
                loss_of(_compiled(model, dtype, partition)).backward()
                torch.compile(optimizer.step, backend="inkle")()
                print(recorder.cases[-1].name, file=sys.stderr)


def _compiled(model: torch.nn.Module, dtype: torch.dtype, options: dict[str, str]) -> Callable[..., Any]:
    """Takes images of f32."""
    run = torch.compile(model, backend="inkle", options=options)

    def call(*images: torch.Tensor, **named: torch.Tensor) -> Any:
        return run(*(i.to(dtype) for i in images), **named)

    return call


# --- Classes of kernels ---------------------------------------------------------------------------

Made = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def _random(*sizes: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(*sizes).to(dtype)


def _kinds(dtype: torch.dtype, n: int, m: int) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Each kind of kernel over n rows of m columns."""
    x, y, g, b = _random(n, m, dtype=dtype), _random(n, m, dtype=dtype), _random(m), _random(m)
    g, b = g.to(dtype), b.to(dtype)
    rows = torch.randint(0, n, (n,))
    yield "pointwise", lambda x, y: F.gelu(x + y) * x, (x, y)
    yield "pointwise-bias", lambda x, b: F.silu(x + b), (x, b)
    yield "transpose", lambda x, y: x.t() + y, (_random(m, n, dtype=dtype), y)
    yield "softmax", lambda x: F.softmax(x, -1), (x,)
    yield "log-softmax", lambda x: F.log_softmax(x, -1), (x,)
    yield "softmax-columns", lambda x: F.softmax(x, 0), (x,)
    yield "layer-norm", lambda x, g, b: F.layer_norm(x, (m,), g, b), (x, g, b)
    yield "layer-norm-residual", lambda x, y, g, b: F.layer_norm(x + y, (m,), g, b), (x, y, g, b)
    yield "rms-norm", lambda x, g: F.rms_norm(x, (m,), g, 1e-6), (x, g)
    yield "sum-all", lambda x: x.sum(), (x,)
    yield "sum-rows", lambda x: x.sum(-1), (x,)
    yield "sum-columns", lambda x: x.sum(0), (x,)
    yield "mean-var", lambda x: torch.var_mean(x, -1), (x,)
    yield "mean-var-columns", lambda x: torch.var_mean(x, 0), (x,)
    yield "cumsum-rows", lambda x: x.cumsum(-1), (x,)
    yield "cumsum-columns", lambda x: x.cumsum(0), (x,)
    yield "cumsum-one", lambda x: x.flatten().cumsum(0), (x,)
    yield "argmax-rows", lambda x: x.argmax(-1), (x,)
    yield "argmax-columns", lambda x: x.argmax(0), (x,)
    yield "argmin-all", lambda x: x.argmin(), (x,)
    yield "max-rows", lambda x: x.max(-1), (x,)
    yield "index-add", lambda x, y, r: x.index_add(0, r, y), (x, y, rows)
    yield "scatter-add", lambda x, y, r: x.scatter_add(0, r, y), (x, y, torch.randint(0, n, (n, m)))
    yield "index-put", lambda x, y, r: x.index_put((r,), y, accumulate=True), (x, y, rows)
    yield "embedding", lambda w, r: F.embedding(r, w), (x, rows)
    yield "gather", lambda x, r: x.gather(1, r), (x, torch.randint(0, m, (n, 16)))
    yield "cross-entropy", F.cross_entropy, (x, torch.randint(0, m, (n,)))
    yield "cat", lambda x, y: torch.cat([x, y.relu()], 1), (x, y)
    yield "foreach", lambda a, b, c: torch._foreach_mul(torch._foreach_add([a, b, c], 1), 2), (x, y, g)


def _trained(dtype: torch.dtype, n: int, m: int) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Forward and backward; the results' gradients are ones."""
    x, y = _random(n, m, dtype=dtype), _random(n, m, dtype=dtype)
    g, b = _random(m).to(dtype), _random(m).to(dtype)
    target = torch.randint(0, m, (n,))
    yield "layer-norm", lambda x, g, b: F.layer_norm(x, (m,), g, b), (x, g, b)
    yield "rms-norm", lambda x, g: F.rms_norm(x, (m,), g, 1e-6), (x, g)
    yield "softmax", lambda x, y: F.softmax(x, -1) * y, (x, y)
    yield "gelu-bias", lambda x, b: F.gelu(x + b), (x, b)
    yield "dropout", lambda x, y: F.dropout(x, 0.1) + y, (x, y)
    yield "cross-entropy", lambda x: F.cross_entropy(x, target), (x,)
    yield "embedding", lambda w: F.embedding(target % n, w), (x,)


def _libraries(dtype: torch.dtype) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Calls of libraries with what is fused into them, attention, images."""
    x, w, b = _random(128, 96, dtype=dtype), _random(64, 96, dtype=dtype), _random(64).to(dtype)
    residual = _random(128, 64, dtype=dtype)
    yield "linear", F.linear, (x, w, b)
    yield "linear-gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), (x, w, b)
    yield "linear-tanh-gelu", lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"), (x, w, b)
    yield "linear-relu", lambda x, w, b: F.relu(F.linear(x, w, b)), (x, w, b)
    yield "linear-residual", lambda x, w, b, r: F.linear(x, w, b) + r, (x, w, b, residual)
    yield "batched", torch.bmm, (_random(8, 32, 24, dtype=dtype), _random(8, 24, 40, dtype=dtype))
    image, filters = _random(2, 16, 20, 20, dtype=dtype), _random(32, 16, 3, 3, dtype=dtype)
    of_filters = _random(32).to(dtype)
    yield "conv-relu", lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), (image, filters, of_filters)
    yield "conv-silu", lambda x, w, b: F.silu(F.conv2d(x, w, b, stride=2)), (image, filters, of_filters)
    yield "conv-depthwise", lambda x, w: F.conv2d(x, w, groups=16), (image, _random(16, 1, 3, 3, dtype=dtype))
    yield "max-pool", lambda x: F.max_pool2d(x, 3, 2, 1), (image,)
    yield "average-pool", lambda x: F.adaptive_avg_pool2d(x, 1), (image,)
    yield "group-norm", lambda x: F.group_norm(x, 4), (image,)
    q, k, v = (_random(2, 4, 72, 32, dtype=dtype) for _ in range(3))
    yield "attention", F.scaled_dot_product_attention, (q, k, v)
    yield "attention-causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v)
    mask = torch.rand(2, 1, 72, 72) > 0.2
    yield "attention-mask", F.scaled_dot_product_attention, (q, k, v, mask)


def _trained_libraries(dtype: torch.dtype) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    x, w, b = _random(128, 96, dtype=dtype), _random(64, 96, dtype=dtype), _random(64).to(dtype)
    yield "linear-gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), (x, w, b)
    image, filters = _random(2, 16, 20, 20, dtype=dtype), _random(32, 16, 3, 3, dtype=dtype)
    yield "conv-norm-relu", lambda x, w: F.relu(F.batch_norm(F.conv2d(x, w), None, None, training=True)), (image, filters)
    yield "max-pool", lambda x: F.max_pool2d(x, 3, 2, 1), (image,)
    q, k, v = (_random(2, 4, 72, 32, dtype=dtype) for _ in range(3))
    yield "attention", F.scaled_dot_product_attention, (q, k, v)
    yield "attention-causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v)


def _call(recorder: Recorder, name: str, function: Any, arguments: tuple[Any, ...], options: tuple[str, ...],
          trains: bool) -> None:  # fmt: skip
    if not recorder.wants(name):
        return
    recorder.begin(name, options)
    run = torch.compile(function, backend="inkle", dynamic=False)
    leaves = [a.requires_grad_(trains) if a.is_floating_point() else a for a in arguments]
    with contextlib.suppress(Recorded), torch.set_grad_enabled(trains):
        result = run(*leaves)
        if trains:
            torch.autograd.backward(result, torch.ones_like(result))


def record_classes(recorder: Recorder) -> None:
    """Small ones, which are run, and some at the sizes of a GPU, which are not."""
    sizes = {"small": (72, 200), "odd": (33, 1021), "gpu": (8192, 8192), "gpu-wide": (512, 131072)}
    for dtype_name, dtype in _DTYPES.items():
        for size, (n, m) in sizes.items():
            torch.manual_seed(0)
            options = ("no-run",) if size.startswith("gpu") else ()
            for kind, function, arguments in _kinds(dtype, n, m):
                if size == "gpu-wide" and not kind.startswith(("softmax", "sum", "layer", "cumsum", "argmax")):
                    continue
                _call(recorder, f"classes/{kind}/{dtype_name}-{size}", function, arguments, options, False)
            for kind, function, arguments in _trained(dtype, n, m) if size in ("small", "gpu") else ():
                name = f"classes/train-{kind}/{dtype_name}-{size}"
                _call(recorder, name, function, arguments, options, True)
            print(f"classes, {dtype_name} {size}", file=sys.stderr)
        for kind, function, arguments in _libraries(dtype):
            _call(recorder, f"classes/{kind}/{dtype_name}", function, arguments, (), False)
        for kind, function, arguments in _trained_libraries(dtype):
            _call(recorder, f"classes/train-{kind}/{dtype_name}", function, arguments, (), True)
