"""Pruned models as files: of a stock class of transformers, padded to the widest layer, or compact, layer by layer.

transformers builds all layers of a Llama or GPT-NeoX alike. A layer that is narrower than the widest gets neurons and
heads of zeros, which add nothing: act(0) = 0 in a feed-forward block, and a head whose values are zero gives zero.
Such a folder loads everywhere. The compact form holds what is left and nothing else, and needs this project to be read.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

import ngn
from experiments.data.source import DataInfo
from experiments.language.base import Base
from experiments.language.pruning import BEHIND, parts_of, spec_of

WEIGHTS = "model.safetensors"


def padded(deployed: Any) -> Any:
    """The model as a stock one whose layers are all as wide as the widest, in eval mode.

    In Llama both neurons and heads are padded to the most that a layer has. GPT-NeoX takes the size of a head from the
    number of heads, so that its heads are padded to the original number.
    """
    config, layers = copy.deepcopy(deployed.config), _base(deployed)
    config.intermediate_size = max(part.size for part in parts_of(layers, ["ffn"]))
    if hasattr(config, "num_key_value_heads"):
        inputs = max(deployed.get_submodule(part.map).in_features for part in parts_of(layers, ["heads"]))
        group, head = config.num_attention_heads // config.num_key_value_heads, config.head_dim
        config.head_dim, config.num_attention_heads = head, inputs // head
        config.num_key_value_heads = config.num_attention_heads // group
    like = next(deployed.parameters())
    with torch.device(like.device):
        model = type(deployed)(config).to(like.dtype).eval().requires_grad_(False)
    model.set_attn_implementation("sdpa")
    left = dict(deployed.named_parameters())
    for name, value in model.named_parameters():
        value.zero_()[tuple(slice(size) for size in left[name].shape)] = left[name].detach()
    return model


def _base(model: Any) -> Base:
    return Base(model, None, DataInfo(type(model).__name__, "", ""), ())


def write_compact(deployed: Any, folder: Path) -> None:
    """Write what is left as safetensors, whose shapes are the sizes, with the config of the dense model."""
    folder.mkdir(parents=True, exist_ok=True)
    deployed.config.save_pretrained(folder)
    ngn.save(deployed, folder / WEIGHTS)


def load_compact(folder: str | Path) -> Any:
    """The pruned model of a folder of :func:`write_compact`, frozen, in eval mode, in the types of the file.

    Raises:
        ValueError: if the file is of another model.
    """
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="sdpa")
    model.tie_weights()  # undone by taking the weights away
    parts = parts_of(_base(model), [*BEHIND])
    single = {part.module: spec_of(part, part.size) for part in parts}
    ngn.learn_sizes(model, single, capacity=lambda _, K: ngn.FixedCount(K, r=1.0))
    return ngn.load(model, Path(folder) / WEIGHTS).requires_grad_(False)
