"""Times a training step: forward, loss, backward, AdamW. Eager, TorchInductor and Inkle in turns.

    python bench/training.py                            MiniLM 8x128 and resnet50 8x224, f32
    python bench/training.py --models minilm --profile  also what each step of Inkle's graphs takes
    python bench/training.py --update                   into docs/benchmarks.md
    python bench/training.py --systems inkle,inkle:default,inkle:smallest  other partitions, too

All systems run in one process, one after the other in each round; smallest and median of the steps
count. The optimizer is torch's own, compiled by the system where ``--optimizer compiled`` asks so.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import tempfile
import time
from typing import Any, Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- training:begin -->", "<!-- training:end -->"
# Of Inductor's modes those that a training step has: weights are not frozen in it.
MODES: dict[str, dict[str, bool]] = {"inductor": {}, "inductor-max-autotune": {"max_autotune": True}}
SYSTEMS = ("eager", *MODES, "inkle")


def _minilm() -> tuple[str, torch.nn.Module, Callable[[Any], torch.Tensor]]:
    """MiniLM with its head of masked words; 15 per cent of the words are asked for."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(hidden_size=384, num_hidden_layers=6,
                                       num_attention_heads=12, intermediate_size=1536))  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 30522, (8, 128), generator=generator)
    labels = ids.masked_fill(torch.rand(8, 128, generator=generator) > 0.15, -100)
    return "8x128", model, lambda m: m(input_ids=ids, labels=labels).loss


def _resnet50() -> tuple[str, torch.nn.Module, Callable[[Any], torch.Tensor]]:
    import timm

    model = timm.create_model("resnet50", pretrained=False)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8, 3, 224, 224, generator=generator)
    labels = torch.randint(0, 1000, (8,), generator=generator)
    return "8x3x224x224", model, lambda m: torch.nn.functional.cross_entropy(m(images), labels)


