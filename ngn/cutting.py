"""One way to cut a tensor, for the deployed copy (``truncation.py``) and in place (``shrinking.py``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from ngn.axis import Cut, OrderedAxis, Stacked


@dataclass(frozen=True)
class Choice:
    """What to keep of one axis, in the order of places, on the CPU.

    Attributes:
        kept: which components, bool [K].
        coefficients: the factors that cuts with ``fold`` multiply in, [K]; None for ones.
        scale: the factors that the axis itself keeps, [count]; None for none.
    """

    kept: Tensor
    coefficients: Tensor | None
    scale: Tensor | None


TensorCuts = list[tuple[Cut, Choice]]
"""The cuts of one tensor, each with the choice of its axis."""


def owned(cut: Cut) -> Any:
    """The object that a cut names: a parameter, a buffer, a list, a parametrisation, or None for a missing bias.

    Raises:
        ValueError: if a hook computes the tensor, or it does not exist.
    """
    module, name = cut.module, cut.name
    for held in (module._parameters, module._buffers, module._modules):
        if name in held:
            return held[name]
    parametrised = getattr(module, "parametrizations", {})
    if name in parametrised:
        return parametrised[name]
    raise ValueError(
        f"{type(module).__name__}.{name} cannot be cut, as it is neither a parameter nor a buffer; if a hook computes "
        "it (torch.nn.utils.weight_norm), use torch.nn.utils.parametrizations or remove the hook"
    )


def distinct(axis: OrderedAxis) -> dict[tuple[int, int, int], Cut]:
    """The cuts of an axis by tensor, dimension and start: a tensor of several modules or names counts once."""
    found = {}
    for cut in axis.cuts:
        if (held := owned(cut)) is not None:
            lead = isinstance(cut.module, Stacked) and cut.module.replicas is not None
            dim = cut.dim + held.dim() - lead if cut.dim < 0 and isinstance(held, Tensor) else cut.dim
            found[id(held), dim, cut.start] = cut
    return found


def is_stack(part: Any) -> TypeGuard[nn.ModuleList]:
    """Whether a cut names a list of layers (a parametrisation is a ``ModuleList``, too)."""
    return isinstance(part, nn.ModuleList) and not isinstance(part, ParametrizationList)


def plans_of(choices: Mapping[OrderedAxis, Choice]) -> dict[int, tuple[Cut, TensorCuts]]:
    """The parts of each tensor or list of layers, by its id, with a cut that names it."""
    plans: dict[int, tuple[Cut, TensorCuts]] = {}
    for axis, choice in choices.items():
        for (tensor, _, _), cut in distinct(axis).items():
            plans.setdefault(tensor, (cut, []))[1].append((cut, choice))
    return plans


def stacked_tensors(model: nn.Module) -> set[int]:
    """The ids of the tensors with a leading replica axis."""
    stacks = [module for module in model.modules() if isinstance(module, Stacked) and module.replicas is not None]
    return {id(value) for stack in stacks for value in (*stack._parameters.values(), *stack._buffers.values())}


def kept_layers(layers: nn.ModuleList, parts: TensorCuts) -> list[nn.Module]:
    """The layers that every one of ``parts`` keeps."""
    kept = functools.reduce(torch.logical_and, (choice.kept for _, choice in parts)).tolist()
    return [layer for layer, stays in zip(layers, kept, strict=True) if stays]


def cut_tensor(value: Tensor, parts: TensorCuts, lead: int = 0) -> Tensor:
    """Cut ``value`` along every dimension that ``parts`` name; they count from behind the first ``lead`` dimensions."""
    for dim, here in by_dimension(value, parts, lead).items():
        keep, factor = kept_entries(value.shape[dim], here), torch.ones(value.shape[dim], dtype=torch.float64)
        for cut, choice in here:
            if cut.fold and choice.coefficients is not None:
                first, last = max(0, cut.start), cut.start + len(choice.kept) * cut.width
                factor[first:last] = choice.coefficients.repeat_interleave(cut.width)[first - cut.start :]
        index = keep.nonzero().flatten()
        value = value.index_select(dim, index.to(value.device))
        if any(cut.fold for cut, _ in here):
            value = value * factor[index].to(value).view(-1, *[1] * (value.dim() - 1 - dim))
        if any(cut.merge for cut, _ in here):
            value = value.sum(dim, keepdim=True)
    return value


def by_dimension(value: Tensor, parts: TensorCuts, lead: int = 0) -> dict[int, TensorCuts]:
    """The ``parts`` of each dimension of ``value``, in ascending order."""
    dims: dict[int, TensorCuts] = {}
    for cut, choice in parts:
        dims.setdefault(cut.dim % (value.dim() - lead) + lead, []).append((cut, choice))
    return dict(sorted(dims.items()))


def kept_entries(size: int, parts: TensorCuts) -> Tensor:
    """Which of the ``size`` entries along a dimension its ``parts`` keep, bool [size].

    Raises:
        ValueError: if an axis needs more entries.
    """
    keep = torch.ones(size, dtype=torch.bool)
    for cut, choice in parts:
        first, last = max(0, cut.start), cut.start + len(choice.kept) * cut.width
        if last > size:
            raise ValueError(
                f"{type(cut.module).__name__}.{cut.name} has {size} entries along dimension "
                f"{cut.dim}, but the axis needs {last}"
            )
        keep[first:last] = choice.kept.repeat_interleave(cut.width)[first - cut.start :]
    return keep
