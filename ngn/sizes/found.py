"""Learned sizes of groups that a trace has found (``ngn/tracing``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.cut_modules import value_of
from ngn.methods.base import Capacity
from ngn.sizes.base import Maker
from ngn.sizes.hooked import HookedAxis
from ngn.tracing.found import Consumer, FoundSizes, SizeGroup, Uncut
from ngn.tracing.lengths import Polynomial
from ngn.tracing.run import use_cuttable_attention


class FoundAxis(HookedAxis):
    """The axis of a group: it multiplies what each product reads, in the input of a layer or else in the weight.

    What lies between the modules that produce the units and those that read them does not matter: a removed unit
    reaches no product.
    """

    def __init__(self, capacity: Capacity, group: SizeGroup, costs: Mapping[str, Polynomial | None]) -> None:
        self.consumers: tuple[Consumer, ...] = group.consumers
        units = group.units or group.length
        super().__init__(capacity, group.cuts, group.counts, -1, group.order, group.name, group.unit, units=units)
        self.seen = all(consumer.by_input for consumer in group.consumers)
        self.costs = costs
        """By kind, the cost of the model as a function of all sizes that the trace has found."""
        if not bool((capacity.weights() == 1).all()) and not all(
            any(c.fold for c in self._of(r)) for r in self.consumers
        ):
            raise ValueError(f"{group.name}: a tied weight reads its units, so ordering weights must be one: set r=1")
        self.moved()

    def _of(self, consumer: Consumer) -> list[Any]:
        place = (consumer.holder, consumer.name, consumer.dim)
        return [cut for cut in self.cuts if (cut.module, cut.name, cut.dim) == place]

    def moved(self) -> None:
        """Note, for each consumer, the place of every entry that it reads; a last place for entries of other sizes."""
        self._units: list[Tensor] = []
        self._whole: list[bool] = []
        for consumer in self.consumers:
            value = value_of(consumer.holder, consumer.name)
            units, n = torch.full((value.shape[consumer.dim],), self.places), self.places
            for cut in self._of(consumer):
                units[cut.start : cut.start + n * cut.width] = torch.arange(n).repeat_interleave(cut.width)
            self._units.append(units)
            self._whole.append(len(self._of(consumer)) == 1 and not bool((units == n).any()))

    def sort(self, by_importance: Sequence[int]) -> None:
        super().sort(by_importance)
        self.moved()

    def closed(self, scale: Tensor | None) -> None:
        super().closed(scale)
        self.consumers, self._units = (), []

    def attach(self) -> None:
        """Let the consumers call the axis, which becomes a child of the first."""
        for site in dict.fromkeys(consumer.site for consumer in self.consumers):
            if any(consumer.by_input for consumer in self.consumers if consumer.site is site):
                site.register_forward_pre_hook(self.before, with_kwargs=True)
                site.register_forward_hook(self.after, always_call=True)
            else:
                site.register_forward_pre_hook(self.before_weights)
                site.register_forward_hook(self.after, prepend=True, always_call=True)
        site, number = self.consumers[0].site, 1
        while hasattr(site, name := "size" if number == 1 else f"size_{number}"):
            number += 1
        site.add_module(name, self)

    def detach(self) -> None:
        """Undo :meth:`attach`."""
        for site in (consumer.site for consumer in self.consumers):
            for hooks in (site._forward_pre_hooks, site._forward_hooks):
                for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is self]:
                    del hooks[key]
            for name in [name for name, child in site._modules.items() if child is self]:
                del site._modules[name]

    def along(self, consumer: nn.Module, values: Tensor, size: int) -> Tensor:
        return self._spread(values, self._number(consumer))

    def _number(self, consumer: nn.Module) -> int:
        return next(n for n, each in enumerate(self.consumers) if each.site is consumer and each.by_input)

    def read(self, h: Tensor, consumer: nn.Module) -> Tensor:
        dim = self.dim_at(consumer)
        if self._whole[self._number(consumer)]:
            return self.scaled(h, dim)
        c = self.coefficients()
        if c is None:
            return h
        return h * self.along(consumer, c, h.shape[dim]).to(h.dtype).view(-1, *[1] * (-1 - dim))

    def _spread(self, values: Tensor, number: int) -> Tensor:
        """Values of the places, for the entries that a consumer reads; one for other entries."""
        units = self._units[number]
        if units.device != values.device:
            units = self._units[number] = units.to(values.device)
        return torch.cat([values, values.new_ones(1)])[units]

    def before_weights(self, module: nn.Module, args: Any) -> None:
        """Put gated weights in the place of those that ``module`` reads; a forward pre-hook."""
        c = self.coefficients()
        for number, consumer in enumerate(self.consumers if c is not None else ()):
            if consumer.site is module:
                weight: Any = self._table(consumer.holder, consumer.name)[consumer.name]
                factor = self._spread(c, number).to(weight.dtype)  # type: ignore[arg-type]
                factor = factor.view(-1, *[1] * (weight.dim() - 1 - consumer.dim))
                self._gate(module, consumer.holder, consumer.name, weight * factor)


def attach_found(model: nn.Module, found: FoundSizes, make: Maker) -> list[FoundAxis]:
    """Make the sizes of ``found`` learnable."""
    use_cuttable_attention([cut.module for group in found for cut in group.cuts])
    axes = [FoundAxis(make(group.name, group.length), group, found.costs) for group in found]
    for axis in axes:
        axis.attach()
    return axes


def without_failed(found: FoundSizes, axes: Sequence[FoundAxis], failed: Mapping[OrderedAxis, str]) -> FoundSizes:
    """Detach the axes of ``found`` that failed their trial, and list them as fixed, with the difference of outputs."""
    kept, fixed = [], [*found.fixed]
    for group, axis in zip(found, axes, strict=True):
        if axis in failed:
            axis.detach()
            fixed.append(Uncut(group.members, group.length, failed[axis]))
        else:
            kept.append(group)
    return replace(found, groups=tuple(kept), fixed=tuple(fixed))
