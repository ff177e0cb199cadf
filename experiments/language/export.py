"""Learned low-rank terms as a folder of peft's, or merged into the model; learned adapters as safetensors and JSON.

peft computes y = W x + (lora_alpha / r) B A x. The ordering weights w_k are folded into B, and alpha is r for every
map, so that the factor is one: also for readers that know one r and one alpha alone. Maps of rank zero are left out.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

import ngn
from experiments.models.adapter import Adapter, attach_adapters
from ngn.components.low_rank import LowRankLinear, replace
from ngn.files import publish, publish_tensors

Terms = dict[str, tuple[Tensor, Tensor]]
"""Full name of a map → down [m, in] and up [out, m], the weights folded in."""
WEIGHTS, CONFIG, EMPTY = "adapter_model.safetensors", "adapter_config.json", "EMPTY.txt"
ADAPTERS = "adapters.safetensors", "adapters.json"


class ExportError(ValueError):
    """What was written is not what was to be exported."""


def terms_of(deployed: nn.Module) -> Terms:
    """The low-rank terms of a deployed model."""
    parts = ((name, part) for name, part in deployed.named_modules() if isinstance(part, LowRankLinear))
    return {name: (part.down.detach(), part.up.detach()) for name, part in parts}


def write_peft(deployed: nn.Module, folder: Path, base: str) -> dict[str, int]:
    """Write the terms of a deployed model as ``PeftModel.from_pretrained`` reads them.

    Args:
        folder: made if it is not there. Without any term it gets no adapter, which peft would refuse, but a note.
        base: name or path of the model that they were trained beside.

    Returns:
        The rank of every map that has terms.
    """
    terms = terms_of(deployed)
    ranks = {name: down.shape[0] for name, (down, _) in terms.items()}
    for name in (WEIGHTS, CONFIG, EMPTY):
        (folder / name).unlink(missing_ok=True)
    if not terms:
        publish(folder / EMPTY, f"No term was learned: the model is {base} as it is.\n".encode())
        return ranks
    tensors = {}
    for name, (down, up) in terms.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = down
        tensors[f"base_model.model.{name}.lora_B.weight"] = up
    largest = max(ranks.values())
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "inference_mode": True,
        "r": largest, "lora_alpha": largest, "rank_pattern": ranks, "alpha_pattern": ranks,
        "target_modules": list(ranks), "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
    }  # fmt: skip
    publish_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    publish(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode(), replace=True)
    return ranks


@torch.no_grad()
def check_peft(folder: Path, base: Any, deployed: nn.Module, ids: Tensor) -> float:
    """Load a written folder with stock peft and compare it with the deployed model.

    Args:
        base: the pretrained model, which peft changes.
        ids: a sample, int64 [N, L].

    Returns:
        The largest difference of logits, relative to the largest logit.

    Raises:
        ExportError: if a map is missing or too many, a rank or scale is another, a B is zero, or the logits differ.
    """
    from peft import PeftModel
    from peft.tuners.lora import LoraLayer

    wanted = terms_of(deployed)
    if not wanted:
        if (folder / CONFIG).exists():
            raise ExportError(f"{folder} holds an adapter, but there are no terms")
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what peft asks of transformers by an older name
        adapted: Any = PeftModel.from_pretrained(base, folder)
    layers: dict[str, Any] = {
        name: part for name, part in adapted.base_model.model.named_modules() if isinstance(part, LoraLayer)
    }
    if layers.keys() != wanted.keys():
        raise ExportError(f"peft has put terms beside {sorted(layers)}, not {sorted(wanted)}")
    for name, (down, up) in wanted.items():
        a, b = layers[name].lora_A["default"].weight, layers[name].lora_B["default"].weight
        same = a.shape == down.shape and torch.equal(a, down.to(a)) and torch.equal(b, up.to(b))
        if not same or layers[name].scaling["default"] != 1.0 or not bool(b.any()):
            raise ExportError(f"{folder}: peft does not read the terms of {name} as they were written")
    adapted.eval()
    return difference(adapted, deployed, ids, 1e-4)


@torch.no_grad()
def difference(model: Any, deployed: Any, ids: Tensor, most: float = 1e-5) -> float:
    """The largest difference of the logits of two models for ``ids`` [N, L], relative to the largest logit.

    Raises:
        ExportError: if that is more than ``most``, and than the precision of the weights explains.
    """
    ours, theirs = deployed(input_ids=ids).logits.float(), model(input_ids=ids).logits.float()
    found = float((ours - theirs).abs().max() / ours.abs().max())
    if not found <= max(most, 8 * torch.finfo(next(deployed.parameters()).dtype).eps):
        raise ExportError(f"what is read back gives logits that differ by {found:.1e}")
    return found


@torch.no_grad()
def merged(deployed: nn.Module) -> nn.Module:
    """A copy in which the terms are added to the frozen weights, which it otherwise shares.

    In bfloat16 that rounds away what is smaller than 1/256 of a weight: such a model has a score of its own.
    """
    shared = {id(tensor): tensor for tensor in (*deployed.parameters(), *deployed.buffers())}
    model = copy.deepcopy(deployed, shared)
    for name, (down, up) in terms_of(deployed).items():
        replace(model, name, partial(_sum, (up.double() @ down.double())))
    return model


def _sum(product: Tensor, terms: Any) -> nn.Linear:
    linear: nn.Linear = copy.copy(terms.base)
    linear._parameters = {**terms.base._parameters}
    linear.weight = nn.Parameter((linear.weight.double() + product).to(linear.weight.dtype), requires_grad=False)
    return linear


def write_adapters(deployed: nn.Module, folder: Path, base: str) -> dict[str, int]:
    """Write the adapters of a deployed model: their weights, and in JSON what they are.

    Returns:
        Units of every layer that has an adapter.
    """
    parts = {name: part for name, part in deployed.named_modules() if isinstance(part, Adapter)}
    tensors = {f"{name}.{key}": getattr(part, key) for name, part in parts.items() for key in ("down", "up")}
    units = {name: part.down.shape[0] for name, part in parts.items()}
    described = {"type": "adapter", "formula": "h + up gelu(down h)", "base": base, "layers": units}
    publish_tensors(folder / ADAPTERS[0], tensors)
    publish(folder / ADAPTERS[1], (json.dumps(described, indent=2) + "\n").encode(), replace=True)
    return units


def load_adapters(model: nn.Module, folder: Path) -> nn.Module:
    """The pretrained ``model``, frozen, with the adapters of a folder of :func:`write_adapters`.

    Raises:
        ExportError: if the folder's files do not agree.
        ValueError: if the model has no such layers.
    """
    units: dict[str, int] = json.loads((folder / ADAPTERS[1]).read_text())["layers"]
    tensors = safetensors.torch.load((folder / ADAPTERS[0]).read_bytes())
    if tensors.keys() != {f"{name}.{key}" for name in units for key in ("down", "up")}:
        raise ExportError(f"{folder}: {ADAPTERS[0]} and {ADAPTERS[1]} are of different models")
    sizes: Sequence[int] = list(units.values())
    for features in {tensors[f"{name}.up"].shape[0] for name in units}:
        attach_adapters(model, list(units), features, lambda number: ngn.FixedCount(sizes[number], r=1.0), seed=0)
    for name in units:
        for key in ("down", "up"):
            model.get_submodule(name).get_parameter(key).data.copy_(tensors[f"{name}.{key}"])
    return ngn.deploy(model, share_frozen=True) if units else model.eval()
