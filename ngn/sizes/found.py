"""Learned sizes of groups that a trace has found (``ngn/tracing``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from ngn.axis import OrderedAxis
from ngn.cut_modules import use_cuttable_attention
from ngn.hooked import HookedAxis
from ngn.sizes.base import Maker
from ngn.tracing.found import FoundSizes, Uncut


def attach_found(model: nn.Module, found: FoundSizes, make: Maker) -> list[HookedAxis]:
    """Make the sizes of ``found`` learnable."""
    use_cuttable_attention([cut.module for group in found for cut in group.cuts])
    axes = []
    for group in found:
        what = make(group.name, group.length), group.cuts, group.counts, -1, group.order, group.name, group.unit
        units = group.units or group.length
        axes.append(HookedAxis(*what, units=units, consumers=group.consumers, costs=found.costs))
    for axis in axes:
        axis.attach()
    return axes


def without_failed(found: FoundSizes, axes: Sequence[HookedAxis], failed: Mapping[OrderedAxis, str]) -> FoundSizes:
    """Detach the axes of ``found`` that failed their trial, and list them as fixed, with the difference of outputs."""
    kept, fixed = [], [*found.fixed]
    for group, axis in zip(found, axes, strict=True):
        if axis in failed:
            axis.detach()
            fixed.append(Uncut(group.members, group.length, failed[axis]))
        else:
            kept.append(group)
    return replace(found, groups=tuple(kept), fixed=tuple(fixed))
