"""What has to hold before sizes are learned, so that no training ends in a model that cannot be cut."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.books import value_of
from ngn.checks import check_equal
from ngn.components.low_rank import Bottleneck
from ngn.methods.ngn import CountGate
from ngn.truncation import deploy, owned


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[None]:
    """Whatever is done to the modules of ``model`` within is undone if it ends in an exception."""
    before = [(module, type(module), dict(vars(module))) for module in model.modules()]
    tables = [(value, copy.copy(value)) for _, _, held in before for value in held.values() if isinstance(value, dict)]
    trained = [(p, p.requires_grad) for p in model.parameters()]
    try:
        yield
    except BaseException:
        for value, content in tables:  # the same dictionaries, as handles of hooks refer to them
            value.clear()
            value.update(content)
        for module, kind, held in before:
            module.__class__ = kind
            vars(module).clear()
            vars(module).update(held)
        for p, wanted in trained:
            p.requires_grad_(wanted)
        raise


def refuse_different(model: nn.Module, axes: Sequence[OrderedAxis], example: Any) -> None:
    """Cut every size to half for a trial, and refuse what then computes something else than the model without the other
    half; where gates are at hand that can be put there.

    Raises:
        ValueError: naming the size.
    """
    sized = [(axis, axis.capacity) for axis in axes if isinstance(axis.capacity, CountGate)]
    if sized and (reason := _difference(model, sized, example)):
        alone = ((each[0].name, _difference(model, [each], example)) for each in sized)
        name, reason = next(((name, found) for name, found in alone if found), (sized[0][0].name, reason))
        raise ValueError(f"{name}: cut to half it is not what the model computes without the other half ({reason})")


def _difference(model: nn.Module, sized: Sequence[tuple[OrderedAxis, CountGate]], example: Any) -> str | None:
    """Why ``model`` with these sizes at half does not deploy to what it computes; None if it does."""
    before = [gate.tau.detach().clone() for _, gate in sized]
    try:
        for axis, gate in sized:
            gate.put_at(max(1, axis.K // 2))
            axis.mode = "hard"
        check_equal(model, deploy(model, share_frozen=True), example)
    except (ValueError, RuntimeError, TypeError, IndexError, AssertionError) as fault:
        return str(fault).partition("\n")[0]
    finally:
        with torch.no_grad():
            for value, (axis, gate) in zip(before, sized, strict=True):
                gate.tau.copy_(value)
                axis.mode = "soft"
    return None


def refuse_uncuttable(model: nn.Module, axes: Sequence[OrderedAxis]) -> None:
    """Refuse cuts of tensors that are not there or too short, that something else has, too, or that another axis cuts.

    Raises:
        ValueError: naming the size and the tensor.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    bases = {id(module.base): path for path, module in model.named_modules() if isinstance(module, Bottleneck)}
    holders: dict[int, list[tuple[int, str]]] = {}
    for module in model.modules():
        for name, value in module._parameters.items():
            holders.setdefault(id(value), []).append((id(module), name))
    taken: list[tuple[tuple[int, int], range, OrderedAxis]] = []
    for axis in axes:
        own = {(id(cut.module), cut.name) for cut in axis.cuts}
        for cut in axis.cuts:
            what = f"{axis.name}: {paths[id(cut.module)]}.{cut.name}".replace(" .", " ")
            held, value = owned(cut), value_of(cut.module, cut.name)
            if not isinstance(value, Tensor):
                continue
            if id(cut.module) in bases:
                raise ValueError(
                    f"{what} has a learned rank beside it, {bases[id(cut.module)]}, which is not cut with it"
                )
            dim, span = cut.dim % value.dim(), range(max(0, cut.start), cut.start + axis.K * cut.width)
            if span.stop > value.shape[dim]:
                raise ValueError(f"{what} has {value.shape[dim]} entries along dimension {dim}, not {span.stop}")
            if others := [place for place in holders.get(id(held), []) if place not in own]:
                raise ValueError(f"{what} is tied to {paths[others[0][0]]}.{others[0][1]}, which is not cut with it")
            for place, other, by in taken:
                if place == (id(held), dim) and by is not axis and other[0] <= span[-1] and span[0] <= other[-1]:
                    raise ValueError(f"{what} is cut by {by.name}, too: learn one of the two sizes")
            taken.append(((id(held), dim), span, axis))
