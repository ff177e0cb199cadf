"""Write learned ranks as an adapter of peft, which stock ``PeftModel.from_pretrained`` reads."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ngn.checks import is_frozen
from ngn.comparison import check_equal
from ngn.components.low_rank import LowRankLinear, replace
from ngn.cut.modules import LAYERS, WHOLE
from ngn.differences import check_deployed
from ngn.tensor_files import tensors_of, write_checked
from ngn.tracing.found import listed

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def to_peft(model: nn.Module, folder: str | Path, base: str | None = None, example: Any = None) -> dict[str, int]:
    """Write the learned ranks of a deployed model as a folder for ``PeftModel.from_pretrained``, which needs no ngn.

    The model is a ``PeftModel`` whose ranks were learned, with all of its adapters; or one with the terms of
    ``ngn.Rank``. Of the latter, modules outside the terms that were trained, such as a head, are written as
    ``modules_to_save``. The scale of each map is as trained. Maps of rank zero are left out.

    Stock peft reads the folder back, onto a copy that shares the base, before it gets its name. Tensors, ranks, scales
    and outputs must agree.

    Args:
        base: name or path of the pretrained model. Default: that of the model's configuration.
        example: an input to compare outputs on. Default: the model's ``dummy_inputs``, if it has any.

    Returns:
        The rank of each map.

    Raises:
        ValueError: if there are no ranks, sizes are still learned, other sizes or the base were learned, too, or stock
            peft would read another model. Nothing is written then.
        ImportError: if peft is not installed.

    >>> import tempfile, torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    >>> learner = ngn.learn_sizes(model, {"0": ngn.Rank(4, t0=1.8)}, frozen=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ngn.to_peft(learner.deploy(unsettled="allow"), folder)
    {'0': 2}
    """
    from peft import PeftModel

    check_deployed(model, "to_peft")
    if example is None and (given := getattr(model, "dummy_inputs", None)):
        device = next(model.parameters()).device
        example = {name: value.to(device) for name, value in given.items()}
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as place:
        if isinstance(model, PeftModel):
            model.save_pretrained(place)
            ranks = {path: rank for path, rank in _read_back(model, Path(place), example).items() if rank}
        else:
            ranks = _write_terms(model, Path(place), base, example)
        for file in [file for file in sorted(Path(place).rglob("*")) if file.is_file()]:
            target = Path(folder) / file.relative_to(place)
            target.parent.mkdir(exist_ok=True)
            os.replace(file, target)
    return ranks


def _write_terms(model: nn.Module, folder: Path, base: str | None, example: Any) -> dict[str, int]:
    terms = {path: part for path, part in model.named_modules() if isinstance(part, LowRankLinear)}
    if not terms:
        raise ValueError("the model has no learned ranks: every rank is zero, or no layer was given an ngn.Rank")
    if cut := [path for path, part in model.named_modules() if {WHOLE, LAYERS} & vars(part).keys()]:
        raise ValueError(f"an adapter holds ranks alone; other sizes were learned, too: {listed(cut)}. Use ngn.save")
    ranks = {path: len(part.down) for path, part in terms.items()}
    saved = _trained(model, terms)
    tensors: dict[str, Tensor] = {}
    for path, part in terms.items():
        tensors[f"base_model.model.{path}.lora_A.weight"] = part.down
        tensors[f"base_model.model.{path}.lora_B.weight"] = part.up
    for path in saved:
        for name, value in model.get_submodule(path).state_dict().items():
            tensors[f"base_model.model.{path}.{name}"] = value
    paths = [path for path, _ in model.named_modules()]
    exact = any(other.endswith(f".{path}") for path in terms for other in paths)  # peft also takes a path's end
    patterns = {f"^{re.escape(path)}" if exact else path: rank for path, rank in ranks.items()}
    largest = max(ranks.values())
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM" if type(model).__name__.endswith("ForCausalLM") else None,
        "base_model_name_or_path": base or getattr(getattr(model, "config", None), "name_or_path", None) or None,
        "inference_mode": True, "r": largest, "lora_alpha": largest, "rank_pattern": patterns,
        "alpha_pattern": patterns, "target_modules": "|".join(map(re.escape, ranks)) if exact else [*ranks],
        "modules_to_save": saved or None, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
    }  # fmt: skip
    write_checked(folder / WEIGHTS, tensors, {"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    plain = _copy(model)
    for path in terms:
        replace(plain, path, lambda part: part.base)
    stock = _stock(plain, folder)
    layers = _lora_layers(stock)
    if layers.keys() != terms.keys():
        raise ValueError(f"stock peft would put terms beside {listed([*layers])}, not {listed([*terms])}")
    for path, part in terms.items():
        layer: Any = layers[path]
        pairs = ((layer.lora_A["default"].weight, part.down), (layer.lora_B["default"].weight, part.up))
        if layer.scaling["default"] != 1.0 or not all(_equal(one, other) for one, other in pairs):
            raise ValueError(f"stock peft would read other terms of {path}")
    if example is not None:
        check_equal(model, stock, example)
    return ranks


def _trained(model: nn.Module, terms: dict[str, LowRankLinear]) -> list[str]:
    """The modules outside the terms that were trained, or that count batches."""
    if moved := [path for path, part in terms.items() if not all(map(is_frozen, part.base.parameters()))]:
        raise ValueError(
            f"{listed(moved)}: the map beside the terms was trained, too, so an adapter alone is not the model. Call "
            "ngn.learn_sizes with frozen=True, or write the whole: ngn.components.low_rank.merge"
        )
    attached = {id(part) for each in terms.values() for part in each.modules()}
    found = []
    for path, part in model.named_modules():
        counts = isinstance(part, _NormBase) and part.running_mean is not None
        if id(part) not in attached and (counts or not all(map(is_frozen, part.parameters(recurse=False)))):
            if any(True for _ in part.children()) or not path:
                raise ValueError(f"{path or 'the model'}: a parameter of a module of modules was trained: freeze it")
            found.append(path)
    return found


def _read_back(model: Any, folder: Path, example: Any) -> dict[str, int]:
    """Compare what stock peft reads with all adapters of ``model``. Return the ranks of the active one."""
    from peft import get_peft_model_state_dict

    active = model.active_adapter
    stock: Any = None
    for name in sorted(model.peft_config, key=lambda name: name != active):
        place = folder if name == "default" else folder / name
        if stock is None:
            plain = _copy(model).unload()
            vars(plain).pop("peft_config", None)
            stock = _stock(plain, place, name)
        else:
            stock.load_adapter(place, name)
        ours, theirs = (get_peft_model_state_dict(each, adapter_name=name) for each in (model, stock))
        if ours.keys() != theirs.keys() or not all(_equal(theirs[key], value) for key, value in ours.items()):
            raise ValueError(f"stock peft would read other tensors of the adapter {name!r}")
        if (scales := _scales(model, name)).keys() != (read := _scales(stock, name)).keys() or not all(
            rank == read[path][0] and math.isclose(scale, read[path][1], rel_tol=1e-12)
            for path, (rank, scale) in scales.items()
        ):
            raise ValueError(f"stock peft would read other ranks or scales of the adapter {name!r}")
    if example is not None:
        check_equal(model, stock, example)
    return {path: rank for path, (rank, _) in _scales(model, active).items()}


def _lora_layers(model: Any) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    return {path: part for path, part in model.base_model.model.named_modules() if isinstance(part, LoraLayer)}


def _scales(model: Any, adapter: str) -> dict[str, tuple[int, float]]:
    layers = _lora_layers(model).items()
    return {path: (part.r[adapter], part.scaling[adapter]) for path, part in layers if adapter in part.r}


def _copy(model: nn.Module) -> Any:
    """A copy that shares the tensors of ``model``, except quantised ones: their layers keep a state of them aside."""
    plain = [value for value in tensors_of(model).values() if type(value) in (nn.Parameter, Tensor)]
    return copy.deepcopy(model, {id(value): value for value in plain})


def _stock(plain: Any, folder: Path, name: str = "default") -> Any:
    from peft import PeftModel

    flags = [(value, value.requires_grad) for value in plain.parameters()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft uses an old name of transformers
            return PeftModel.from_pretrained(plain, folder, adapter_name=name).eval()
    finally:
        for value, flag in flags:  # peft freezes the base, whose tensors are shared
            value.requires_grad_(flag)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other.to(one))
