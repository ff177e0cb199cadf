"""Export learned low-rank terms as a peft folder, and adapters as safetensors and JSON.

peft computes y = W x + (lora_alpha / r) B A x. The export folds the ordering weights w_k into B and sets alpha to r
for every map. The factor is then one, even for readers that know only one r and one alpha. Maps of rank zero are left
out.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ngn
from experiments.models.adapter import Adapter, attach_adapters
from experiments.tasks.language.folders import ExportError, check_sums
from experiments.tasks.language.fused import KINDS, SplitMap, join_maps
from ngn.components.low_rank import LowRankLinear
from ngn.files import write_atomically
from ngn.tensor_files import read_checked, write_checked

Terms = dict[str, tuple[Tensor, Tensor]]
"""Full name of a map → down [m, in] and up [out, m], with the ordering weights folded in."""
WEIGHTS, CONFIG, EMPTY = "adapter_model.safetensors", "adapter_config.json", "EMPTY.txt"
ADAPTERS = "adapters.safetensors", "adapters.json"


def low_rank_terms(deployed: nn.Module) -> Terms:
    """Return the low-rank terms of a deployed model; those of q, k and v of a fused map as terms of that map."""
    found, inside = {}, []
    for name, part in deployed.named_modules():
        if isinstance(part, SplitMap):
            inside += [f"{name}.{kind}" for kind in KINDS]
            if (terms := part.terms()) is not None:
                found[name] = terms
        elif isinstance(part, LowRankLinear) and name not in inside:
            found[name] = (part.down.detach(), part.up.detach())
    return found


def write_peft(deployed: nn.Module, folder: Path, base: str) -> dict[str, int]:
    """Write the terms of a deployed model in the format of ``PeftModel.from_pretrained``.

    Args:
        folder: created if missing. Without any term it holds only a note, because peft refuses an empty adapter.
        base: name or path of the pretrained model.

    Returns:
        The rank of every map that has terms.
    """
    terms = low_rank_terms(deployed)
    ranks = {name: down.shape[0] for name, (down, _) in terms.items()}
    for name in (WEIGHTS, CONFIG, EMPTY):
        (folder / name).unlink(missing_ok=True)
    if not terms:
        write_atomically(folder / EMPTY, f"No low-rank term was learned. The model equals {base}.\n".encode())
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
    write_checked(folder / WEIGHTS, tensors, {"format": "pt"})
    write_atomically(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode(), replace=True)
    return ranks


@torch.no_grad()
def check_peft(folder: Path, base: Any, deployed: nn.Module, ids: Tensor) -> float:
    """Load a written folder with stock peft and compare it with the deployed model.

    Args:
        base: the pretrained model, whose fused maps are put together again; peft modifies it.
        ids: a sample, int64 [N, L].

    Returns:
        The largest difference of logits, relative to the largest logit.

    Raises:
        ExportError: if the maps, a rank, a scale or the logits differ, or a B is zero.
    """
    from peft import PeftModel
    from peft.tuners.lora import LoraLayer

    wanted = low_rank_terms(deployed)
    if not wanted:
        if (folder / CONFIG).exists():
            raise ExportError(f"{folder} holds an adapter, but the model has no low-rank terms")
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses an old name of transformers
        adapted: Any = PeftModel.from_pretrained(join_maps(base), folder)
    layers: dict[str, Any] = {
        name: part for name, part in adapted.base_model.model.named_modules() if isinstance(part, LoraLayer)
    }
    if layers.keys() != wanted.keys():
        raise ExportError(f"peft attached terms to {sorted(layers)}; expected {sorted(wanted)}")
    for name, (down, up) in wanted.items():
        a, b = layers[name].lora_A["default"].weight, layers[name].lora_B["default"].weight
        same = a.shape == down.shape and torch.equal(a, down.to(a)) and torch.equal(b, up.to(b))
        if not same or layers[name].scaling["default"] != 1.0 or not bool(b.any()):
            raise ExportError(f"{folder}: peft reads other terms of {name} than were written")
    adapted.eval()
    return logit_difference(adapted, deployed, ids, 1e-4)


@torch.no_grad()
def logit_difference(model: Any, deployed: Any, ids: Tensor, most: float = 1e-5) -> float:
    """Return the largest difference of two models' logits for ``ids`` [N, L], relative to the largest logit.

    Raises:
        ExportError: if the difference exceeds both ``most`` and the precision of the weights.
    """
    ours, theirs = deployed(input_ids=ids).logits.float(), model(input_ids=ids).logits.float()
    found = float((ours - theirs).abs().max() / ours.abs().max())
    if not found <= max(most, 8 * torch.finfo(next(deployed.parameters()).dtype).eps):
        raise ExportError(f"the model read back gives logits that differ by {found:.1e} of the largest")
    return found


def write_adapters(deployed: nn.Module, folder: Path, base: str) -> dict[str, int]:
    """Write the adapters of a deployed model: weights as safetensors, their description as JSON.

    Returns:
        Number of units of every layer that has an adapter.
    """
    parts = {name: part for name, part in deployed.named_modules() if isinstance(part, Adapter)}
    tensors = {f"{name}.{key}": getattr(part, key) for name, part in parts.items() for key in ("down", "up")}
    units = {name: part.down.shape[0] for name, part in parts.items()}
    described = {"type": "adapter", "formula": "h + up gelu(down h)", "base": base, "layers": units}
    write_checked(folder / ADAPTERS[0], tensors)
    write_atomically(folder / ADAPTERS[1], (json.dumps(described, indent=2) + "\n").encode(), replace=True)
    return units


def load_adapters(model: nn.Module, folder: Path) -> nn.Module:
    """Return the pretrained ``model``, frozen, with the adapters that :func:`write_adapters` wrote to a folder.

    Raises:
        ExportError: if a file was changed or is damaged, or the two files of the folder do not match.
        ValueError: if the model lacks one of the layers.
        OSError: if a file cannot be read.
    """
    check_sums(folder)
    try:
        units: dict[str, int] = dict(json.loads((folder / ADAPTERS[1]).read_bytes())["layers"])
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        raise ExportError(f"{folder / ADAPTERS[1]}: damaged ({fault})") from None
    tensors, _ = read_checked(folder / ADAPTERS[0])
    if tensors.keys() != {f"{name}.{key}" for name in units for key in ("down", "up")}:
        raise ExportError(f"{folder}: {ADAPTERS[0]} and {ADAPTERS[1]} come from different models")
    sizes: Sequence[int] = list(units.values())
    for features in {tensors[f"{name}.up"].shape[0] for name in units}:
        attach_adapters(model, list(units), features, lambda number: ngn.FixedCount(sizes[number], r=1.0), seed=0)
    for name in units:
        for key in ("down", "up"):
            model.get_submodule(name).get_parameter(key).data.copy_(tensors[f"{name}.{key}"])
    return ngn.deploy(model, share_frozen=True) if units else model.eval()
