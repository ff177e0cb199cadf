"""Which units of a size matter most: scores over all tensors that have them, before any training.

A cut keeps what is in front, so units are sorted by a score. The best of them then form component 0, and so on.

    magnitude  (Σ w²)^½ over all weights of a unit, those that produce it and those that read it, biases apart:
               the group norm of DepGraph (Fang et al., CVPR 2023, arXiv 2301.12900)
    taylor     |dL/dc|, summed over batches, for a factor c = 1 on the unit where it is read. It is |Σ w dL/dw| over
               the weights that read it, and the first-order change of the loss without the unit
               (Molchanov et al., CVPR 2019, arXiv 1906.10771)
    wanda      Σ |w| ‖x‖ over the weights that read the unit; x are its activations in all batches
               (Sun et al., ICLR 2024, arXiv 2306.11695, summed over outputs)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis, having
from ngn.checks import arguments, evaluating, summed, value_of
from ngn.cut import distinct
from ngn.cuts import Cut, by_place, inputs_first, is_stack, owned
from ngn.learner.hooked import HookedAxis, divided, taken_by
from ngn.losses import Loss, as_loss
from ngn.tracing.found import listed

Importance = Literal["magnitude", "taylor", "wanda"]
BATCHES = 32
"""Calibration batches that are read, at most."""


def check(by_importance: str, calibration: Any) -> None:
    """Raise a ValueError for an unknown score, and for one that needs data without data."""
    if by_importance not in get_args(Importance):
        raise ValueError(f"by_importance={by_importance!r} is none of {', '.join(get_args(Importance))}")
    if by_importance != "magnitude" and calibration is None:
        raise ValueError(
            f"by_importance={by_importance!r} is computed from training data: pass calibration=, batches of them. Or "
            "give by_importance to ngn.fit or to the callback, which have the batches"
        )


def sort(
    model: nn.Module, axes: Sequence[OrderedAxis], by_importance: str, calibration: Any = None, loss: Loss | None = None
) -> None:
    """Sort the units of the ``axes`` of ``model`` whose order the user has not given, as ``Learner.sort``."""
    check(by_importance, calibration)
    if any(axis.whole is not None for axis in axes):
        raise ValueError(
            "units are sorted before the training, but some sizes are cut already: leave by_importance= out"
        )
    if any(p.is_meta for p in model.parameters()):
        if by_importance != "magnitude":
            raise ValueError(f"by_importance={by_importance!r} needs weights with values, not on the meta device")
        return
    own = [axis for axis in axes if isinstance(axis, HookedAxis) and axis.units and not axis.chosen]
    for axis in own:
        axis.sort(range(axis.units or axis.K))  # one place for each unit
    if by_importance == "magnitude":
        scores = [_magnitude(axis) for axis in own]
    else:
        method = _taylor if by_importance == "taylor" else _wanda
        hooked = [axis for axis in axes if isinstance(axis, HookedAxis)]
        with having(hooked, capacity=lambda axis: None), evaluating(model), torch.random.fork_rng():  # no gates
            scores = method(model, own, islice(calibration, BATCHES), loss)
        scores = [summed(score) for score in scores]
    known = [bool(score.isfinite().all()) for score in scores]
    for axis, score, sortable in zip(own, scores, known, strict=True):
        if sortable:
            first, *squares = score.unbind() if score.dim() > 1 else [score]
            axis.sort(first.argsort(descending=True, stable=True).tolist())
            axis.worth = next((_by_component(axis, each.double()) for each in squares), None)
    if unknown := [axis.name for axis, sortable in zip(own, known, strict=True) if not sortable]:
        warnings.warn(f"{listed(unknown)}: {_WHY[by_importance]}; units keep the order of their tensors", stacklevel=4)


_WHY = {
    "magnitude": "weights of a type that is no float, or without finite values, have no magnitude",
    "taylor": "the loss has no finite gradient in the size",
    "wanda": "the units are not read by linear layers and convolutions alone, or never with finite values",
}


@torch.no_grad()
def _magnitude(axis: OrderedAxis) -> Tensor:
    """The norm of the weights of each unit, [places]."""
    total = torch.zeros(axis.places, dtype=torch.float64)
    for cut in distinct(axis).values():
        if "bias" in cut.name or cut.name in cut.module._buffers:
            continue
        if is_stack(held := owned(cut)):
            total += torch.tensor([sum(float(p.float().square().sum()) for p in part.parameters()) for part in held])
        else:
            total += by_place(cut, _floats(cut).square(), axis.places).flatten(1).sum(1).double().cpu()
    return total.sqrt()


def _floats(cut: Cut) -> Tensor:
    """The sizes of the entries of a cut's tensor, in float32; not a number where it has no such values."""
    value = value_of(cut.module, cut.name).detach()
    value = value.full_tensor() if divided(value) else value
    plain = (value.is_floating_point() or value.is_complex()) and not value.is_meta
    return value.abs().float() if plain else torch.full(value.shape, torch.nan)


