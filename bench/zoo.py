"""Model families of transformers and timm in tiny configurations, code untouched.

``names()`` lists them, ``build(name)`` makes one: random weights, evaluation mode, and its inputs.
A family of transformers is its config class with every size it knows made small; a family of timm
is its smallest registered model on the smallest image that it takes.
"""

from __future__ import annotations

import dataclasses
import inspect
import random
from typing import Any, Callable

import torch

# Sizes of all configs of transformers, by the name of the field; a config takes those that it has.
_SIZES: dict[str, int] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "dim": 32,
    "embed_dim": 32,
    "emb_dim": 32,
    "encoder_hidden_size": 32,
    "embedding_size": 32,
    "projection_dim": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
    "num_encoder_layers": 2,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "d_kv": 8,
    "intermediate_size": 64,
    "d_ff": 64,
    "n_inner": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "ffn_dim": 64,
    "hidden_dim": 64,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "image_size": 32,
    "patch_size": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
# Fields that stay as they are where the config leaves them open.
_ONLY_IF_SET = {
    "head_dim",
    "n_inner",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
}

_TRANSFORMERS: dict[str, dict[str, Any]] = {
    name: {}
    for name in """
    aimv2 albert altclip apertus arcee bart beit bert bert-generation big_bird bigbird_pegasus
    biogpt bitnet blenderbot blip bloom camembert canine clip clipseg cohere cohere2 convbert ctrl
    data2vec-text data2vec-vision deberta deberta-v2 deit diffllama dinov2 dinov3_vit distilbert doge
    dpr dpt electra ernie ernie4_5 eurobert exaone4 falcon falcon_mamba flaubert flava fnet focalnet
    fsmt gemma gemma2 gemma3_text git glm glm4 glpn gpt2 gpt_bigcode gpt_neox gpt_oss granite
    groupvit gte helium hiera ibert ijepa imagegpt jamba jetmoe layoutlm led lfm2 llama
    longformer longt5 m2m_100 mamba marian mbart megatron-bert mistral mixtral mobilebert
    mobilenet_v2 mobilevit modernbert mpnet mpt mt5 nystromformer olmo olmo2 olmoe opt owlvit pegasus
    persimmon phi phi3 pixtral plbart poolformer prophetnet pvt_v2 qwen2 qwen2_moe qwen3 rembert
    roberta roformer rwkv segformer siglip smollm3 splinter squeezebert stablelm starcoder2
    swiftformer switch_transformers t5 tapas
    """.split()
}
_TRANSFORMERS |= {
    "codegen": {"rotary_dim": 8},
    "convnext": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "image_size": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "gptj": {"rotary_dim": 8},
    "hubert": {"mask_time_prob": 0.0},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 2, "chunk_size": 8},
    "swin": {"embed_dim": 12, "depths": [1, 1], "num_heads": [2, 4], "patch_size": 2,
             "window_size": 4, "hidden_size": 24},
    "swinv2": {"embed_dim": 12, "depths": [1, 1], "num_heads": [2, 4], "patch_size": 2,
               "window_size": 4, "hidden_size": 24},
    "vilt": {},
    "vit": {},
    "whisper": {"max_source_positions": 32},
    "xglm": {},
    "xlm": {},
    "xlnet": {},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 4},
}  # fmt: skip

