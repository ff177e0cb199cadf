"""How a cut model differs from the plain one: what a file says of it, and the plain model resized by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ngn.axis import OrderedAxis
from ngn.components.attention import Attention, use_cuttable_attention
from ngn.components.low_rank import Bottleneck, LowRankLinear, replace
from ngn.cut.modules import LAYERS, WHOLE, keep_layers, noted, numbers_of
from ngn.cut.truncation import axes_of
from ngn.cuts import is_stack, kind_of
from ngn.files import FileError
from ngn.learner import Learner
from ngn.methods.fixed import FixedCount
from ngn.tracing.found import listed


def check_deployed(model: nn.Module, call: str) -> None:
    """Raise an error that names the function ``call`` if ``model`` is not a deployed model."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{call} takes a model, then a file; the model is a {type(model).__name__}")
    if isinstance(model, Learner):
        raise TypeError(f"{call} takes a deployed model, not a learner: write {call}(learner.deploy(), ...)")
    if axes_of(model):
        raise ValueError(f"{call} takes a deployed model, but this one still learns its sizes: deploy it first")


def own_sizes(small: nn.Module) -> dict[str, Any]:
    """How ``small`` differs from the plain model that it was cut from; {} if it does not, or no file can say it.

    Returns:
        "attributes" by module and "shapes" by tensor, and in "whole" the same before the cut; by list of layers in
        "layers" its length before, and those that are left; "ranks" by linear map; the modules with our "attention".
    """
    parts = dict(small.named_modules())
    terms = {path: part for path, part in parts.items() if type(part) is LowRankLinear and part.axis.scale is None}
    own = {id(each) for part in terms.values() for each in (part, part.axis)}
    if any(isinstance(part, (OrderedAxis, Bottleneck)) and id(part) not in own for part in parts.values()):
        return {}
    before: dict[str, Any] = {"attributes": {}, "shapes": {}}
    after: dict[str, Any] = {"attributes": {}, "shapes": {}}
    for path, part in parts.items():
        numbers, tensors = numbers_of(part), {**part._parameters, **part._buffers}
        for name, old in vars(part).get(WHOLE, {}).items():
            for said, value in ((before, old), (after, numbers.get(name))):
                if name in tensors:
                    said["shapes"][f"{path}.{name}".lstrip(".")] = value
                else:
                    said["attributes"].setdefault(path, {})[name] = value
    sizes = {
        **after,
        "whole": before if any(before.values()) else None,
        "layers": {path: vars(part)[LAYERS] for path, part in parts.items() if LAYERS in vars(part)},
        "ranks": {path: len(part.down) for path, part in terms.items()},
        "attention": [path for path, part in parts.items() if type(part) is Attention],
    }
    return {name: value for name, value in sizes.items() if value}


def resize(model: nn.Module, sizes: Mapping[str, Any]) -> None:
    """Give the plain ``model`` the sizes that :func:`own_sizes` has said, and tensors without values.

    Only numbers and lists that the model has are set, and only to smaller ones: a file cannot name anything to run. It
    is a :class:`FileError` if they are damaged, or of another model.
    """
    try:
        if strange := sorted(sizes.keys() - {"attributes", "shapes", "whole", "layers", "ranks", "attention"}):
            raise FileError(f"this version of ngn does not know {listed(strange)}")
        for path, (length, left) in sorted(sizes.get("layers", {}).items()):  # a list before those within its layers
            layers = model.get_submodule(path)
            if not is_stack(layers) or len(layers) != length or not {*left} <= {*range(length)}:
                raise FileError(f"{path} keeps {left} of {length} layers, but is a {kind_of(layers)} in the model")
            keep_layers(layers, sorted({*left}))
        for path in sizes.get("ranks", {}):
            replace(model, path, _without_terms)
        parts = dict(model.named_modules())
        if not all(use_cuttable_attention([parts[path]]) for path in sizes.get("attention", [])):
            raise FileError(f"{listed(sizes['attention'])}: not all are an attention of torch")
        with noted(model):
            _resize(parts, sizes, sizes.get("whole"))
    except (AttributeError, KeyError, TypeError, RuntimeError) as fault:
        raise FileError(f"its sizes are damaged, or not those of a {kind_of(model)} ({fault!r})") from None


def _without_terms(base: nn.Module) -> LowRankLinear:
    if type(base) is not nn.Linear:
        raise FileError(f"a {kind_of(base)} cannot have ranks: they are of linear maps")
    terms = LowRankLinear(base, FixedCount(0), seed=0, name="")
    terms.axis = OrderedAxis(None, [])
    return terms


def _resize(parts: Mapping[str, Any], sizes: Mapping[str, Any], whole: Mapping[str, Any] | None) -> None:
    """Set the attributes, then replace the tensors; ``whole``: what they are before, where a file says it."""

    def check(name: str, old: Any, value: Any, before: Any) -> None:
        old = [*old] if isinstance(old, tuple) else old
        if old == value:  # the numbers of layers that were kept
            return
        if whole is not None and old != before:
            raise FileError(f"{name} was {before} before the cut, but is {old} in the model")
        if not _smaller(value, old):
            raise FileError(f"{name} cannot become {value}: it is {old} in the model")

    said = whole or {"attributes": {}, "shapes": {}}
    for path, attributes in sizes.get("attributes", {}).items():
        part, numbers, before = parts[path], numbers_of(parts[path]), said["attributes"].get(path, {})
        for name, value in attributes.items():
            check(f"{path}.{name}".lstrip("."), numbers[name], value, before.get(name))
            holder, key = (part.config, name[7:]) if name.startswith("config.") else (part, name)
            setattr(holder, key, tuple(value) if isinstance(numbers[name], tuple) else value)
    made: dict[int, tuple[Any, Any]] = {}  # by the id of what is replaced, which has to stay alive
    for name, shape in sizes.get("shapes", {}).items():
        path, _, key = name.rpartition(".")
        part = parts[path]
        held: dict[str, Any] = part._parameters if key in part._parameters else part._buffers
        old = held[key]
        check(name, [*old.shape], shape, said["shapes"].get(name))
        if len(shape) != old.dim():
            raise FileError(f"{name} has {len(shape)} dimensions, not {old.dim()}")
        if id(old) not in made:
            new = torch.empty(shape, dtype=old.dtype, device=old.device)
            made[id(old)] = old, nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
        held[key] = made[id(old)][1]
    for path, rank in sizes.get("ranks", {}).items():
        part = parts[path]
        part.down = nn.Parameter(torch.empty(rank, part.base.in_features, dtype=part.down.dtype, device="meta"))
        part.up = nn.Parameter(torch.empty(part.base.out_features, rank, dtype=part.up.dtype, device="meta"))


def _smaller(value: Any, old: Any) -> bool:
    """Whether a cut may have left ``value`` of ``old``: a smaller number, or a list of some entries or smaller ones."""
    if isinstance(old, (tuple, list)):
        known = isinstance(value, list) and len(value) <= len(old)
        return known and all(any(each == other or _smaller(each, other) for other in old) for each in value)
    return type(value) is int and type(old) is int and 0 <= value <= old