def _taylor(model: nn.Module, axes: Sequence[HookedAxis], batches: Iterable[Any], loss: Loss | None) -> list[Tensor]:
    """The sums of |dL/dc| and of its square over batches, [2, places] for each of the ``axes``."""
    device = next(model.parameters()).device
    ones = {axis: torch.ones(axis.places, device=device, requires_grad=True) for axis in axes}
    totals: list[Any] = [None for axis in axes]
    with torch.enable_grad(), having(axes, scale=ones.__getitem__):
        for batch in batches:
            value = _run(model, batch, loss)
            if loss is None:
                value = value.get("loss") if isinstance(value, Mapping) else getattr(value, "loss", None)
            if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
                raise ValueError("'taylor' needs a loss, one number with a gradient: pass loss=, as to ngn.fit")
            slopes = torch.autograd.grad(value.sum(), [*ones.values()], allow_unused=True)
            totals = [
                t if d is None else torch.stack([d.abs(), d.square()]) + (0 if t is None else t)
                for t, d in zip(totals, slopes, strict=True)
            ]
    pairs = zip(axes, totals, strict=True)
    return [torch.full((axis.places,), torch.nan, device=device) if t is None else t for axis, t in pairs]


def slopes_of(axis: OrderedAxis) -> Tensor | None:
    """dL/dc of each component, float64 [K], from the gradients of the weights that read it: Σ w dL/dw over these.

    None if one of them has no gradient.
    """
    consumers = axis.consumers if isinstance(axis, HookedAxis) else ()
    read = {(each.holder, each.name, each.dim) for each in consumers}
    cuts = [c for c in axis.cuts if ((c.module, c.name, c.dim) in read if read else c.fold) and owned(c) is not None]
    distinct = {(id(owned(cut)), cut.dim, cut.start): cut for cut in cuts}
    total = torch.zeros(axis.places, dtype=torch.float64)
    for cut in distinct.values():
        weight = owned(cut)
        if not isinstance(weight, Tensor) or weight.grad is None or divided(weight):
            return None
        total = total.to(weight.device) + by_place(cut, weight.detach() * weight.grad, axis.places).flatten(1).sum(1)
    return _by_component(axis, total) if distinct else None


def _by_component(axis: OrderedAxis, values: Tensor) -> Tensor:
    """The sum over the places of each component, [places] → [K]."""
    ranks = torch.arange(axis.places) // axis.per if axis.ranks is None else axis.ranks
    return values.new_zeros(axis.K).index_add(0, ranks.to(values.device), values)


def _run(model: nn.Module, batch: Any, loss: Loss | None) -> Any:
    """The loss of a batch; without ``loss`` the output of the model."""
    if loss is not None:
        return as_loss(loss, model, lambda: batch)(model, batch)
    if isinstance(batch, list):
        raise ValueError("a calibration batch is a list: pass loss=, as to ngn.fit, to say what of it is the input")
    args, named = arguments(dict(batch) if isinstance(batch, Mapping) else batch)
    return model(*args, **named)


@torch.no_grad()
def _wanda(model: nn.Module, axes: Sequence[HookedAxis], batches: Iterable[Any], loss: Loss | None) -> list[Tensor]:
    """Σ |w| ‖x‖ over what reads each unit, [places] for each of the ``axes``."""
    squares: dict[tuple[HookedAxis, nn.Module], Tensor] = {}
    with ExitStack() as hooks:
        for axis, part in ((axis, each) for each in model.modules() for axis in taken_by(each)):

            def note(module: nn.Module, args: Any, kwargs: Any, axis: HookedAxis = axis) -> None:
                h = (args[0] if args else next(iter(kwargs.values()))).abs().float()
                square = h.square().movedim(axis.dim_at(module), 0).flatten(1).sum(1)
                squares[axis, module] = squares.get((axis, module), 0) + square

            hooks.enter_context(part.register_forward_pre_hook(note, with_kwargs=True))
        for batch in batches:
            _run(model, batch, loss)
    scores = []
    for axis in axes:
        read = [module for by, module in squares if by is axis]
        cuts = [cut for cut in axis.cuts if cut.module in read and cut.dim == (0 if inputs_first(cut.module) else 1)]
        if not read or not axis.seen or {cut.module for cut in cuts} != {*read}:
            scores.append(torch.full((axis.places,), torch.nan, device=next(model.parameters()).device))
            continue
        weights = [_floats(cut).movedim(cut.dim, -1) * squares[axis, cut.module].sqrt() for cut in cuts]
        pairs = zip(cuts, weights, strict=True)
        parts = [by_place(cut, w.movedim(-1, cut.dim), axis.places).flatten(1).sum(1) for cut, w in pairs]
        scores.append(torch.stack(parts).sum(0))
    return scores