# Model -> size of the image; a second number says that the model is built for that size.
_TIMM: dict[str, tuple[int, bool]] = {
    "beit_base_patch16_224": (64, True),
    "caformer_s18": (64, False),
    "cait_xxs24_224": (64, True),
    "coat_lite_tiny": (64, True),
    "coat_tiny": (64, True),
    "convit_tiny": (64, True),
    "convmixer_768_32": (64, False),
    "convnext_zepto_rms": (64, False),
    "cs3darknet_s": (64, False),
    "cspnext_tiny": (64, False),
    "davit_tiny": (64, False),
    "deit_tiny_patch16_224": (64, True),
    "densenet121": (64, False),
    "dla46_c": (64, False),
    "dpn48b": (64, False),
    "edgenext_xx_small": (64, False),
    "efficientformerv2_s0": (64, True),
    "efficientvim_m1": (64, False),
    "efficientvit_b0": (64, False),
    "efficientvit_m0": (64, False),
    "ese_vovnet19b_slim_dw": (64, False),
    "eva02_tiny_patch14_224": (56, True),
    "fasternet_t0": (64, False),
    "fastvit_t8": (64, False),
    "focalnet_tiny_srf": (64, False),
    "gcvit_xxtiny": (64, True),
    "ghostnet_050": (64, False),
    "ghostnetv2_100": (64, False),
    "gmixer_12_224": (64, True),
    "gmlp_ti16_224": (64, True),
    "hardcorenas_a": (64, False),
    "hgnetv2_b0": (64, False),
    "hiera_tiny_224": (64, True),
    "hrnet_w18_small": (64, False),
    "iformer_t": (64, False),
    "inception_next_atto": (64, False),
    "inception_v3": (96, False),
    "lambda_resnet26t": (64, False),
    "lcnet_035": (64, False),
    "lcnetv2_small": (64, False),
    "legacy_seresnet18": (64, False),
    "levit_128s": (64, True),
    "mixer_s32_224": (64, True),
    "mobilenetv3_small_050": (64, False),
    "mobilenetv4_conv_small_035": (64, False),
    "mobilevit_xxs": (64, False),
    "mobilevitv2_050": (64, False),
    "mvitv2_tiny": (64, False),
    "nest_tiny": (64, True),
    "nextvit_small": (64, False),
    "pit_ti_224": (64, True),
    "poolformer_s12": (64, False),
    "pvt_v2_b0": (64, False),
    "regnety_002": (64, False),
    "repghostnet_050": (64, False),
    "repvit_m1": (64, False),
    "res2net50_14w_8s": (64, False),
    "resmlp_12_224": (64, True),
    "resnest14d": (64, False),
    "resnetv2_18": (64, False),
    "rexnet_100": (64, False),
    "selecsls42": (64, False),
    "sequencer2d_s": (64, False),
    "shvit_s1": (64, False),
    "skresnet18": (64, False),
    "starnet_s050": (64, False),
    "swiftformer_xs": (64, False),
    "swin_tiny_patch4_window7_224": (64, True),
    "swinv2_tiny_window8_256": (64, True),
    "test_byobnet": (64, False),
    "test_coatnet": (64, True),
    "test_convnext": (64, False),
    "test_convnext2": (64, False),
    "test_efficientnet": (64, False),
    "test_efficientnet_gn": (64, False),
    "test_mambaout": (64, False),
    "test_maxvit": (64, True),
    "test_nfnet": (64, False),
    "test_resnet": (64, False),
    "test_vit": (64, False),
    "test_vit4": (64, False),
    "test_vit_relpos": (64, True),
    "tiny_vit_5m_224": (64, False),
    "tnt_s_patch16_224": (64, True),
    "tresnet_m": (64, False),
    "twins_svt_small": (64, False),
    "visformer_tiny": (64, True),
    "vitamin_small_224": (64, True),
    "vit_tiny_r_s16_p8_224": (64, True),
    "volo_d1_224": (64, True),
    "xception41": (64, False),
    "xcit_nano_12_p8_224": (64, False),
}


@dataclasses.dataclass
class Built:
    model: torch.nn.Module
    inputs: Callable[[int], dict[str, Any]]
    """Seed -> keyword arguments of the model ("x" is the only, positional one for timm)."""

    def call(self, model: Callable[..., Any], inputs: dict[str, Any]) -> Any:
        if set(inputs) == {"x"}:
            return model(inputs["x"])
        return model(**inputs)


def names() -> list[str]:
    """All families, "transformers/bert", "timm/test_vit", sorted."""
    return [f"transformers/{n}" for n in sorted(_TRANSFORMERS)] + [f"timm/{n}" for n in sorted(_TIMM)]


