"""Write and read pruned models: padded to the widest layer for stock transformers, or compact.

transformers builds all layers of a Llama or GPT-NeoX alike. Padding fills narrower layers with zero neurons and heads,
which add nothing: act(0) = 0 in a feed-forward block, and a head with zero values outputs zero. A padded folder loads
everywhere. A compact folder holds only the weights that are left, and only this project reads it.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

import ngn
from experiments.core.task import DataInfo
from experiments.tasks.language.base import PretrainedModel
from experiments.tasks.language.folders import check_sums
from experiments.tasks.language.pruning import OUTPUT_MAP, learned_size_of, prunable_parts

WEIGHTS = "model.safetensors"


def pad_layers(deployed: Any) -> Any:
    """Return a stock transformers model with all layers padded to the widest, in eval mode.

    GPT-NeoX derives the size of a head from the number of heads. Its heads are therefore padded to the original number.
    """
    config, layers = copy.deepcopy(deployed.config), _base(deployed)
    config.intermediate_size = max(part.size for part in prunable_parts(layers, ["ffn"]))
    if hasattr(config, "num_key_value_heads"):
        inputs = max(deployed.get_submodule(part.map).in_features for part in prunable_parts(layers, ["heads"]))
        group, head = config.num_attention_heads // config.num_key_value_heads, config.head_dim
        config.head_dim, config.num_attention_heads = head, inputs // head
        config.num_key_value_heads = config.num_attention_heads // group
    like = next(deployed.parameters())
    with torch.device(like.device):
        model = type(deployed)(config).to(like.dtype).eval().requires_grad_(False)
    model.set_attn_implementation("sdpa")
    model.generation_config = copy.deepcopy(deployed.generation_config)  # where answers end, and how they are drawn
    left = dict(deployed.named_parameters())
    for name, value in model.named_parameters():
        value.zero_()[tuple(slice(size) for size in left[name].shape)] = left[name].detach()
    return model


def _base(model: Any) -> PretrainedModel:
    return PretrainedModel(model, None, DataInfo(type(model).__name__, "", ""), ())


def write_compact(deployed: Any, folder: Path) -> None:
    """Write the pruned weights as safetensors, whose shapes give the sizes, with the configs of the dense model."""
    folder.mkdir(parents=True, exist_ok=True)
    deployed.config.save_pretrained(folder)
    deployed.generation_config.save_pretrained(folder)
    ngn.save(deployed, folder / WEIGHTS)


def load_compact(folder: str | Path) -> Any:
    """Load a model that :func:`write_compact` wrote, frozen, in eval mode, with the file's number types.

    Raises:
        ValueError: if a file was changed or is damaged, or belongs to another model.
    """
    check_sums(Path(folder))
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
    from transformers.utils import GENERATION_CONFIG_NAME

    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="sdpa")
    model.tie_weights()  # init_empty_weights untied them
    if (Path(folder) / GENERATION_CONFIG_NAME).is_file():  # folders of earlier versions have none
        model.generation_config = GenerationConfig.from_pretrained(folder)
    parts = prunable_parts(_base(model), [*OUTPUT_MAP])
    single = {part.module: learned_size_of(part, part.size) for part in parts}
    ngn.learn_sizes(model, single, by_importance=None, capacity=lambda _, K: ngn.FixedCount(K, r=1.0))
    return ngn.load(model, Path(folder) / WEIGHTS).requires_grad_(False)
