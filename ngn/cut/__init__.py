"""Cut a model to some components of its axes: one way, for copies and in place.

A copy is one ``deepcopy``, and its memo already holds the cut tensors. So tied tensors stay tied, and no tensor is
copied in full to be cut afterwards. In place, parameters stay the same objects with smaller values, so optimisers and
schedules keep them; nothing is folded. Modules keep their classes and their forward passes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from ngn.axis import GONE, OrderedAxis
from ngn.checks import is_frozen, places_in
from ngn.components.low_rank import Bottleneck, replace
from ngn.cut.copying import duplicate
from ngn.cut.modules import (
    keep_layers,
    noted,
    remove_idle_axes,
    update_adapters,
    update_attributes,
    without_parametrizations,
)
from ngn.cuts import Choice, Cut, Stacked, TensorCuts, along, cut_tensor, held_by, is_stack, kept_entries, owned
from ngn.methods.base import Capacity


def distinct(axis: OrderedAxis) -> dict[tuple[int, int, int], Cut]:
    """The cuts of an axis by tensor, dimension and start: a tensor of several modules or names counts once."""
    cuts = {}
    for cut in axis.cuts:
        if (held := owned(cut)) is not None:
            dim = cut.dim + held.dim() - _lead(cut.module) if cut.dim < 0 and isinstance(held, Tensor) else cut.dim
            cuts[id(held), dim, cut.start] = cut
    return cuts


def _lead(module: nn.Module) -> int:
    """The number of leading replica axes of its tensors, 0 or 1."""
    return int(isinstance(module, Stacked) and module.replicas is not None)


def plans_of(choices: Mapping[OrderedAxis, Choice]) -> dict[int, tuple[Cut, TensorCuts]]:
    """The parts of each tensor or list of layers, by its id, with a cut that names it."""
    plans: dict[int, tuple[Cut, TensorCuts]] = {}
    for axis, choice in choices.items():
        for (tensor, _, _), cut in distinct(axis).items():
            plans.setdefault(tensor, (cut, []))[1].append((cut, choice))
    return plans


def leading(axis: OrderedAxis, count: int) -> Choice:
    """The ``count`` leading components of ``axis``."""
    return Choice(axis.in_place(torch.arange(axis.K) < count))


def cut_to(model: nn.Module, axes: Sequence[OrderedAxis], counts: Sequence[int]) -> nn.Module:
    """Copy ``model`` (of a stack, its first) with ``counts`` leading components per axis, without weights.

    Tensors that are not cut are shared with ``model``. It is a ValueError if an axis has fewer components.
    """
    parts = [(axis, n) for axis, n in zip(axes, counts, strict=True) if axis.cuts]  # others were in removed layers
    if more := [(axis.name, n, axis.K) for axis, n in parts if n > axis.K]:
        raise ValueError(f"{more[0][0] or 'the axis'} has {more[0][2]} components, not {more[0][1]}")
    stacked = any(axis.capacity.replicas is not None for axis in axes)
    choices = {axis: leading(axis, n) for axis, n in parts}
    return cut_copy(model, choices, 0 if stacked else None, share="all").eval()


def cut_copy(
    model: nn.Module,
    choices: Mapping[OrderedAxis, Choice],
    replica: int | None = None,
    share: Literal["frozen", "all"] | None = None,
) -> nn.Module:
    """A copy of ``model`` in which the axes of ``choices`` are cut accordingly, and learn nothing any more.

    ``share``: which of the tensors that are not cut stay the original's own, its frozen parameters or all. It is a
    ValueError if part of the model cannot be copied faithfully.
    """
    held = [(part, value) for part, _, _, value in places_in(model)]
    stacked = {id(value) for part, value in held if _lead(part)}
    memo: dict[int, Any] = {}
    for axis in choices:
        only_to_learn = (axis.capacity, axis._modules.get(GONE), axis.whole)
        memo |= dict.fromkeys(id(part) for part in only_to_learn if part is not None)

    def chosen(value: Tensor, trained: bool = False, clone: bool = False) -> Tensor:
        """A tensor of one model."""
        new = value.detach()[replica] if id(value) in stacked else value.detach()
        new = new.clone() if clone else new
        return nn.Parameter(new, trained or value.requires_grad) if isinstance(value, nn.Parameter) else new

    cut = {axis: choice for axis, choice in choices.items() if share != "all" or not bool(choice.kept.all())}
    parametrised: list[nn.Module] = []
    lost: set[nn.Module] = set()
    for key, (named, parts) in plans_of(cut).items():
        value, folds = owned(named), [choice for part, choice in parts if part.fold]
        if folds and sum(value is other for _, other in held) > 1:
            raise ValueError(
                f"{named.name} is tied to another module, so coefficients cannot be folded into it: set fold=False, or "
                "fold into another map"
            )
        if isinstance(value, Tensor):
            # a frozen map that takes trained coefficients differs from the pretrained one: save must write it
            factors = (choice.coefficients[choice.kept] for choice in folds if choice.coefficients is not None)
            memo[key] = chosen(value, any(bool((c != 1).any()) for c in factors))
        elif is_stack(value):
            pairs = zip(value, _stays(parts), strict=True)
            lost |= {part for layer, stays in pairs if not stays for part in layer.modules()}
        else:
            parametrised.append(named.module)
    left = {id(value) for part, value in held if part not in lost}
    for _, value in held:
        if id(value) in memo:
            continue
        if id(value) not in left:  # of removed layers alone: not worth a copy
            memo[id(value)] = value
            continue
        if id(value) in stacked:
            memo[id(value)] = chosen(value, clone=True)
        elif share == "all" or (share == "frozen" and is_frozen(value)):
            memo[id(value)] = value
    small, memo = duplicate(model, memo)
    for module in parametrised:
        without_parametrizations(memo[id(module)], module)
    for module in small.modules():
        vars(module).pop("save_pretrained", None)  # that of a model whose sizes are learned refuses
        if isinstance(module, Stacked):
            module.replicas = None
    with noted(small):
        _cut(small, {memo[id(axis)]: choice for axis, choice in cut.items()})
    for axis, choice in choices.items():
        memo[id(axis)].closed(choice.scale)
    remove_idle_axes(small)
    update_adapters(small, deployed=True)
    for path, part in reversed([*small.named_modules()]):
        if isinstance(part, Bottleneck) and part.axis.K == 0:
            if not path:
                return part.base
            replace(small, path, lambda part: part.base)
    return small


def _stays(parts: TensorCuts) -> list[bool]:
    """Which layers of a list every one of ``parts`` keeps."""
    stays: list[bool] = functools.reduce(torch.logical_and, (choice.kept for _, choice in parts)).tolist()
    return stays


def cut_in_place(model: nn.Module, choices: Mapping[OrderedAxis, Choice], optimizers: Sequence[Optimizer] = ()) -> None:
    """Cut ``model`` and the states of its optimisers; parameters stay the same objects, and nothing is folded."""
    with noted(model):
        _cut(model, choices, optimizers)
    update_adapters(model)
    for axis in axes_in(model):
        axis.moved()


def _cut(model: nn.Module, choices: Mapping[OrderedAxis, Choice], optimizers: Sequence[Optimizer] = ()) -> None:
    """Cut ``model`` in place."""
    each = cutters(plans := plans_of(choices))

    def start(cut: Cut) -> int:
        """Where ``cut`` will start."""
        if cut.start <= 0 or id(value := held_by(cut)) not in plans:
            return cut.start
        dim = cut.dim % value.dim()
        return int(kept_entries(value.shape[dim], along(dim, value, plans[id(value)][1]))[: cut.start].sum())

    for axis in axes_in(model):
        axis.cuts = tuple(dataclasses.replace(cut, start=start(cut)) for cut in axis.cuts)
    for key, smaller in each.items():
        value = owned(plans[key][0])
        new = smaller(value.detach())
        for state in {id(optimizer.state): optimizer.state for optimizer in optimizers}.values():
            if value in state:
                state[value].update(tree_map(smaller, dict(state[value])))
        value.grad = None
        # A graph that is still alive has fixed the shape of the gradient. A change of type makes torch forget it.
        value.data = new.new_empty(0, dtype=torch.float32 if new.dtype == torch.float16 else torch.float16)
        value.data = new
    for module, _, name, value in places_in(model):
        if id(value) in plans:
            update_attributes(module, name, plans[id(value)][0].dim)
    for layers, parts in ((owned(cut), parts) for cut, parts in plans.values()):
        if is_stack(layers):
            axis = next(axis for axis in choices if any(owned(cut) is layers for cut in axis.cuts))
            _remove_layers(model, axis, layers, _stays(parts), optimizers)
    for axis, choice in choices.items():
        axis.shrunk(choice.kept)


def cutters(plans: Mapping[int, tuple[Cut, TensorCuts]]) -> dict[int, Callable[[Any], Any]]:
    """For each tensor that is cut, by its id, what cuts tensors of its shape and leaves all else as it is."""
    tensors = [(owned(cut), _lead(cut.module), parts) for cut, parts in plans.values()]
    return {
        id(value): functools.partial(cut_tensor, parts=parts, shape=value.shape, lead=lead)
        for value, lead, parts in tensors
        if not is_stack(value)
    }


def axes_in(copy: nn.Module) -> list[OrderedAxis]:
    """The axes of a copy of a model, or of its learner, which keeps those of removed layers for reports."""
    return [part for part in copy.modules() if isinstance(part, OrderedAxis) and part.capacity is not None]


def _remove_layers(
    model: nn.Module, axis: OrderedAxis, layers: nn.ModuleList, kept: Sequence[bool], optimizers: Sequence[Optimizer]
) -> None:
    """Remove closed layers from their list and the optimisers. The axis that cuts them keeps the capacities within.

    Those have buffers instead of parameters, so that an optimiser that is made later numbers its parameters alike.
    """
    lost = [layer for layer, stays in zip(layers, kept, strict=True) if not stays]
    keep_layers(layers, [number for number, stays in enumerate(kept) if stays])
    inside = [part for layer in lost for part in layer.modules()]
    shared = {*model.modules()}  # by layers that are left
    capacities = [part for part in inside if isinstance(part, Capacity) and part not in shared]
    if axis.capacity is not None:
        axis.add_module(GONE, nn.ModuleList([*(axis._modules.get(GONE) or ()), *capacities]))  # type: ignore[misc]
    gates: set[nn.Parameter] = set()
    for part in (part for capacity in capacities for part in capacity.modules()):
        for name, p in [*part.named_parameters(recurse=False)]:  # nothing trains them any more
            delattr(part, name)
            part.register_buffer(name, p.detach())
            gates.add(p)
    for part in inside:
        if isinstance(part, OrderedAxis):
            part.cuts, part.counts = (), ()
    left = {id(p) for p in model.parameters()}
    dead = {p for layer in lost for p in layer.parameters() if id(p) not in left} | gates
    for optimizer in optimizers:
        for p in dead:
            optimizer.state.pop(p, None)
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p not in dead]
