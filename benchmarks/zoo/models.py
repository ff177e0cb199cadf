"""Models of torchvision, timm and transformers with random weights, each with an example.

A model of torchvision or timm is as its constructor makes it, on images as small as it takes. A configuration of
transformers is made tiny.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Model:
    """A model of a collection.

    Attributes:
        build: makes it, with random weights.
        example: an input; a dictionary for keyword arguments.
        larger: an input of another size: three images, or three shorter texts.
    """

    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    larger: Callable[[], Any]


TOO_LARGE = {
    "regnet_y_128gf": "645 million parameters",
    "vit_h_14": "632 million parameters",
    "vit_l_16": "304 million parameters",
    "vit_l_32": "306 million parameters",
    "convnext_large": "198 million parameters",
    "regnet_y_32gf": "145 million parameters",
    "regnet_x_32gf": "108 million parameters",
    "wide_resnet101_2": "127 million parameters",
    "efficientnet_v2_l": "119 million parameters",
}
"""Models of torchvision that need more than the processor and memory of the machine of this table."""


def images(side: int, number: int = 2) -> Tensor:
    """Random images, [number, 3, side, side]."""
    return torch.randn(number, 3, side, side)


def on_images(build: Callable[[], nn.Module], side: int) -> Model:
    """A model of images with ``side`` pixels a side."""
    return Model(build, lambda: images(side), lambda: images(side, 3))


class Heads(nn.Module):
    """A detector of torchvision up to what its heads return.

    Which boxes are kept is decided by a sort, so there the last digit of a number can change all that follows.
    Detectors in two stages read four fixed boxes of each image, in place of those that the first stage proposes.
    """

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: Tensor) -> list[Tensor]:
        detector: Any = self.detector
        features = detector.backbone(batch)
        if not hasattr(detector, "roi_heads"):
            return [*detector.head([*features.values()]).values()]
        side = float(batch.shape[-1])
        boxes = torch.tensor([[0.0, 0.0, side, side], [2, 2, 30, 40], [5, 20, 50, 60], [30, 8, 60, 24]])
        proposals, sizes = [boxes.to(batch)] * len(batch), [tuple(batch.shape[-2:])] * len(batch)
        logits, deltas = detector.rpn.head([*features.values()])
        heads = detector.roi_heads
        pooled = heads.box_roi_pool(features, proposals, sizes)
        results = [*logits, *deltas, *heads.box_predictor(heads.box_head(pooled))]
        for kind in ("mask", "keypoint"):
            if getattr(heads, f"{kind}_roi_pool", None) is not None:
                pooled = getattr(heads, f"{kind}_roi_pool")(features, proposals, sizes)
                results.append(getattr(heads, f"{kind}_predictor")(getattr(heads, f"{kind}_head")(pooled)))
        return results


def torchvision_models() -> dict[str, Callable[[], Model]]:
    """Every model of classification, segmentation and detection that torchvision registers.

    GoogLeNet and Inception v3 are there without their heads for the training, and with them as ``..._aux``.
    """
    import torchvision

    models = torchvision.models
    sides = {"inception_v3": 80, "inception_v3_aux": 299, "maxvit_t": 224, "vit_b_16": 32, "vit_b_32": 64}
    settings: dict[str, dict[str, Any]] = {
        "vit_b_16": {"image_size": 32},
        "vit_b_32": {"image_size": 64},
        "maxvit_t": {"input_size": (224, 224)},
        "inception_v3": {"init_weights": False, "aux_logits": False},
        "googlenet": {"init_weights": False, "aux_logits": False},
        "inception_v3_aux": {"init_weights": False, "aux_logits": True},
        "googlenet_aux": {"init_weights": False, "aux_logits": True},
    }

    def classifier(name: str) -> Model:
        kind, given = name.removesuffix("_aux"), settings.get(name, {})
        return on_images(lambda: models.get_model(kind, weights=None, **given), sides.get(name, 64))

    bare = {"weights": None, "weights_backbone": None}

    def segmenter(name: str) -> Model:
        return on_images(lambda: models.get_model(name, **bare, num_classes=21), 64)

    def detector(name: str) -> Model:
        side = 300 if name == "ssd300_vgg16" else 64
        return on_images(lambda: Heads(models.get_model(name, **bare, num_classes=7)), side)

    listed = ((classifier, models), (segmenter, models.segmentation), (detector, models.detection))
    names = [(kind, name) for kind, module in listed for name in models.list_models(module=module)]
    names += [(classifier, "googlenet_aux"), (classifier, "inception_v3_aux")]
    return {name: partial(kind, name) for kind, name in names}


TIMM: dict[str, dict[str, Any]] = {
    "resnet18": {}, "resnext26ts": {}, "seresnext26d_32x4d": {}, "regnety_002": {}, "densenet121": {},
    "mobilenetv3_small_050": {}, "mobilenetv4_conv_small": {}, "efficientnet_b0": {}, "tinynet_e": {}, "lcnet_035": {},
    "ghostnet_050": {}, "repghostnet_050": {}, "rexnet_100": {}, "convnext_atto": {}, "convnextv2_atto": {},
    "vit_tiny_patch16_224": {"img_size": 32},
    "deit3_small_patch16_224": {"img_size": 32}, "eva02_tiny_patch14_224": {"img_size": 56},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "window_size": 7}, "swinv2_cr_tiny_224": {"img_size": 224},
    "mixer_s32_224": {"img_size": 64}, "gmlp_ti16_224": {"img_size": 64}, "resmlp_12_224": {"img_size": 64},
    "cait_xxs24_224": {"img_size": 32}, "pit_ti_224": {"img_size": 64}, "levit_128s": {}, "xcit_nano_12_p16_224": {},
    "poolformer_s12": {}, "mobilevit_xxs": {}, "edgenext_xx_small": {}, "hrnet_w18_small": {}, "dla34": {},
    "res2net50_26w_4s": {}, "skresnet18": {}, "resnest14d": {}, "repvgg_a0": {}, "cspresnet50": {},
    "ese_vovnet19b_dw": {}, "visformer_tiny": {"img_size": 64}, "pvt_v2_b0": {}, "efficientvit_b0": {},
    "fastvit_t8": {},
    "starnet_s1": {}, "mambaout_femto": {}, "nf_regnet_b0": {}, "inception_next_atto": {}, "coat_lite_tiny": {},
}  # fmt: skip
"""Models of timm, most from a family of their own → settings of the constructor. Those of fixed resolution get less."""
TIMM_SIDES = {"levit_128s": 224, "xcit_nano_12_p16_224": 64, "coat_lite_tiny": 224}


def timm_models() -> dict[str, Callable[[], Model]]:
    """The models of timm."""
    import timm

    def entry(name: str, given: dict[str, Any]) -> Callable[[], Model]:
        side = given.get("img_size", TIMM_SIDES.get(name, 64))
        return lambda: on_images(lambda: timm.create_model(name, pretrained=False, **given), side)

    return {name: entry(name, given) for name, given in TIMM.items()}


_TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 64}
_LLAMA = _TEXT | {"num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
_EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_VISION = _TEXT | {"image_size": 32, "patch_size": 8}
_STAGES = {"image_size": 64, "hidden_sizes": [16, 32], "depths": [1, 1]}
_PAIR = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "vocab_size": 64}
_PAIR |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
_DEEPSEEK = {"num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8}
_DEEPSEEK |= {"qk_nope_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_DEEPSEEK |= {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "n_shared_experts": 1}
_WHISPER = {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16, "pad_token_id": 0}
_WHISPER |= {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_SOUND = {"conv_dim": [16, 16], "conv_stride": [4, 4], "conv_kernel": [8, 4], "num_feat_extract_layers": 2}
_SOUND |= {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0}
_SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_SEGFORMER: dict[str, Any] = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32]}
_SEGFORMER |= {"num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16, "num_labels": 3}
TRANSFORMERS: dict[tuple[str, str], dict[str, tuple[str, dict[str, Any]]]] = {
    ("ForCausalLM", "text"): {
        "llama": ("Llama", _LLAMA),
        "mistral": ("Mistral", _LLAMA),
        "qwen2": ("Qwen2", _LLAMA),
        "qwen3": ("Qwen3", _LLAMA | {"head_dim": 8}),
        "gemma2": ("Gemma2", _LLAMA | {"head_dim": 8}),
        "phi3": ("Phi3", _LLAMA),
        "olmo2": ("Olmo2", _LLAMA),
        "cohere": ("Cohere", _LLAMA),
        "stablelm": ("StableLm", _LLAMA),
        "granite": ("Granite", _LLAMA),
        "mixtral": ("Mixtral", _LLAMA | _EXPERTS),
        "qwen3_moe": ("Qwen3Moe", _LLAMA | _EXPERTS | {"head_dim": 8}),
        "deepseek_v3": ("DeepseekV3", _LLAMA | _DEEPSEEK),
        "gpt_neo": (
            "GPTNeo",
            {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "vocab_size": 64, "intermediate_size": 48}
            | {"attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64},
        ),
        "gpt_neox": ("GPTNeoX", _TEXT),
        "gptj": ("GPTJ", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "rotary_dim": 4}),
        "opt": ("OPT", _TEXT | {"ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 64}),
        "bloom": ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64}),
        "falcon": ("Falcon", _TEXT | {"new_decoder_architecture": False}),
        "mpt": ("Mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 64}),
        "mamba": ("Mamba", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "state_size": 8}),
    },
    ("LMHeadModel", "text"): {"gpt2": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64})},
    ("ForMaskedLM", "text"): {
        "bert": ("Bert", _TEXT),
        "roberta": ("XLMRoberta", _TEXT | {"max_position_embeddings": 64}),
        "electra": ("Electra", _TEXT | {"embedding_size": 16}),
        "albert": ("Albert", _TEXT | {"embedding_size": 16}),
        "distilbert": ("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 64}),
        "deberta_v2": (
            "DebertaV2",
            _TEXT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 64},
        ),
    },
    ("ForConditionalGeneration", "pair"): {
        "t5": (
            "T5",
            {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4, "vocab_size": 64}
            | {"feed_forward_proj": "gated-gelu"},
        ),
        "bart": ("Bart", _PAIR | {"max_position_embeddings": 64}),
    },
    ("ForConditionalGeneration", "speech"): {"whisper": ("Whisper", _PAIR | _WHISPER)},
    ("ForCTC", "sound"): {"wav2vec2": ("Wav2Vec2", _TEXT | _SOUND)},
    ("ModelWithProjection", "images"): {"clip": ("CLIPVision", _VISION | {"projection_dim": 16})},
    ("ForImageClassification", "images"): {
        "vit": ("ViT", _VISION),
        "dinov2": ("Dinov2", _VISION),
        "swin": ("Swin", _SWIN),
    },
    ("ForSemanticSegmentation", "pictures"): {"segformer": ("Segformer", _SEGFORMER)},
    ("ForImageClassification", "pictures"): {"convnext": ("ConvNext", _STAGES | {"num_stages": 2})},
}
"""End of the name of a class, kind of input → name → beginning of its name, values of its configuration."""


def _inputs(kind: str, number: int, length: int) -> dict[str, Tensor]:
    tokens, answers = torch.randint(3, 64, (number, length)), torch.randint(3, 64, (number, length - 4))
    return {
        "text": {"input_ids": tokens},
        "pair": {"input_ids": tokens, "decoder_input_ids": answers},
        "speech": {"input_features": torch.randn(number, 8, 32), "decoder_input_ids": answers},
        "sound": {"input_values": torch.randn(number, 160 * (length - 1))},
        "images": {"pixel_values": images(32, number)},
        "pictures": {"pixel_values": images(64, number)},
    }[kind]


def transformers_models() -> dict[str, Callable[[], Model]]:
    """The models of transformers, with tiny configurations."""
    import transformers

    def entry(kind: Any, config: Any, values: dict[str, Any], inputs: str) -> Callable[[], Model]:
        def build() -> nn.Module:
            made = kind(config(**values))
            for each in (made.config, *(getattr(m, "config", made.config) for m in made.modules())):
                each.use_cache = False
            return made

        return lambda: Model(build, lambda: _inputs(inputs, 2, 11), lambda: _inputs(inputs, 3, 9))

    def of(name: str) -> Any:
        return getattr(transformers, name)  # imported here, for all processes

    return {
        name: entry(of(f"{start}{end}"), of(f"{start}Config"), values, inputs)
        for (end, inputs), models in TRANSFORMERS.items()
        for name, (start, values) in models.items()
    }


COLLECTIONS: dict[str, Callable[[], dict[str, Callable[[], Model]]]] = {
    "torchvision": torchvision_models,
    "timm": timm_models,
    "transformers": transformers_models,
}


def missing(package: str) -> bool:
    """Whether ``package`` is not installed."""
    return importlib.util.find_spec(package) is None
