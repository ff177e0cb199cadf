"""The tensors that have an axis: how they are named, and how one of them is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

Counts = Sequence[tuple[Any, str]]


@dataclass(frozen=True)
class Cut:
    """Name a tensor that has the axis.

    Component k has the entries start + k width ... start + (k + 1) width - 1 of dimension ``dim``.

    Attributes:
        module, name: the tensor is ``module.name``: a parameter, a buffer, or a ``ModuleList`` of K modules.
        dim: the dimension; for a stacked module, the dimension of one replica's tensor.
        width: entries per component.
        start: index at which component 0 begins. A negative start means that the leading components have no entries:
            with -1 and width 1, component 0 (an identity, say) has none.
        fold: truncation multiplies these entries by the components' coefficients, permanently.
    """

    module: nn.Module
    name: str
    dim: int
    width: int = 1
    start: int = 0
    fold: bool = False


def inputs_first(module: nn.Module) -> bool:
    """Whether a weight is [in, out, ...], as in transposed convolutions and ``Conv1D`` (the map of GPT-2)."""
    return bool(getattr(module, "transposed", False)) or is_conv1d(module)


def kind_of(part: object) -> str:
    """The name of the class of ``part``; with its package where torch.nn has another class of this name."""
    kind = type(part)
    return kind.__name__ if getattr(nn, kind.__name__, kind) is kind else f"{kind.__module__}.{kind.__name__}"


def is_conv1d(module: nn.Module) -> bool:
    """Whether a module is the ``Conv1D`` of transformers; checked by name, since transformers may not be installed."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def outputs(module: nn.Module, width: int = 1, start: int = 0, fold: bool = False) -> list[Cut]:
    """Return the cuts of a module whose output has the axis: linear map, convolution, normalisation or embedding.

    ``fold`` multiplies the output of the module by the coefficients. Do not use it before a nonlinear function.
    """
    dim = 1 if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) or inputs_first(module) else 0
    places = {"weight": (dim, fold), "bias": (0, fold), "running_mean": (0, False), "running_var": (0, False)}
    held = [name for name in places if isinstance(getattr(module, name, None), Tensor)]
    return [Cut(module, name, along, width, start, folds) for name in held for along, folds in [places[name]]]


def inputs(module: nn.Module, width: int = 1, start: int = 0, fold: bool = True) -> list[Cut]:
    """Return the cut of a linear map or convolution whose input has the axis; ``fold`` puts the coefficients into it.

    Use ``fold`` if this map is the only one that reads the axis. The bias does not change.
    """
    return [Cut(module, "weight", 0 if inputs_first(module) else 1, width, start, fold)]


def ranks_of(by_importance: Sequence[int], K: int) -> Tensor:
    """The component at each place, int64, from places by importance: a permutation of those of K equal components."""
    order = [*by_importance]
    per, rest = divmod(len(order), max(1, K))
    if rest or sorted(order) != [*range(len(order))] or not order:
        raise ValueError(
            f"by_importance must be a permutation of 0 to K - 1, or of the units of K equal components, not {order}"
        )
    return torch.tensor(order, device="cpu").argsort() // per


def by_place(cut: Cut, value: Tensor, places: int) -> Tensor:
    """The entries of ``value``, the tensor of ``cut``, at each place: [places, width, ...]."""
    span = value.narrow(cut.dim, cut.start, places * cut.width)
    return span.movedim(cut.dim, 0).unflatten(0, (places, cut.width))


class Stacked(nn.Module):
    """A module whose parameters have a leading axis of ``replicas``, or None for one model; deployment selects one."""

    replicas: int | None


def owned(cut: Cut) -> Any:
    """What a cut names: a parameter, buffer, list or parametrisation, or None for a missing bias; else a ValueError."""
    module, name = cut.module, cut.name
    parametrised = getattr(module, "parametrizations", {})
    for held in (module._parameters, module._buffers, module._modules, parametrised):
        if name in held:
            return held[name]
    raise ValueError(
        f"{type(module).__name__}.{name} cannot be cut, as it is neither a parameter nor a buffer; if a hook computes "
        "it (torch.nn.utils.weight_norm), use torch.nn.utils.parametrizations or remove the hook"
    )


def held_by(cut: Cut) -> Any:
    """The parameter, buffer or list that a cut names; None for a missing bias, and for what other tensors compute."""
    tables = (cut.module._parameters, cut.module._buffers, cut.module._modules)
    return next((table[cut.name] for table in tables if cut.name in table), None)


def is_stack(part: Any) -> TypeGuard[nn.ModuleList]:
    """Whether a cut names a list of layers (a parametrisation is a ``ModuleList``, too)."""
    return isinstance(part, nn.ModuleList) and not isinstance(part, ParametrizationList)


@dataclass(frozen=True)
class Choice:
    """What to keep of one axis, in the order of places, on the CPU: which components, bool [K].

    ``coefficients``, [K], are multiplied in by cuts with ``fold``, and ``scale``, [count], is kept by the axis; None
    for ones.
    """

    kept: Tensor
    coefficients: Tensor | None = None
    scale: Tensor | None = None


TensorCuts = list[tuple[Cut, Choice]]
"""The cuts of one tensor, each with the choice of its axis."""


def cut_tensor(value: Any, parts: TensorCuts, shape: torch.Size, lead: int) -> Any:
    """Cut a tensor of this ``shape`` along every dimension that ``parts`` name; all else stays as it is.

    Dimensions count from behind the first ``lead`` ones.
    """
    if not isinstance(value, Tensor) or value.shape != shape:
        return value
    for dim in range(lead, value.dim()):
        if not (here := along(dim, value, parts, lead)):
            continue
        keep, factor = kept_entries(value.shape[dim], here), torch.ones(value.shape[dim], dtype=torch.float64)
        for cut, choice in here:
            if cut.fold and choice.coefficients is not None:
                first, last = max(0, cut.start), cut.start + len(choice.kept) * cut.width
                factor[first:last] = choice.coefficients.repeat_interleave(cut.width)[first - cut.start :]
        index = keep.nonzero().flatten()
        value = value.index_select(dim, index.to(value.device))
        if any(cut.fold and choice.coefficients is not None for cut, choice in here):
            value = value * factor[index].to(value).view(-1, *[1] * (value.dim() - 1 - dim))
    return value


def along(dim: int, value: Tensor, parts: TensorCuts, lead: int = 0) -> TensorCuts:
    """The ``parts`` that cut dimension ``dim`` of ``value``."""
    return [part for part in parts if part[0].dim % (value.dim() - lead) + lead == dim]


def kept_entries(size: int, parts: TensorCuts) -> Tensor:
    """Which of the ``size`` entries of a dimension its ``parts`` keep, bool [size]; an error if an axis needs more."""
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
