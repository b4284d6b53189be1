"""Forward and backward on a GPU under autocast to bf16: eager, TorchInductor and Inkle in turns.

    python bench/gpu_training.py                       all models, prints the table
    python bench/gpu_training.py --models bert --systems eager,inkle
    python bench/gpu_training.py --update              into docs/benchmarks.md

Parameters are f32 and their gradients are made anew in each step; dropout is as the model has it.
Losses of the first step are compared with eager's at the same seed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from typing import Any, Callable

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common
import gpu_models

BEGIN, END = "<!-- gpu-training:begin -->", "<!-- gpu-training:end -->"
SYSTEMS = ("eager", "inductor", "inkle")

Loss = Callable[[Any], torch.Tensor]


def _words(model: torch.nn.Module, batch: int, length: int, masked: float) -> tuple[Any, Loss]:
    model = model.cuda().train()
    ids = torch.randint(5, model.config.vocab_size, (batch, length), device="cuda")
    hidden = torch.rand(batch, length, device="cuda") > masked
    labels = ids.masked_fill(hidden, -100) if masked < 1 else ids
    return model, lambda m: m(input_ids=ids, labels=labels).loss


def _bert() -> tuple[Any, Loss]:
    from transformers import BertConfig, BertForMaskedLM

    return _words(BertForMaskedLM(BertConfig()), 16, 512, 0.15)


def _gpt2() -> tuple[Any, Loss]:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _words(GPT2LMHeadModel(GPT2Config(use_cache=False)), 8, 1024, 1)


def _timm(name: str, channels_last: bool) -> Callable[[], tuple[Any, Loss]]:
    def make() -> tuple[Any, Loss]:
        import timm

        layout = torch.channels_last if channels_last else torch.contiguous_format
        model = timm.create_model(name, pretrained=False).cuda().train().to(memory_format=layout)
        images = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=layout)
        labels = torch.randint(0, 1000, (128,), device="cuda")
        return model, lambda m: torch.nn.functional.cross_entropy(m(images), labels)

    return make


MODELS = {
    "bert": ("bert-base (MLM) 16x512", _bert),
    "resnet50": ("resnet50 128", _timm("resnet50", True)),
    "gpt2": ("gpt2 8x1024", _gpt2),
    "vit_base": ("vit_base 128", _timm("vit_base_patch16_224", False)),
}


@dataclasses.dataclass
class Measured:
    """Of one system: seconds of the first step, ms a step, bytes at the peak, loss."""

    first: float
    loss: float
    peak: int
    milliseconds: list[float] = dataclasses.field(default_factory=list)


def _stepper(system: str, model: Any, loss_of: Loss) -> Callable[[], float | torch.Tensor]:
    called = model if system == "eager" else torch.compile(model, backend=system, dynamic=False)

    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(called)
        loss.backward()
        return loss.detach()

    return step


def _prepare(system: str, model: Any, loss_of: Loss) -> tuple[Measured, Callable[[], Any]]:
    step = _stepper(system, model, loss_of)
    torch.manual_seed(1)
    begin = time.perf_counter()
    loss = step().item()
    first = time.perf_counter() - begin
    for _ in range(3):
        step()
    model.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return Measured(first, loss, torch.cuda.max_memory_allocated() - before), step


def measure(name: str, systems: list[str]) -> tuple[dict[str, Measured], float, dict[str, str]]:
    """What was measured by system, seconds of Inkle's own share, and why a system is missing."""
    import inkle

    torch.manual_seed(0)
    model, loss_of = MODELS[name][1]()
    found: dict[str, Measured] = {}
    steps: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    own = 0.0
    for system in systems:
        torch._dynamo.reset()
        inkle.reset()
        try:
            found[system], steps[system] = _prepare(system, model, loss_of)
        except Exception as error:  # noqa: BLE001: reported as missing
            missing[system] = f"{type(error).__name__}: {str(error)[:300]}"
        if system == "inkle":
            own = sum(r.seconds for r in inkle.reports())
            for r in inkle.reports():
                print(f"  {name}: {r.name} compiled {r.compiled}, {len(r.eager)} ops in eager "
                      f"{sorted({op for op, _, _ in r.eager})} {r.fault or ''}", flush=True)  # fmt: skip
    for _ in range(3):  # in turns
        for system, step in steps.items():
            found[system].milliseconds.append(gpu_models.milliseconds(step, 0.3))
    return found, own, missing


def _row(name: str, systems: list[str]) -> tuple[list[str], str]:
    found, own, missing = measure(name, systems)

    def cell(system: str, text: Callable[[Measured], str]) -> str:
        return text(found[system]) if system in found else "-"

    row = [MODELS[name][0]]
    row += [cell(s, lambda m: f"{sorted(m.milliseconds)[1]:.2f}") for s in systems]
    row += [cell(s, lambda m: f"{m.first:.1f}") for s in systems if s != "eager"] + [f"{own:.2f}"]
    row += [cell(s, lambda m: f"{m.peak / 1e9:.2f}") for s in systems]
    row += [cell(s, lambda m: f"{m.loss:.4f}") for s in systems]
    return row, "".join(f"\n{name}, {s}: {why}" for s, why in missing.items())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--update", action="store_true", help="write docs/benchmarks.md")
    arguments = parser.parse_args()
    if wrong := [name for name in arguments.models.split(",") if name not in MODELS]:
        parser.error(f"--models: {', '.join(wrong)!r}; choose from {', '.join(MODELS)}")
    return arguments


def main() -> int:
    arguments = parse()
    if not torch.cuda.is_available():
        print("bench/gpu_training.py: torch sees no GPU", file=sys.stderr)
        return 1
    from kernels import machine

    systems = arguments.systems.split(",")
    head = ["model", *(f"{s} ms" for s in systems),
            *(f"{s} first s" for s in systems if s != "eager"), "own s",
            *(f"{s} GB" for s in systems), *(f"{s} loss" for s in systems)]  # fmt: skip
    rows, notes = [], ""
    for name in arguments.models.split(","):
        row, why = _row(name, systems)
        print(dict(zip(head, row)), why, flush=True)
        rows.append(row)
        notes += why
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    text = f"{machine()}\n\nCommand: `python bench/gpu_training.py`\n\n{common.table(head, rows)}{notes}"
    print(text)
    if arguments.update:
        page = os.path.join(gpu_models.ROOT, "docs", "benchmarks.md")
        common.update_docs(page, BEGIN, END, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
