"""The models of the GPU table in docs/benchmarks.md, in bf16, with random weights and inputs."""

from __future__ import annotations

import dataclasses
import os
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