def pick(seed: int, count: int) -> list[str]:
    """``count`` families picked by ``seed``, the same on every machine."""
    everything = names()
    return sorted(random.Random(seed).sample(everything, min(count, len(everything))))


def build(name: str, seed: int = 0) -> Built:
    """Makes a family of ``names()``; KeyError for any other name."""
    library, family = name.split("/", 1)
    torch.manual_seed(seed)
    built = _build_timm(family) if library == "timm" else _build_transformers(family)
    _disturb(built.model, seed)
    built.model.eval()
    return built


def _disturb(model: torch.nn.Module, seed: int) -> None:
    """Moves biases, scales and running statistics off 0 and 1, where mistakes would not show."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() <= 1 and parameter.is_floating_point():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(torch.randn(buffer.shape, generator=generator) * 0.1)
            if name.endswith("running_var"):
                buffer.mul_(torch.rand(buffer.shape, generator=generator) + 0.5)
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d)):
            module.p = 0.0


# --- timm -----------------------------------------------------------------------------------------


def _build_timm(family: str) -> Built:
    import timm

    size, is_built_for = _TIMM[family]
    extra = {"img_size": size} if is_built_for else {}
    model = timm.create_model(family, pretrained=False, num_classes=10, **extra)

    def inputs(seed: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(seed)
        return {"x": torch.randn(2, 3, size, size, generator=generator)}

    return Built(model, inputs)


# --- transformers ---------------------------------------------------------------------------------


def _small(config_class: type, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments that make every size of the config small, those of nested configs too."""
    default = config_class()
    fields = set(default.to_dict()) | set(inspect.signature(config_class.__init__).parameters)
    result: dict[str, Any] = {}
    for field, size in _SIZES.items():
        current = getattr(default, field, None)
        if field not in fields or isinstance(current, (list, tuple, dict)):
            continue
        if field in _ONLY_IF_SET and current is None:
            continue
        result[field] = size
    for field in fields:
        if "drop" in field and isinstance(getattr(default, field, None), float):
            result[field] = 0.0
    for field, nested in (getattr(config_class, "sub_configs", None) or {}).items():
        if isinstance(nested, type) and nested.__name__ != "AutoConfig":
            result[field] = _small(nested, {})
    if "use_cache" in fields:
        result["use_cache"] = False
    return result | given


def _build_transformers(family: str) -> Built:
    import transformers

    config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[family]
    config = config_class(**_small(config_class, _TRANSFORMERS[family]))
    model = transformers.AutoModel.from_config(config)
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    return Built(model, lambda seed: _transformers_inputs(model, seed))


def _image_size(config: Any) -> tuple[int, int, int]:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    if isinstance(size, (list, tuple)):
        size = size[0]
    return getattr(vision, "num_channels", None) or 3, size, size


def _transformers_inputs(model: torch.nn.Module, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    takes = inspect.signature(model.forward).parameters
    main = model.main_input_name
    result: dict[str, Any] = {}
    ids = torch.randint(3, 100, (2, 16), generator=generator)
    if main == "input_ids" or ("input_ids" in takes and main != "input_values"):
        result["input_ids"] = ids
    has_both = "pixel_values" in takes and getattr(model.config, "vision_config", None) is not None
    if main == "pixel_values" or has_both or model.config.model_type == "vilt":
        result["pixel_values"] = torch.randn(2, *_image_size(model.config), generator=generator)
    if main == "input_values":
        result[main] = torch.randn(2, 2000, generator=generator)
    if main == "input_features":
        bins = getattr(model.config, "num_mel_bins", None) or 80
        result[main] = torch.randn(2, bins, 64, generator=generator)
    if "decoder_input_ids" in takes and ("input_ids" in result or "input_features" in result):
        result["decoder_input_ids"] = ids[:, :8].clone()
    if "attention_mask" in takes and "input_ids" in result:
        mask = torch.ones(2, 16, dtype=torch.long)
        mask[1, 12:] = 0
        result["attention_mask"] = mask
    return result
