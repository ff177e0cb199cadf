"""Cut a model in place, so that a training step costs what that of the small model costs.

Parameters stay the same objects with smaller values, so optimisers and schedules keep them. Everything that notes
shapes is told of a cut: the states of optimisers, all axes (:meth:`~ngn.axis.OrderedAxis.moved`), averages, and
callbacks (:class:`InPlaceCut`). Nothing is folded: the axes multiply by their coefficients as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from ngn.axis import GONE, Cut, OrderedAxis
from ngn.checks import axes_of
from ngn.cut_modules import TrainingHook, renumber_layers, update_adapters, update_attributes
from ngn.cuttable import held_by, why_whole
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


class InPlaceCut:
    """A cut of a model in place, for all that keeps tensors like those of the model.

    Call it with what is to be cut alike, also in place: a copy of the model or of its learner, or a dictionary of
    tensors by name. Names may be those of the model, of the learner, or of a module that holds them. After the removal
    of layers, the dictionary has the new names and not the removed tensors. Other entries stay.
    """

    def __init__(self, model: nn.Module, wanted: Sequence[int], choices: Mapping[OrderedAxis, Choice]) -> None:
        self._model, self._wanted = model, wanted
        self._before = dict(model.named_modules(remove_duplicate=False))
        cutters = _cutters(model, choices)
        self._tensors = {
            (module, name): (value.shape, cutters.get(id(value)))
            for module in model.modules()
            for held in (module._parameters, module._buffers)
            for name, value in held.items()
            if value is not None
        }

    @torch.no_grad()
    def __call__(self, held: nn.Module | dict[str, Any]) -> None:
        """Cut ``held``.

        Raises:
            ValueError: if a module has other sizes than the model.
        """
        if isinstance(held, nn.Module):
            axes = axes_in(held)
            if len(axes) != len(self._wanted):
                raise ValueError(f"a {type(held).__name__} has {len(axes)} sizes, the model {len(self._wanted)}")
            _cut(held, _choices(dict(zip(axes, self._wanted, strict=True))), [])
            return
        now: dict[nn.Module, list[str]] = {}
        for path, module in self._model.named_modules(remove_duplicate=False):
            now.setdefault(module, []).append(path)
        prefix, before = self._prefix(held), {**held}
        held.clear()
        for key, value in before.items():
            path, _, name = key.removeprefix(prefix).rpartition(".")
            module = self._before.get(path) if key.startswith(prefix) else None
            if module is None:
                held[key] = value
            elif module in now:
                path = path if path in now[module] else now[module][0]
                held[prefix + f"{path}.{name}".lstrip(".")] = self._smaller(module, name, value)

    def _prefix(self, held: Mapping[str, Any]) -> str:
        """What precedes the names of the model in ``held``, such as "model." for those of its learner."""
        names = [f"{path}.{name}".lstrip(".") for path, m in self._before.items() for name in (*m._parameters,)]
        for name in names:
            if starts := [key.removesuffix(name) for key in held if f".{key}".endswith(f".{name}")]:
                return max(starts, key=lambda start: sum(start + other in held for other in names))
        return ""

    def _smaller(self, module: nn.Module, name: str, value: Any) -> Any:
        shape, cutter = self._tensors.get((module, name), (None, None))
        if not isinstance(value, Tensor) or value.shape != shape or cutter is not None:
            return value if cutter is None else cutter(value)
        left = getattr(module, name).shape  # gates have tensors of their components, too; the first of them are left
        return value if value.shape == left else value[tuple(map(slice, left))].clone()


@torch.no_grad()
def shrink(
    model: nn.Module,
    axes: Sequence[OrderedAxis],
    counts: Sequence[int],
    optimizers: Sequence[Optimizer] = (),
    followers: Sequence[Callable[[InPlaceCut], object]] = (),
) -> bool:
    """Keep the ``counts`` leading components of the ``axes``, in place; of a stack, those of every model.

    Each axis keeps at least one component, since many modules fail without any. An axis stays as it is if
    :func:`uncuttable` names it, or if two cuts overlap.

    Args:
        model, axes: a model, and its ordered axes in any order.
        optimizers: hold the parameters; entries of their states with the shape of their parameter are cut as this is.
        followers: called after the cut, to cut what else has tensors like those of the model.

    Returns:
        Whether anything was cut.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> axes, weight = ngn.learn_sizes(model, {"": ngn.Width(8)}, example=torch.ones(1, 3)).axes, model[0].weight
    >>> shrink(model, axes, [5]), model[0], model[0].weight is weight
    (True, Linear(in_features=3, out_features=5, bias=True), True)
    """
    present = axes_of(model)
    numbers = dict(zip(axes, counts, strict=True))
    wanted = [max(1, min(axis.K, numbers.get(axis, axis.K))) for axis in present]
    choices = _choices(dict(zip(present, wanted, strict=True)))
    if not choices:
        return False
    if present[0].whole is None:
        whole = WholeModel.of(model, present)
        for axis in present:
            axis.whole = whole
    cut = InPlaceCut(model, wanted, choices)
    _cut(model, choices, optimizers)
    for follow in followers:
        follow(cut)
    return True


def axes_in(copy: nn.Module) -> list[OrderedAxis]:
    """The axes of a copy of a model, or of its learner, which keeps those of removed layers for reports."""
    return [part for part in copy.modules() if isinstance(part, OrderedAxis) and part.capacity is not None]


def _choices(counts: Mapping[OrderedAxis, int]) -> dict[OrderedAxis, Choice]:
    """What to keep of the axes that can be cut."""
    fewer = {axis: n for axis, n in counts.items() if n < axis.K and why_whole(axis, n) is None}
    spans: dict[tuple[int, int], set[tuple[int, int, OrderedAxis]]] = {}
    for axis in fewer:
        for cut in axis.cuts:
            if isinstance(value := held_by(cut), Tensor):
                span = (cut.start, cut.start + axis.places * cut.width, axis)
                spans.setdefault((id(value), cut.dim % value.dim()), set()).add(span)
    pairs = (pair for held in spans.values() for pair in combinations(held, 2))
    clashing = {span[2] for a, b in pairs if a[0] < b[1] and b[0] < a[1] for span in (a, b)}
    fewer = {axis: n for axis, n in fewer.items() if axis not in clashing}
    return {axis: Choice(axis.in_place(torch.arange(axis.K) < n), None, None) for axis, n in fewer.items()}


def _cutters(model: nn.Module, choices: Mapping[OrderedAxis, Choice]) -> dict[int, Callable[[Any], Any]]:
    """For each tensor that is cut, by its id, what cuts tensors of its shape and leaves all else as it is."""
    stacked = stacked_tensors(model)
    cutters: dict[int, Callable[[Any], Any]] = {}
    for key, (cut, parts) in plans_of(choices).items():
        if is_stack(value := owned(cut)):
            continue
        plain = [(replace(c, fold=False, merge=False), choice) for c, choice in parts]

        def smaller(held: Any, shape: Any = value.shape, parts: TensorCuts = plain, lead: int = key in stacked) -> Any:
            return cut_tensor(held, parts, lead) if isinstance(held, Tensor) and held.shape == shape else held

        cutters[key] = smaller
    return cutters


def _cut(model: nn.Module, choices: Mapping[OrderedAxis, Choice], optimizers: Sequence[Optimizer]) -> None:
    """Cut ``model`` in place, and the states of its optimisers."""
    plans, cutters = plans_of(choices), _cutters(model, choices)
    for axis in axes_in(model):
        axis._cuts = None if axis._cuts is None else tuple(_moved(cut, plans) for cut in axis._cuts)
    buffers: dict[int, Tensor] = {}
    for key, smaller in cutters.items():
        value = owned(plans[key][0])
        new = smaller(value.detach())
        if not isinstance(value, nn.Parameter):
            buffers[key] = new
            continue
        for state in {id(optimizer.state): optimizer.state for optimizer in optimizers}.values():
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
    _remove_layers(model, choices, optimizers)
    update_adapters(model)
    for axis, choice in choices.items():
        axis.shrunk(choice.kept)
    for axis in axes_in(model):
        axis.moved()


def _moved(cut: Cut, plans: Mapping[int, tuple[Cut, TensorCuts]]) -> Cut:
    """``cut`` with its start where it will be after the cuts of ``plans``."""
    value = held_by(cut)
    if cut.start <= 0 or id(value) not in plans:
        return cut
    dim = cut.dim % value.dim()
    here = by_dimension(value, plans[id(value)][1]).get(dim, [])
    return replace(cut, start=int(kept_entries(value.shape[dim], here)[: cut.start].sum()))


def _remove_layers(model: nn.Module, choices: Mapping[OrderedAxis, Choice], optimizers: Sequence[Optimizer]) -> None:
    """Remove closed layers from their lists and the optimisers. The axes that cut them keep the capacities within.

    Those have buffers instead of parameters, so that an optimiser that is made later numbers its parameters alike.
    """
    removed: list[nn.Module] = []
    gates: list[nn.Parameter] = []
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
            for part in (part for capacity in capacities for part in capacity.modules()):
                for name, p in [*part.named_parameters(recurse=False)]:  # nothing trains them any more
                    delattr(part, name)
                    part.register_buffer(name, p.detach())
                    gates.append(p)
            for part in inside:
                if isinstance(part, OrderedAxis):
                    part._cuts, part.counts = (), ()
            layers._modules.clear()
            layers.extend(stay)
            renumber_layers(layers)
            removed += lost
    left = {id(p) for p in model.parameters()}
    dead = {p for layer in removed for p in layer.parameters() if id(p) not in left} | {*gates}
    for optimizer in optimizers:
        for p in dead:
            optimizer.state.pop(p, None)
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p not in dead]


def cut_to_state(model: nn.Module, state: Mapping[str, Tensor], prefix: str, *others: Any) -> None:
    """Before a ``state`` is loaded, put the components of ``model`` in its order, and cut to its numbers of them."""
    stacks = [axis for axis in axes_of(model) if any(is_stack(held_by(cut)) for cut in axis.cuts)]
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
