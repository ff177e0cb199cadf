"""Cut a model in place in training, so that a step costs what that of the small model costs.

Everything that notes shapes is told of a cut: the states of optimisers, all axes (:meth:`~ngn.axis.OrderedAxis.moved`),
averages, and callbacks (:class:`InPlaceCut`). Nothing is folded: the axes multiply by their coefficients as before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from ngn.axis import OrderedAxis
from ngn.checks import places_in
from ngn.cut import axes_in, cut_in_place, cutters, leading, plans_of
from ngn.cut.modules import breaks_groups
from ngn.cut.truncation import axes_of
from ngn.cuts import Choice, held_by, is_stack
from ngn.learner.report import WholeModel
from ngn.tracing.found import listed

Optimizers = Optimizer | Sequence[Optimizer] | None
Average = nn.Module | dict[str, Any]
Averages = Average | Sequence[Average]
_OWN = ("state", "param_groups", "defaults")
"""What torch's optimisers keep; others are searched for optimisers that they wrap, and for tensors."""


def optimizers_in(given: Any) -> list[Optimizer]:
    """The optimisers in one or several, with those that they wrap, such as the base of SAM; a TypeError for others."""
    found: list[Optimizer] = []

    def search(value: Any) -> None:
        if isinstance(value, Optimizer) and not any(value is other for other in found):
            found.append(value)
            for name, part in vars(value).items():
                if name not in _OWN:
                    search(part)
        elif isinstance(value, (list, tuple, dict)):
            for part in value.values() if isinstance(value, dict) else value:
                search(part)

    given = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    if wrong := [type(each).__name__ for each in given if not isinstance(each, Optimizer)]:
        raise TypeError(f"expected an optimiser or several, not a {wrong[0]}: call learner.step(progress, [a, b])")
    search(given)
    return found


