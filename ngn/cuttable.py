"""What can be cut in place: plain tensors, and the states of optimisers that follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from ngn.axis import Cut, OrderedAxis
from ngn.cut_modules import breaks_groups
from ngn.cutting import is_stack

_OWN = ("state", "param_groups", "defaults")
"""What torch's optimisers keep; others are searched for optimisers that they wrap, and for tensors."""


def optimizers_in(given: Any) -> list[Optimizer]:
    """The optimisers in one or several, with those that they wrap, such as the base of SAM; [] for None.

    Raises:
        TypeError: if something else is given.
    """
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


def kept_whole(axes: Sequence[OrderedAxis]) -> dict[OrderedAxis, str]:
    """The axes that cannot be cut in place because of their tensors, each with the reason."""
    reasons = {axis: why_whole(axis, axis.K - 1) for axis in axes if axis.K > 1}
    return {axis: reason for axis, reason in reasons.items() if reason is not None}


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


def held_by(cut: Cut) -> Any:
    """The parameter, buffer or list that a cut names; None for a missing bias, and for what other tensors compute."""
    tables = (cut.module._parameters, cut.module._buffers, cut.module._modules)
    return next((table[cut.name] for table in tables if cut.name in table), None)
