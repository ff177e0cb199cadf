"""Pruned models for stock transformers: padded to the widest layer.

transformers builds all layers of a Llama or GPT-NeoX alike. Padding fills narrower layers with zero neurons and heads,
which add nothing: act(0) = 0 in a feed-forward block, and a head with zero values outputs zero.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from experiments.core.task import DataInfo
from experiments.tasks.language.base import PretrainedModel
from experiments.tasks.language.pruning import prunable_parts


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