def uncuttable(axes: Sequence[OrderedAxis], optimizers: Sequence[Optimizer]) -> dict[OrderedAxis, str]:
    """The axes that the states of ``optimizers`` cannot follow when they are cut in place, each with the reason."""
    cuttable = {id(value) for axis in axes for cut in axis.cuts if isinstance(value := held_by(cut), nn.Parameter)}
    held = {id(p): p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    shapes = {p.shape for p in held.values() if id(p) in cuttable}
    for optimizer in optimizers:
        name = type(optimizer).__name__
        aside = _tensors([part for key, part in vars(optimizer).items() if key not in _OWN])
        if any(part.shape in shapes and id(part) not in held for part in aside):
            return dict.fromkeys(axes, f"{name} keeps tensors outside of its state")
        if any(part.numel() > max(1, p.numel()) for p in held.values() for part in _tensors(optimizer.state.get(p))):
            return dict.fromkeys(axes, f"{name} keeps a state that is larger than its parameter")
    states = {id(optimizer.state): optimizer for optimizer in optimizers}  # of wrappers, the one inside
    reasons: dict[OrderedAxis, str] = {}
    for axis, cut in [(each, cut) for each in axes for cut in each.cuts]:
        value, what = held_by(cut), f"{type(cut.module).__name__}.{cut.name}"
        if not isinstance(value, nn.Parameter):
            continue
        if value.requires_grad and id(value) not in held:
            reasons.setdefault(axis, f"no optimiser holds {what}; pass all of them: learner.step(progress, [a, b])")
        for optimizer in states.values():
            for part in _tensors(optimizer.state.get(value)):
                if part.numel() > 1 and (part.shape != value.shape or type(part) is not Tensor):
                    kind, shape = "" if type(part) is Tensor else f"{type(part).__name__} ", list(part.shape)
                    other = f"a {kind}state of shape {shape} for {what} of shape {list(value.shape)}"
                    reasons.setdefault(axis, f"{type(optimizer).__name__} keeps {other}")
    return reasons


def _tensors(state: Any) -> list[Tensor]:
    return [part for part in tree_leaves(state) if isinstance(part, Tensor)]


def why_whole(axis: OrderedAxis, n: int) -> str | None:
    """What forbids to train on with ``n`` components of ``axis``; None if every tensor of it is a plain one."""
    for cut in axis.cuts:
        value, what = held_by(cut), f"{type(cut.module).__name__}.{cut.name}"
        if value is None:
            if cut.name in getattr(cut.module, "parametrizations", {}) or vars(cut.module).get(cut.name) is not None:
                return f"{what} is computed from other tensors (a parametrisation, a hook)"
        elif not is_stack(value):
            if type(value) not in (nn.Parameter, Tensor) or not value.is_floating_point():
                return f"{what} is divided among processes, or quantised"
            gone = (axis.K - n) * axis.per * cut.width
            if cut.name == "weight" and breaks_groups(cut.module, cut.dim, len(value) - gone):
                return f"{what} would lose a part of a group"
    return None if axis.cuttable else "closed components still matter in training"


class InPlaceCut:
    """A cut of a model in place, for all that keeps tensors like those of the model.

    Call it with what is to be cut alike, also in place: a copy of the model or of its learner, or a dictionary of
    tensors by name. Names may be those of the model, of the learner, or of a module that holds them. After the removal
    of layers, the dictionary has the new names and not the removed tensors. Other entries stay.
    """

    def __init__(self, model: nn.Module, wanted: Sequence[int], choices: Mapping[OrderedAxis, Choice]) -> None:
        self._model, self._wanted = model, wanted
        self._before = dict(model.named_modules(remove_duplicate=False))
        to_cut = cutters(plans_of(choices))
        held = places_in(model)
        self._tensors = {(module, name): (value.shape, to_cut.get(id(value))) for module, _, name, value in held}

    @torch.no_grad()
    def __call__(self, held: nn.Module | dict[str, Any]) -> None:
        """Cut ``held``; a ValueError if it is a module with other sizes than the model."""
        if isinstance(held, nn.Module):
            axes = axes_in(held)
            if len(axes) != len(self._wanted):
                raise ValueError(f"a {type(held).__name__} has {len(axes)} sizes, the model {len(self._wanted)}")
            cut_in_place(held, choices_of(dict(zip(axes, self._wanted, strict=True))))
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
    """Keep the ``counts`` leading components of the ``axes``, in place, and return whether anything was cut.

    Each axis keeps at least one component, since many modules fail without any. It stays as it is where
    :func:`why_whole` forbids a cut, and where two cuts overlap. States of ``optimizers`` are cut as their parameters
    are. The ``followers`` are called after the cut, to cut what else has tensors like those of the model.
    """
    present = axes_of(model)
    numbers = dict(zip(axes, counts, strict=True))
    wanted = [max(1, min(axis.K, numbers.get(axis, axis.K))) for axis in present]
    choices = choices_of(dict(zip(present, wanted, strict=True)))
    if not choices:
        return False
    if present[0].whole is None:
        whole = WholeModel.of(model, present)
        for axis in present:
            axis.whole = whole
    cut = InPlaceCut(model, wanted, choices)
    cut_in_place(model, choices, optimizers)
    for follow in followers:
        follow(cut)
    return True


def choices_of(counts: Mapping[OrderedAxis, int]) -> dict[OrderedAxis, Choice]:
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
    whole = {axis.capacity for axis in counts if axis not in fewer}  # a shared size is cut in all layers or in none
    fewer = {axis: n for axis, n in fewer.items() if axis.capacity not in whole}
    return {axis: leading(axis, n) for axis, n in fewer.items()}


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


def averages_in(given: Averages, model: nn.Module) -> list[Any]:
    """The averages as a list; an error if they are not averages of this ``model``."""
    copies = [given] if isinstance(given, (nn.Module, dict)) else [*given]
    for each in copies:
        name = type(each).__name__
        if not isinstance(each, (nn.Module, dict)):
            raise TypeError(f"an average is a copy of the model, or a dictionary of tensors, not a {name}")
        if isinstance(each, nn.Module) and [a.K for a in axes_in(each)] != [a.K for a in axes_in(model)]:
            raise ValueError(
                f"the average {name} does not have the sizes of the model: copy the learner or learner.model after "
                "learn_sizes, and pass the average in every step"
            )
    return copies


def warn_of_masks(
    axes: Sequence[OrderedAxis], names: Sequence[str], masked: Mapping[OrderedAxis, str], said: set[str]
) -> None:
    """Warn of the sizes that stay ``masked``, but not of those in ``said``, to which they are added."""
    named = {name: masked[axis] for axis, name in zip(axes, names, strict=True) if axis in masked}
    if new := [name for name in named if name not in said]:
        said.update(new)
        warnings.warn(
            f"{listed(new)} cannot be cut in training: {'; '.join(dict.fromkeys(named[name] for name in new))}. They "
            "stay masked until deploy. The deployed model is the same, but steps do not become cheaper. To silence "
            "this, leave the optimiser out of learner.step, or give the callback shrink=False",
            stacklevel=4,
        )