def _gpt2() -> tuple[str, torch.nn.Module, Callable[[Any], torch.Tensor]]:
    """gpt2 with four layers: its gelu is arithmetic."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=384, n_head=6, vocab_size=8192,
                                       bos_token_id=0, eos_token_id=0))  # fmt: skip
    ids = torch.randint(0, 8192, (4, 128), generator=torch.Generator().manual_seed(0))
    return "4x128", model, lambda m: m(input_ids=ids, labels=ids).loss


def _vit() -> tuple[str, torch.nn.Module, Callable[[Any], torch.Tensor]]:
    import timm

    model = timm.create_model("vit_small_patch16_224", pretrained=False, depth=4)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(4, 3, 224, 224, generator=generator)
    labels = torch.randint(0, 1000, (4,), generator=generator)
    return "4x3x224x224", model, lambda m: torch.nn.functional.cross_entropy(m(images), labels)


MODELS = {"minilm": _minilm, "resnet50": _resnet50, "gpt2": _gpt2, "vit": _vit}


def _stepper(system: str, model: Any, loss_of: Any, compile_optimizer: bool) -> Callable[[], float]:
    """One training step of a model of its own; gives the loss."""
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    called: Any = model
    update: Any = optimizer.step
    if system != "eager":
        backend, _, partition = system.partition(":")
        options: dict[str, Any] = {"partition": partition} if partition else {}
        if backend in MODES:
            backend, options = "inductor", dict(MODES[backend])
        called = torch.compile(model, backend=backend, options=options or None)
        if compile_optimizer:
            update = torch.compile(optimizer.step, backend=backend)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(called)
        loss.backward()
        update()
        return loss.item()

    return step


def _measure(steps: dict[str, Callable[[], float]], seconds: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or min(map(len, times.values())) < 5:
        for name, step in steps.items():
            time.sleep(0.02)  # spinning threads of the last system go to sleep
            begin = time.perf_counter()
            step()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return times


class Recorder:
    """Keeps the arguments of the last call of each graph that Inkle compiles."""

    def __init__(self) -> None:
        import inkle.backend

        self.calls: list[tuple[Any, list[Any]]] = []
        self._replaced = compile_graph = inkle.backend.compile_graph

        def recording(*given: Any, **named: Any) -> Any:
            compiled = compile_graph(*given, **named)
            # Both halves of a cut are compiled before either is asked for.
            reports = [r for r in inkle.reports() if r.callable is compiled]
            if not reports:
                return compiled
            at = len(self.calls)
            self.calls.append((reports[-1], []))

            def run(arguments: list[Any]) -> Any:
                self.calls[at] = (self.calls[at][0], list(arguments))
                return compiled(arguments)

            run._boxed_call = True
            return run

        inkle.backend.compile_graph = recording

    def stop(self) -> None:
        import inkle.backend

        inkle.backend.compile_graph = self._replaced

    def show(self, count: int) -> None:
        """The steps of each graph that took longest."""
        for report, arguments in self.calls:
            if not report.compiled or not hasattr(report.callable, "profile"):
                continue
            runs = [report.callable.profile(list(arguments)) for _ in range(3)]
            seconds = [min(times) * 1e-9 for times in zip(*runs)]  # from nanoseconds
            total = sum(seconds)
            print(f"\n{report.name}: {len(seconds)} steps, {total * 1e3:.1f} ms, in eager: "
                  f"{[op for op, _, _ in report.eager]}")  # fmt: skip
            kinds: dict[str, float] = {}
            for step, took in zip(report.steps, seconds):
                kinds[step["kind"]] = kinds.get(step["kind"], 0.0) + took
            print("  " + ", ".join(f"{kind} {took * 1e3:.1f} ms" for kind, took in kinds.items()))
            order = sorted(range(len(seconds)), key=lambda i: -seconds[i])[:count]
            for i in order:
                step = report.steps[i]
                print(f"  {seconds[i] * 1e3:7.2f} ms  {step['kind']:<11} {step['label'][:70]:<70} "
                      f"{step['source'][:60]}")  # fmt: skip


def _row(name: str, arguments: argparse.Namespace) -> list[str]:
    torch._dynamo.reset()
    shape, model, loss_of = MODELS[name]()
    steps = {}
    for system in arguments.systems:
        common.say(f"  {name}: preparing {system}")
        steps[system] = _stepper(system, model, loss_of, arguments.optimizer == "compiled")
        losses = [steps[system]() for _ in range(3)]
        common.say(f"  {name}: {system}: losses {', '.join(f'{x:.4f}' for x in losses)}")
    times = _measure(steps, arguments.seconds)
    row = [name, shape]
    row += [f"{min(times[s]):.0f} / {statistics.median(times[s]):.0f}" if s in times else "-"
            for s in _columns(arguments)]  # fmt: skip
    modes = [min(times[mode]) for mode in MODES if mode in times]
    row.append(f"{min(modes) / min(times['inkle']):.2f}x" if modes and "inkle" in times else "-")
    return row


def _columns(arguments: argparse.Namespace) -> list[str]:
    return [*SYSTEMS, *(s for s in arguments.systems if s not in SYSTEMS)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="minilm,resnet50")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--optimizer", choices=("eager", "compiled"), default="compiled")
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring a model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--update", action="store_true", help="write docs/benchmarks.md")
    arguments = parser.parse_args()
    arguments.systems = arguments.systems.split(",")
    return arguments


def main() -> int:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    rows = []
    recorder = Recorder() if arguments.profile else None
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        for name in arguments.models.split(","):
            rows.append(_row(name, arguments))
            if recorder is not None:
                recorder.show(25)
    names = ["eager", "TorchInductor", "Inductor, max_autotune", "Inkle", *_columns(arguments)[len(SYSTEMS) :]]
    text = (f"Machine: {common.machine()}; f32, {arguments.threads} threads. torch {torch.__version__.split('+')[0]}.\n\n"
            f"Command: `{common.command('training.py')}`\n\n"
            f"Milliseconds a step, min / median; optimizer {arguments.optimizer}:\n\n"
            + common.table(["model", "input", *names, "over the best Inductor"], rows))  # fmt: skip
    print(text)
    if arguments.update:
        common.update_docs(os.path.join(ROOT, "docs", "benchmarks.md"), BEGIN, END, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
