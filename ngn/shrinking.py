"""Cut a model in place, so that a training step costs what that of the small model costs.

Parameters stay the same objects with smaller values, so optimisers and schedules keep them. The optimiser's state is
cut with them. Nothing is folded: the axes multiply by their coefficients as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel
from torch.utils._pytree import tree_leaves, tree_map

from ngn.axis import GONE, Cut, OrderedAxis
from ngn.checks import axes_of
from ngn.cut_modules import TrainingHook, breaks_groups, renumber_layers, update_attributes
from ngn.cutting import (
    Choice,
    TensorCuts,
    by_dimension,
    cut_tensor,
    is_stack,
    kept_entries,
    kept_layers,
    owned,
    plans_of,
    stacked_tensors,
)
from ngn.methods.base import Capacity
from ngn.report import WholeModel


@torch.no_grad()
def shrink(
    model: nn.Module,
    axes: Sequence[OrderedAxis],
    counts: Sequence[int],
    optimizer: Optimizer | None = None,
    averages: Sequence[AveragedModel] = (),
) -> bool:
    """Keep the ``counts`` leading components of the ``axes``, in place; of a stack, those of every model.

    Each axis keeps at least one component, since many modules fail without any. An axis stays as it is if a tensor is
    parametrised, sharded or not of floating point, if two cuts overlap, or if closed components matter in training.

    Args:
        model, axes: a model, and its ordered axes in any order.
        optimizer: holds the parameters; entries of its state with the shape of their parameter are cut as this is.
        averages: averages of the model, or of a learner of it.

    Returns:
        Whether anything was cut.

    Raises:
        ValueError: if the optimiser cannot be cut; the model and the optimiser are then unchanged.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> axes, weight = ngn.learn_sizes(model, {"": ngn.Width(8)}, example=torch.ones(1, 3)).axes, model[0].weight
    >>> shrink(model, axes, [5]), model[0], model[0].weight is weight
    (True, Linear(in_features=3, out_features=5, bias=True), True)
    """
    present = axes_of(model)
    numbers = dict(zip(axes, counts, strict=True))
    wanted = [max(1, min(axis.K, numbers.get(axis, axis.K))) for axis in present]
    models = [model, *(average.module for average in averages)]
    choices = [_choices(dict(zip(axes_of(part), wanted, strict=True))) for part in models]
    if not choices[0]:
        return False
    if optimizer is not None:
        _check_state(optimizer, choices[0])
    if present[0].whole is None:
        whole = WholeModel.of(model, present)
        for axis in present:
            axis.whole = whole
    for part, chosen in zip(models, choices, strict=True):
        _cut(part, chosen, optimizer if part is model else None)
    return True


def _choices(counts: Mapping[OrderedAxis, int]) -> dict[OrderedAxis, Choice]:
    """What to keep of the axes that can be cut."""
    fewer = {axis: n for axis, n in counts.items() if n < axis.K and _can_cut(axis, n)}
    spans: dict[tuple[int, int], set[tuple[int, int, OrderedAxis]]] = {}
    for axis in fewer:
        for cut in axis.cuts:
            if isinstance(value := _held(cut), Tensor):
                span = (cut.start, cut.start + axis.places * cut.width, axis)
                spans.setdefault((id(value), cut.dim % value.dim()), set()).add(span)
    pairs = (pair for held in spans.values() for pair in combinations(held, 2))
    clashing = {span[2] for a, b in pairs if a[0] < b[1] and b[0] < a[1] for span in (a, b)}
    fewer = {axis: n for axis, n in fewer.items() if axis not in clashing}
    return {axis: Choice(axis.in_place(torch.arange(axis.K) < n), None, None) for axis, n in fewer.items()}


def _can_cut(axis: OrderedAxis, n: int) -> bool:
    """Whether training can go on with ``n`` components of ``axis``, and every tensor of it is a plain one."""
    for cut in axis.cuts:
        value = _held(cut)
        if value is None:
            if cut.name in vars(cut.module) or cut.name in getattr(cut.module, "parametrizations", {}):
                return getattr(cut.module, cut.name) is None
        elif not is_stack(value):
            if type(value) not in (nn.Parameter, Tensor) or not value.is_floating_point():
                return False  # sharded (DTensor), or quantised
            gone = (axis.K - n) * axis.per * cut.width
            if cut.name == "weight" and breaks_groups(cut.module, cut.dim, len(value) - gone):
                return False
    return axis.cuttable


def _held(cut: Cut) -> Any:
    """The parameter, buffer or list that a cut names; None for a missing bias, and for what other tensors compute."""
    tables = (cut.module._parameters, cut.module._buffers, cut.module._modules)
    return next((table[cut.name] for table in tables if cut.name in table), None)


def _check_state(optimizer: Optimizer, choices: Mapping[OrderedAxis, Choice]) -> None:
    """Raise a ValueError if ``optimizer`` does not hold a trained parameter, or has a state of another shape."""
    instead = (
        "leave the optimiser out of learner.step(progress), or give the callback shrink=False; sizes then stay masked "
        "until deploy"
    )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for cut, _ in plans_of(choices).values():
        value, what = owned(cut), f"{type(cut.module).__name__}.{cut.name}"
        if not isinstance(value, nn.Parameter):
            continue
        if value.requires_grad and id(value) not in held:
            raise ValueError(f"the optimiser does not hold {what}, which is to be cut: {instead}")
        for state in tree_leaves(optimizer.state.get(value, {})):
            if isinstance(state, Tensor) and state.numel() > 1 and state.shape != value.shape:
                raise ValueError(
                    f"{type(optimizer).__name__} keeps a state of shape {list(state.shape)} for {what} of shape "
                    f"{list(value.shape)}, which cannot be cut with it: {instead}"
                )


def _cut(model: nn.Module, choices: Mapping[OrderedAxis, Choice], optimizer: Optimizer | None) -> None:
    """Cut ``model`` in place, and the state of its optimiser."""
    plans, stacked, state = plans_of(choices), stacked_tensors(model), {} if optimizer is None else optimizer.state
    for axis in axes_of(model):
        axis._cuts = None if axis._cuts is None else tuple(_moved(cut, plans) for cut in axis._cuts)
    buffers: dict[int, Tensor] = {}
    for key, (cut, parts) in plans.items():
        value = owned(cut)
        if is_stack(value):
            continue
        plain = [(replace(c, fold=False, merge=False), choice) for c, choice in parts]

        def smaller(held: Any, shape: Any = value.shape, parts: TensorCuts = plain, lead: int = key in stacked) -> Any:
            return cut_tensor(held, parts, lead) if isinstance(held, Tensor) and held.shape == shape else held

        new = smaller(value.detach())
        if not isinstance(value, nn.Parameter):
            buffers[key] = new
            continue
        if value in state:
            state[value].update(tree_map(smaller, dict(state[value])))
        value.grad = None
        # A graph that is still alive has fixed the shape of the gradient. A change of type makes torch forget it.
        value.data = new.new_empty(0, dtype=torch.float32 if new.dtype == torch.float16 else torch.float16)
        value.data = new
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, value in held.items():
                if id(value) in plans:
                    held[name] = buffers.get(id(value), value)  # type: ignore[assignment]
                    update_attributes(module, name, plans[id(value)][0].dim)
    _remove_layers(model, choices, optimizer)
    for axis, choice in choices.items():
        axis.shrunk(choice.kept)


def _moved(cut: Cut, plans: Mapping[int, tuple[Cut, TensorCuts]]) -> Cut:
    """``cut`` with its start where it will be after the cuts of ``plans``."""
    value = _held(cut)
    if cut.start <= 0 or id(value) not in plans:
        return cut
    dim = cut.dim % value.dim()
    here = by_dimension(value, plans[id(value)][1]).get(dim, [])
    return replace(cut, start=int(kept_entries(value.shape[dim], here)[: cut.start].sum()))


def _remove_layers(model: nn.Module, choices: Mapping[OrderedAxis, Choice], optimizer: Optimizer | None) -> None:
    """Remove closed layers from their lists and the optimiser. The axes that cut them keep the capacities within."""
    removed: list[nn.Module] = []
    for axis in choices:
        for layers, parts in ((owned(cut), parts) for cut, parts in plans_of({axis: choices[axis]}).values()):
            if not is_stack(layers):
                continue
            stay = kept_layers(layers, parts)
            lost = [layer for layer in layers if layer not in stay]
            inside = [part for layer in lost for part in layer.modules()]
            capacities = [part for part in inside if isinstance(part, Capacity)]
            if GONE not in axis._modules:
                axis.add_module(GONE, nn.ModuleList())
            axis.get_submodule(GONE).extend(capacities)  # type: ignore[operator]
            for part in inside:
                if isinstance(part, OrderedAxis):
                    part._cuts, part.counts = (), ()
            layers._modules.clear()
            layers.extend(stay)
            renumber_layers(layers)
            removed += lost
    left = {id(p) for p in model.parameters()}
    dead = {p for layer in removed for p in layer.parameters() if id(p) not in left}
    if optimizer is not None:
        for p in dead:
            optimizer.state.pop(p, None)
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p not in dead]


def cut_to_state(model: nn.Module, state: Mapping[str, Tensor], prefix: str, *others: Any) -> None:
    """Before a ``state`` is loaded, put the components of ``model`` in its order, and cut to its numbers of them."""
    stacks = [axis for axis in axes_of(model) if any(is_stack(_held(cut)) for cut in axis.cuts)]
    for some in (stacks, None):  # layers first: those that are left have new numbers in the state
        axes = axes_of(model) if some is None else some
        paths = {id(module): path for path, module in model.named_modules()}
        for axis in axes:
            if (order := state.get(prefix + f"{paths[id(axis)]}.order".lstrip("."))) is not None:
                axis.take_order(order)
        weights = [state.get(prefix + f"{paths[id(axis)]}.capacity.w".lstrip(".")) for axis in axes]
        shrink(model, axes, [axis.K if w is None else w.shape[-1] for axis, w in zip(axes, weights, strict=True)])


def load_cut_states(model: nn.Module) -> None:
    """Let ``model.load_state_dict`` take states of after a cut."""
    if not any(
        isinstance(getattr(hook, "hook", None), TrainingHook) for hook in model._load_state_dict_pre_hooks.values()
    ):
        model.register_load_state_dict_pre_hook(TrainingHook(cut_to_state))
