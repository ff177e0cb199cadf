"""Truncation: copy a model and cut every ordered axis to its retained components.

One ``deepcopy`` makes the copy; its memo already holds the cut tensors. So tied tensors stay tied, and no tensor is
copied in full to be cut afterwards. Modules keep their classes and their forward passes.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.axis import GONE, Cut, OrderedAxis, Stacked
from ngn.checks import axes_of, is_frozen
from ngn.components.low_rank import Bottleneck
from ngn.copying import duplicate
from ngn.cut_modules import (
    remove_idle_axes,
    renumber_layers,
    update_adapters,
    update_attributes,
    value_of,
    with_stock_attention,
    without_parametrizations,
)
from ngn.cutting import Choice, cut_tensor, is_stack, kept_layers, plans_of, stacked_tensors


def deploy(
    model: nn.Module,
    replica: int | None = None,
    share_frozen: bool = False,
    most: int | None = None,
) -> nn.Module:
    """Return a copy of ``model`` in eval mode with only the retained components of every axis and no capacity.

    Args:
        model: any module with ordered axes, or a learner of one; other modules are copied unchanged.
        replica: which model of a stack.
        share_frozen: share frozen parameters that are not cut with ``model``; do not copy them.
        most: keep at most this many leading components of every axis.

    Raises:
        ValueError: if a stack is given without ``replica``, a single model with it, or part of the model cannot be
            copied faithfully.

    >>> import torch, ngn
    >>> up, down = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)
    >>> axis = ngn.OrderedAxis(ngn.CountGate(8, t0=4.2), [*ngn.outputs(up), *ngn.inputs(down)])
    >>> small = ngn.deploy(torch.nn.Sequential(up, torch.nn.Tanh(), axis, down))
    >>> small[0], small[3]
    (Linear(in_features=3, out_features=5, bias=True), Linear(in_features=5, out_features=2, bias=True))
    """
    if hasattr(model, "controller_parameters"):  # a learner, such as an average of one
        model = model.model  # type: ignore[assignment]
    return with_stock_attention(deploy_axes(model, axes_of(model), replica, share_frozen, most))


def deploy_axes(
    model: nn.Module,
    axes: Sequence[OrderedAxis],
    replica: int | None = None,
    share_frozen: bool = False,
    most: int | None = None,
) -> nn.Module:
    """:func:`deploy` a model whose ``axes`` are known: the result of :func:`~ngn.checks.axes_of`."""
    stacked = any(isinstance(module, Stacked) and module.replicas is not None for module in model.modules())
    if stacked and replica is None:
        raise ValueError("the model is a stack of several models: choose one with replica=0, 1, ...")
    if replica is not None and not stacked:
        raise ValueError("this is a single model, not a stack of replicas: leave replica= out")
    if most is not None and most < 1:
        raise ValueError(f"most must be at least 1, not {most}")
    choices = {}
    for axis in axes:
        kept, c = (part if replica is None else part[replica] for part in axis.retained())
        c = F.pad(c, (0, len(kept) - len(c)))
        if most is not None:
            kept = kept & (torch.arange(len(kept), device=kept.device) < most)
        kept, c = axis.in_place(kept), axis.in_place(c)
        choices[axis] = Choice(kept.cpu(), c.cpu(), _scale(axis, kept, c))
    return truncated(model, choices, replica, "frozen" if share_frozen else None).eval()


def truncated(
    model: nn.Module,
    choices: dict[OrderedAxis, Choice],
    replica: int | None = None,
    share: Literal["frozen", "all"] | None = None,
) -> nn.Module:
    """A copy of ``model`` in which the axes of ``choices`` are cut accordingly.

    Args:
        share: which of the tensors that are not cut stay the original's own: its frozen parameters, or all.
    """
    memo: dict[int, Any] = {}
    selected = stacked_tensors(model)

    def of_replica(value: Tensor) -> Tensor:
        return value.detach()[replica] if id(value) in selected else value.detach()

    def like(value: Tensor, new: Tensor, trained: bool = False) -> Tensor:
        return nn.Parameter(new, trained or value.requires_grad) if isinstance(value, nn.Parameter) else new

    plans = plans_of(choices)
    for axis in choices:
        empty = ((axis.capacity, None), (axis._cuts, ()), (axis._modules.get(GONE), None), (axis.whole, None))
        memo |= {id(part): instead for part, instead in empty if part is not None}

    registered = [value for m in model.modules() for value in m._parameters.values() if value is not None]
    plain: dict[tuple[nn.Module, str], nn.Parameter] = {}
    changed: dict[int, Cut] = {}
    lists: list[tuple[nn.ModuleList, list[nn.Module]]] = []
    for key, (cut, parts) in plans.items():
        value = value_of(cut.module, cut.name)
        if is_stack(value):
            lists.append((value, kept_layers(value, parts)))
            continue
        untouched = all(bool(choice.kept.all()) and not c.merge for c, choice in parts)
        if share == "all" and id(value) == key and untouched and key not in selected:
            memo[key] = value
            continue
        if any(c.fold for c, _ in parts) and sum(value is other for other in registered) > 1:
            raise ValueError(
                f"{cut.name} is tied to another module, so coefficients cannot be folded into it: set fold=False, or "
                "fold into another map"
            )
        new = cut_tensor(of_replica(value), parts)
        if id(value) == key:
            # a frozen map that takes trained coefficients differs from the pretrained one: save must write it
            folded = (
                choice.coefficients[choice.kept] for c, choice in parts if c.fold and choice.coefficients is not None
            )
            memo[key] = new = like(value, new, any(bool((c != 1).any()) for c in folded))
        else:
            plain[cut.module, cut.name] = new = nn.Parameter(new)
        changed[id(new)] = cut
    for module in model.modules():
        for value in (*module._parameters.values(), *module._buffers.values()):
            if value is None or id(value) in memo:
                continue
            if id(value) in selected:
                memo[id(value)] = like(value, of_replica(value).clone())
            elif share == "all" or (share == "frozen" and is_frozen(value)):
                memo[id(value)] = value

    def layers_first(memo: dict[int, Any]) -> None:
        for layers, stay in lists:
            memo[id(layers)] = nn.ModuleList(copy.deepcopy(stay, memo))
            renumber_layers(memo[id(layers)])

    result, memo = duplicate(model, memo, layers_first)
    plain = {place: value for place, value in plain.items() if id(place[0]) in memo}  # others were in removed layers
    for module, _ in plain:
        without_parametrizations(memo[id(module)], module)
    for (module, name), value in plain.items():
        memo[id(module)].register_parameter(name, value)
    for module in result.modules():
        for name, held in (*module._parameters.items(), *module._buffers.items()):
            if id(held) in changed:
                update_attributes(module, name, changed[id(held)].dim)
        if isinstance(module, Stacked):
            module.replicas = None
    for axis, choice in choices.items():
        if id(axis) in memo:  # else it was in a removed layer
            memo[id(axis)].truncated(choice.kept, choice.scale)
    remove_idle_axes(result)
    update_adapters(result, {*changed, *(id(memo[id(layers)]) for layers, _ in lists)})
    others = [axis.name for axis in choices if not all(isinstance(cut.module, Bottleneck) for cut in axis.cuts)]
    if others and any(isinstance(part, Bottleneck) for part in result.modules()):
        vars(result)["cut_beside"] = ", ".join(others)  # an adapter for the base is then not all of the model
    return _without_empty_bottlenecks(result)


def _without_empty_bottlenecks(model: nn.Module) -> nn.Module:
    """Replace every bottleneck without components in ``model`` by its base."""
    for parent in [*model.modules()]:
        for name, child in parent._modules.items():
            if isinstance(child, Bottleneck):
                parent._modules[name] = _base_if_empty(child)
    return _base_if_empty(model)


def _base_if_empty(module: nn.Module) -> nn.Module:
    while isinstance(module, Bottleneck) and module.axis.K == 0:
        module = module.base
    return module


def _scale(axis: OrderedAxis, kept: Tensor, coefficients: Tensor) -> Tensor | None:
    """The coefficients that the axis must keep, [count]; None if a cut folds them, or if all are 1.

    If components without tensors (an identity, say) are removed, ones are kept, too: their number records the removal.
    """
    scale = coefficients[kept]
    complete = bool(kept[: without_tensors(axis)].all())
    if any(cut.fold for cut in axis.cuts) or (complete and bool((scale == 1).all())):
        return None
    first = next((t for cut in axis.cuts if isinstance(t := getattr(cut.module, cut.name), Tensor)), None)
    return scale if first is None else scale.to(first)


def without_tensors(axis: OrderedAxis) -> int:
    """The number of leading components without entries in any cut tensor."""
    return max((-cut.start // cut.width for cut in axis.cuts if cut.start < 0), default=0)
