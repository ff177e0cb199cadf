"""Export learned low-rank terms as a peft folder, and adapters as safetensors and JSON."""

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
from experiments.tasks.language.fused import join_maps
from ngn.components.low_rank import LowRankLinear
from ngn.cut.truncation import deploy
from ngn.files import write_atomically
from ngn.integrations.peft import CONFIG, WEIGHTS
from ngn.methods.fixed import FixedCount
from ngn.tensor_files import read_checked, write_checked

EMPTY = "EMPTY.txt"
ADAPTERS = "adapters.safetensors", "adapters.json"


def write_peft(deployed: nn.Module, folder: Path, base: str) -> dict[str, int]:
    """Write the low-rank terms of a deployed model with :func:`ngn.to_peft`; those of q, k and v as of the fused map.

    Args:
        folder: created if missing. Without any term it holds only a note, because peft refuses an empty adapter.
        base: name or path of the pretrained model.

    Returns:
        The rank of every map that has terms.

    Raises:
        ExportError: if peft would read another model, or an upper map is zero.
    """
    for name in (WEIGHTS, CONFIG, EMPTY):
        (folder / name).unlink(missing_ok=True)
    joined = join_maps(deploy(deployed, share_frozen=True))
    terms = {path: part for path, part in joined.named_modules() if isinstance(part, LowRankLinear)}
    if not terms:
        write_atomically(folder / EMPTY, f"No low-rank term was learned. The model equals {base}.\n".encode())
        return {}
    if zero := [path for path, part in terms.items() if not bool(part.up.any())]:
        raise ExportError(f"{folder}: the terms of {', '.join(zero)} are zero, so they were not trained")
    try:
        return ngn.to_peft(joined, folder, base=base)
    except ValueError as fault:
        raise ExportError(str(fault)) from fault


def check_peft(folder: Path, base: Any, deployed: nn.Module, ids: Tensor) -> float:
    """Load a written folder with stock peft beside the pretrained ``base``, and return :func:`logit_difference`.

    Args:
        base: the pretrained model, whose fused maps are put together again; peft modifies it.
    """
    from peft import PeftModel

    base = join_maps(base)
    if (folder / EMPTY).exists():
        return logit_difference(base, deployed, ids, 1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses an old name of transformers
        return logit_difference(PeftModel.from_pretrained(base, folder).eval(), deployed, ids, 1e-4)


@torch.no_grad()
def logit_difference(model: Any, deployed: Any, ids: Tensor, most: float = 1e-5) -> float:
    """Return the largest difference of two models' logits for ``ids`` [N, L], relative to the largest logit.

    Raises:
        ExportError: if the difference exceeds both ``most`` and the precision of the weights.
    """
    ours, theirs = deployed(input_ids=ids).logits.float(), model(input_ids=ids).logits.float()
    difference = float((ours - theirs).abs().max() / ours.abs().max())
    if not difference <= max(most, 8 * torch.finfo(next(deployed.parameters()).dtype).eps):
        raise ExportError(f"the model read back gives logits that differ by {difference:.1e} of the largest")
    return difference


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
        attach_adapters(model, list(units), features, lambda number: FixedCount(sizes[number], r=1.0), seed=0)
    for name in units:
        for key in ("down", "up"):
            model.get_submodule(name).get_parameter(key).data.copy_(tensors[f"{name}.{key}"])
    return deploy(model, share_frozen=True) if units else model.eval()
