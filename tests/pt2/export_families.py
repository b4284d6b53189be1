"""Exports families of transformers and timm with random weights to .pt2 and counts their ops.

    export_families.py OUT [--only NAME,NAME] [--count]

OUT gets NAME.pt2 for each family; with --count a table of ops over all files in OUT is printed.
Transformers get tiny configurations; timm models are built as they are, with few classes.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import sys
import time
import zipfile
from typing import Callable

import torch

TINY = dict(
    vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=37, max_position_embeddings=64,
)
VISION = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
    image_size=30, patch_size=2, num_channels=3,
)


class Plain(torch.nn.Module):
    """A transformers model that returns its tensors as a tuple."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *args):
        out = self.model(*args, return_dict=False)
        return tuple(o for o in out if isinstance(o, torch.Tensor))


def language(kind: str, head: str = "AutoModel", **changes) -> Callable:
    def make():
        import transformers

        config = transformers.CONFIG_MAPPING[kind](**{**TINY, **changes})
        config.use_cache = False
        model = getattr(transformers, head).from_config(config).eval()
        ids = torch.randint(0, 99, (2, 16))
        if kind in ("t5", "mt5"):
            model = model.encoder
        return Plain(model).eval(), (ids,)

    return make


def vision(kind: str, size: int = 30, **changes) -> Callable:
    def make():
        import transformers

        base = {**VISION, **changes}
        config = transformers.CONFIG_MAPPING[kind](**base)
        model = transformers.AutoModel.from_config(config).eval()
        return Plain(model).eval(), (torch.randn(1, 3, size, size),)

    return make


def timm(name: str, size: int = 64, **changes) -> Callable:
    def make():
        import timm as library

        model = library.create_model(name, num_classes=10, **changes).eval()
        return model, (torch.randn(1, 3, size, size),)

    return make


FAMILIES: dict[str, Callable] = {
    "bert": language("bert"),
    "distilbert": language("distilbert", dim=32, n_layers=2, n_heads=4, hidden_dim=37),
    "roberta": language("roberta"),
    "albert": language("albert", embedding_size=16),
    "electra": language("electra", embedding_size=16),
    "mpnet": language("mpnet"),
    "deberta-v2": language("deberta-v2"),
    "gpt2": language("gpt2", "AutoModelForCausalLM", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "gpt_neo": language("gpt_neo", "AutoModelForCausalLM", num_layers=2, num_heads=4,
                        attention_types=[[["global", "local"], 1]]),
    "gptj": language("gptj", "AutoModelForCausalLM", n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    "gpt_neox": language("gpt_neox", "AutoModelForCausalLM"),
    "opt": language("opt", "AutoModelForCausalLM", ffn_dim=37, word_embed_proj_dim=32),
    "bloom": language("bloom", "AutoModelForCausalLM", n_layer=2, n_head=4),
    "llama": language("llama", "AutoModelForCausalLM", num_key_value_heads=2),
    "mistral": language("mistral", "AutoModelForCausalLM", num_key_value_heads=2),
    "qwen2": language("qwen2", "AutoModelForCausalLM", num_key_value_heads=2),
    "gemma": language("gemma", "AutoModelForCausalLM", num_key_value_heads=2, head_dim=8),
    "phi": language("phi", "AutoModelForCausalLM"),
    "falcon": language("falcon", "AutoModelForCausalLM"),
    "t5": language("t5", d_model=32, d_ff=37, d_kv=8, num_layers=2, num_heads=4),
    "xlnet": language("xlnet", d_model=32, n_layer=2, n_head=4, d_inner=37),
    "roformer": language("roformer", embedding_size=32),
    "vit": vision("vit"),
    "deit": vision("deit"),
    "beit": vision("beit"),
    "dinov2": vision("dinov2", mlp_ratio=1),
    "swin": vision("swin", 32, image_size=32, patch_size=2, embed_dim=16, depths=[1, 2],
                   num_heads=[2, 4], window_size=4),
    "convnextv2": vision("convnextv2", 32, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
    "segformer": vision("segformer", 64, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1],
                        num_attention_heads=[1, 2, 2, 4]),
    "resnet18": timm("resnet18"),
    "resnet50": timm("resnet50"),
    "mobilenetv3_small_100": timm("mobilenetv3_small_100"),
    "efficientnet_b0": timm("efficientnet_b0"),
    "convnext_atto": timm("convnext_atto"),
    "vit_tiny_patch16_224": timm("vit_tiny_patch16_224", 224),
    "swin_tiny_patch4_window7_224": timm("swin_tiny_patch4_window7_224", 224),
    "densenet121": timm("densenet121"),
    "regnetx_002": timm("regnetx_002"),
    "mixer_s32_224": timm("mixer_s32_224", 224),
    "ghostnet_050": timm("ghostnet_050"),
    "vgg11": timm("vgg11"),
    "levit_128s": timm("levit_128s", 224),
    "poolformer_s12": timm("poolformer_s12"),
    "pvt_v2_b0": timm("pvt_v2_b0"),
    "res2net50_26w_4s": timm("res2net50_26w_4s"),
    "dpn68": timm("dpn68"),
    "coat_tiny": timm("coat_tiny", 224),
    "edgenext_xx_small": timm("edgenext_xx_small"),
    "mobilevit_xxs": timm("mobilevit_xxs"),
    "xcit_nano_12_p16_224": timm("xcit_nano_12_p16_224", 224),
    "tnt_s_patch16_224": timm("tnt_s_patch16_224", 224),
    "crossvit_9_240": timm("crossvit_9_240", 240),
    "repvgg_a0": timm("repvgg_a0"),
    "nfnet_l0": timm("nfnet_l0"),
    "hrnet_w18_small": timm("hrnet_w18_small"),
    "inception_v4": timm("inception_v4", 96),
}


def count_ops(folder: pathlib.Path) -> collections.Counter:
    """How many files use each op target, and how often: {target: (files, uses)}."""
    files: collections.Counter = collections.Counter()
    uses: collections.Counter = collections.Counter()

    def walk(graph: dict, seen: set) -> None:
        for node in graph["nodes"]:
            seen.add(node["target"])
            uses[node["target"]] += 1
            for argument in node["inputs"]:
                if "as_graph" in argument["arg"]:
                    walk(argument["arg"]["as_graph"]["graph"], seen)

    for path in sorted(folder.glob("*.pt2")):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if "/models/" in name and name.endswith(".json"):
                    seen: set = set()
                    walk(json.loads(archive.read(name))["graph_module"]["graph"], seen)
                    files.update(seen)
    return collections.Counter({t: (n, uses[t]) for t, n in files.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names = [n for n in options.only.split(",") if n] or ([] if options.count else list(FAMILIES))
    failed = 0
    for name in names:
        start = time.perf_counter()
        try:
            torch.manual_seed(0)
            model, args = FAMILIES[name]()
            with torch.no_grad():
                program = torch.export.export(model, args)
                expected = model(*args)
            torch.export.save(program, options.out / f"{name}.pt2")
            torch.save((args, expected), options.out / f"{name}.expected")
            print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
        except Exception as error:  # a family that torch itself cannot export is reported
            failed += 1
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
    if options.count:
        for target, (files, uses) in sorted(count_ops(options.out).items(), key=lambda i: -i[1][0]):
            print(f"{files:4} {uses:6}  {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
