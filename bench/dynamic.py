"""One compilation for all sizes: transformers at seven (batch, length) pairs with ``dynamic=True``.

    python bench/dynamic.py                       MiniLM, bert-base, gpt2, llama
    python bench/dynamic.py --models gpt2 --update
    python bench/dynamic.py --device cuda         on a GPU, its end waited for after each call

For each model: the number of compilations, the accuracy rule against f64 at every pair, and the time
of the compiled graph against one compiled for that pair alone, in turns. Times are of the graph's
callable, without TorchDynamo's guards, which are not the compiler's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common
import eight
import torch
from training import Recorder

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MARKS = {
    "cpu": ("<!-- dynamic:begin -->", "<!-- dynamic:end -->"),
    "cuda": ("<!-- dynamic-gpu:begin -->", "<!-- dynamic-gpu:end -->"),
}
# The first pair is what the dynamic graph is compiled with.
PAIRS = [(4, 64), (2, 16), (3, 33), (8, 128), (5, 77), (2, 256), (16, 24)]
ALLOWED = 1.10  # dynamic over static


def _inputs(
    model: torch.nn.Module, batch: int, length: int, device: str
) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(batch * 1000 + length)
    vocabulary = model.model.config.vocab_size
    ids = torch.randint(5, vocabulary, (batch, length), generator=generator).to(device)
    if not model.with_mask:
        return (ids,)
    mask = torch.ones_like(ids)
    mask[1, length * 3 // 4 :] = 0
    return ids, mask


def _time(calls: list[tuple[Any, list[Any]]], seconds: float) -> list[list[float]]:
    """Milliseconds of the calls in turns."""
    times: list[list[float]] = [[] for _ in calls]
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times[0]) < 7:
        for (call, arguments), found in zip(calls, times):
            begin = time.perf_counter()
            call(list(arguments))
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            found.append((time.perf_counter() - begin) * 1e3)
    return times


def run_model(name: str, seconds: float, device: str) -> tuple[list[list[str]], bool]:
    """Rows of the table, and whether all is as promised."""
    import inkle

    torch._dynamo.reset()
    inkle.reset()
    case = eight.make(name)
    model = case.model.to(device)
    double = case.to(torch.float64).model
    recorder = Recorder()
    dynamic = torch.compile(model, backend="inkle", dynamic=True, options={"strict": True})
    inputs = {pair: _inputs(model, *pair, device) for pair in PAIRS}
    verdicts, calls = {}, {}
    with torch.no_grad():
        for pair, given in inputs.items():
            found = dynamic(*given)
            accuracy = common.compare(found, model(*given), double(*given))
            verdicts[pair] = "met" if accuracy.ok else str(accuracy)
            calls[pair] = [(recorder.calls[-1][0].callable, recorder.calls[-1][1])]
        compilations = len(recorder.calls)
        rows, good = [], compilations == 1
        for pair, given in inputs.items():
            torch._dynamo.reset()
            torch.compile(model, backend="inkle", dynamic=False, options={"strict": True})(*given)
            calls[pair].append((recorder.calls[-1][0].callable, recorder.calls[-1][1]))
            times = _time(calls[pair], seconds)
            ratio = min(times[0]) / min(times[1])
            good &= ratio <= ALLOWED and verdicts[pair] == "met"
            shown = [f"{min(t):.2f} / {statistics.median(t):.2f}" for t in times]
            rows.append([case.name, f"{pair[0]}x{pair[1]}", str(compilations), *reversed(shown),
                         f"{ratio:.2f}", verdicts[pair]])  # fmt: skip
            common.say("  " + "  ".join(rows[-1]))
    recorder.stop()
    return rows, good


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="minilm,bert-base,gpt2,llama")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring a pair")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=tuple(MARKS), default="cpu")
    parser.add_argument("--update", action="store_true", help="write docs/benchmarks.md")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    rows, good = [], True
    for name in arguments.models.split(","):
        more, fine = run_model(name, arguments.seconds, arguments.device)
        rows += more
        good &= fine
    text = common.table(["model", "batch x length", "compilations", "static ms, min / median",
                         "dynamic ms, min / median", "dynamic / static", "accuracy rule"],
                        rows)  # fmt: skip
    print(text)
    if arguments.update:
        marks = MARKS[arguments.device]
        common.update_docs(os.path.join(ROOT, "docs", "benchmarks.md"), *marks, text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
