"""The models of the GPU table in docs/benchmarks.md, in bf16, with random weights and inputs.

``bench/models.py --device cuda`` runs them, each model in a process of its own: eager, TorchInductor
and Inkle in turns. Inkle compiles first, so that its first call pays for the start of TorchDynamo.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import os
import re
import time
from typing import Any, Callable

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@dataclasses.dataclass
class Case:
    """A model in evaluation mode on the GPU and the positional arguments of one call."""

    name: str
    shape: str
    model: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]


class Logits(torch.nn.Module):
    """The first tensor of what a transformers model returns."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, return_dict=True)[0]


def _text(name: str, model: torch.nn.Module, batch: int, length: int) -> Case:
    ids = torch.randint(5, model.config.vocab_size, (batch, length), device="cuda")
    model = Logits(model).to("cuda", torch.bfloat16).eval()
    return Case(name, f"{batch}x{length}", model, (ids,))


def _bert() -> Case:
    from transformers import BertConfig, BertForMaskedLM

    return _text("bert-base (MLM)", BertForMaskedLM(BertConfig()), 16, 512)


def _gpt2() -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _text("gpt2", GPT2LMHeadModel(GPT2Config(use_cache=False)), 8, 1024)


def _llama() -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        intermediate_size=8192, vocab_size=128256, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    return _text("llama 1B", model, 1, 1024)


def _timm(name: str, channels_last: bool, batch: int = 128) -> Callable[[], Case]:
    def make() -> Case:
        import timm

        model = timm.create_model(name, pretrained=False).to("cuda", torch.bfloat16).eval()
        image = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
            image = image.to(memory_format=torch.channels_last)
        return Case(name.split(".")[0], str(batch), model, (image,))

    return make


_MAKERS: dict[str, Callable[[], Case]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "vit_base": _timm("vit_base_patch16_224", False),
    "resnet50": _timm("resnet50", True),
    "convnext_tiny": _timm("convnext_tiny", True),
}
NAMES = tuple(_MAKERS)


def make(name: str) -> Case:
    torch.manual_seed(0)
    with torch.no_grad():
        return _MAKERS[name]()


def milliseconds(call: Callable[[], Any], seconds: float = 0.3) -> float:
    """The median time of one call on the GPU, in blocks of calls between two events."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times = []
    spent = 0.0
    while spent < seconds * 1e3 or len(times) < 5:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(5):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 5)
        spent += times[-1] * 5
    return sorted(times)[len(times) // 2]


# --- The table ------------------------------------------------------------------------------------

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- gpu-models:begin -->", "<!-- gpu-models:end -->"
SYSTEMS = ("eager", "inductor", "inductor-graphs", "inkle", "inkle-graphs")


@dataclasses.dataclass
class Row:
    """What was measured of one model; by system."""

    name: str
    shape: str
    milliseconds: dict[str, float]
    first_call: dict[str, float]
    peak_bytes: dict[str, int]
    error: dict[str, float]  # RMS against the model in f32
    own_seconds: float = 0.0  # Inkle's share of the first call
    missing: dict[str, str] = dataclasses.field(default_factory=dict)


def _compile(system: str, model: torch.nn.Module) -> Callable[..., Any]:
    import inkle  # noqa: F401: registers the backend

    if system == "eager":
        return model
    backend, _, graphs = system.partition("-")
    mode = "reduce-overhead" if graphs else None
    return torch.compile(model, backend=backend, mode=mode, dynamic=False)


def _reference(case: Case) -> torch.Tensor | None:
    """The first results in f32; none where that does not fit."""
    import copy

    try:
        model = copy.deepcopy(case.model).float()
        inputs = [x.float() if x.is_floating_point() else x for x in case.inputs]
        return model(*inputs).cpu()
    except torch.OutOfMemoryError:
        return None


@torch.no_grad()
def measure(name: str, systems: list[str]) -> Row:
    """Of one model, by system; what a system cannot take is named in ``missing``."""
    import inkle

    case = make(name)
    row = Row(case.name, case.shape, {}, {}, {}, {})
    reference = _reference(case)
    torch.cuda.empty_cache()
    calls: dict[str, Callable[[], Any]] = {}
    for system in sorted(systems, key=lambda s: s.startswith("inductor")):
        torch._dynamo.reset()
        if system.startswith("inkle"):
            inkle.reset()
        try:
            run = _compile(system, case.model)
            start = time.perf_counter()
            result = run(*case.inputs)
            torch.cuda.synchronize()
            row.first_call[system] = time.perf_counter() - start
            if reference is not None:
                error = result.float().cpu() - reference
                row.error[system] = error.square().mean().sqrt().item()
            del result
            if system == "inkle":
                row.own_seconds = sum(r.seconds for r in inkle.reports())
            for _ in range(3):
                run(*case.inputs)
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            run(*case.inputs)
            torch.cuda.synchronize()
            row.peak_bytes[system] = torch.cuda.max_memory_allocated() - before
            calls[system] = lambda run=run: run(*case.inputs)
        except Exception as error:  # noqa: BLE001: reported as missing
            row.missing[system] = f"{type(error).__name__}: {str(error)[:160]}"
    samples: dict[str, list[float]] = {system: [] for system in systems if system in calls}
    for _ in range(3):  # in turns
        for system, taken in samples.items():
            taken.append(milliseconds(calls[system], 0.15))
    row.milliseconds = {system: sorted(s)[len(s) // 2] for system, s in samples.items()}
    return row


def table(rows: list[Row], systems: list[str]) -> str:
    def cells(values: dict[str, float], text: str) -> str:
        return " | ".join(text.format(values[s]) if s in values else "-" for s in systems)

    head = "| model | shape | " + " | ".join(systems)
    line = "|" + "---|" * (len(systems) + 2)
    out = ["ms a call:", "", f"{head} |", line]
    out += [f"| {r.name} | {r.shape} | {cells(r.milliseconds, '{:.2f}')} |" for r in rows]
    out += ["", "First call, s (Inkle's own share behind it):", "", f"{head} | own |", line + "---|"]
    out += [f"| {r.name} | {r.shape} | {cells(r.first_call, '{:.1f}')} | {r.own_seconds:.2f} |"
            for r in rows]  # fmt: skip
    out += ["", "Peak memory of a warm call, MB:", "", f"{head} |", line]
    peaks = [{s: b / 1e6 for s, b in r.peak_bytes.items()} for r in rows]
    out += [f"| {r.name} | {r.shape} | {cells(p, '{:.0f}')} |" for r, p in zip(rows, peaks)]
    out += ["", "RMS error against f32:", "", f"{head} |", line]
    out += [f"| {r.name} | {r.shape} | {cells(r.error, '{:.2e}')} |" for r in rows]
    out += [f"\n{r.name}, {s}: {why}" for r in rows for s, why in r.missing.items()]
    return "\n".join(out)


def run(names: list[str], systems: list[str], write: bool) -> None:
    from kernels import machine

    rows = []
    spawn = multiprocessing.get_context("spawn")
    for name in names:
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as alone:
            rows.append(alone.submit(measure, name, systems).result())
        print(rows[-1], flush=True)
    text = f"{machine()}\n\n{table(rows, systems)}"
    print(text)
    if not write:
        return
    path = os.path.join(ROOT, "docs", "benchmarks.md")
    with open(path) as file:
        page = file.read()
    if BEGIN not in page:
        page += f"\n## Models on a GPU\n\n{BEGIN}\n{END}\n"
    page = re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n{text}\n{END}",
                  page, flags=re.S)  # fmt: skip
    with open(path, "w") as file:
        file.write(page)
