"""Watching a training: what a loop has not done for the sizes, and which boundaries truncation will round."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from ngn.axis import OrderedAxis

STILL = 0.05
"""A boundary that has moved by less, or by less than this part of a t below 1, has not been trained."""
LATE = 0.8
"""Part of the time before sizes are fixed after which a boundary is expected to be at rest."""
MOVING = (0.5, 0.1)
"""It is not, if it still moves by more components, and by a larger part of all the way that it has gone."""
SETTLED = 0.1
"""Distance of a boundary from an integer up to which truncation is expected to leave the model nearly as it was."""


class LoopWatch:
    """What a training loop has done with the sizes of a model so far.

    Args:
        axes, names: the learned sizes, and what each is called.

    Attributes:
        closely: whether sizes, penalty and forward passes are watched, too, and not the steps alone.
        continued: whether the training goes on from a checkpoint, before which sizes may have been fixed.
    """

    def __init__(self, axes: Sequence[OrderedAxis], names: Sequence[str]) -> None:
        self.axes, self.names = axes, names
        self.closely = self.continued = False
        self._stepped = self._priced = False
        self._seen = torch.stack([self._sizes()] * 2)
        """The smallest and the largest sizes so far: [2, *R, G]."""
        self._late: dict[str, Tensor] = {}
        """The sizes shortly before they are fixed, and just before."""

    def progressed(self, progress: float) -> None:
        """Note that the schedules are about to move to ``progress``."""
        self._stepped |= progress > 0
        if self.closely:
            fixed = min(axis.capacity.commit or 1.0 for axis in self.axes)
            if progress < fixed:  # rounding is no movement
                self._late["before" if progress < LATE * fixed else "last"] = self._see()

    def priced(self, penalty: Tensor) -> None:
        """Note when gradients of ``penalty`` are computed for the first time."""
        if self.closely and not self._priced and penalty.requires_grad:
            penalty.register_hook(self._note_priced)

    def _note_priced(self, gradient: Tensor) -> None:
        self._priced = True

    def _sizes(self) -> Tensor:
        return torch.stack([axis.capacity.size() for axis in self.axes], -1)

    def _see(self) -> Tensor:
        """The sizes, which are taken into the range of those so far."""
        size = self._sizes()
        low, high = self._seen.to(size)
        self._seen = torch.stack([torch.minimum(low, size), torch.maximum(high, size)])
        return size

    def missing(self) -> list[str]:
        """What a training has not done for the sizes, and what to do about it."""
        capacities = [axis.capacity for axis in self.axes]
        controllers = [p for capacity in capacities for p in capacity.controllers() if p.requires_grad]
        if not self._stepped and any(c.progress is not None and float(c.progress) > 0 for c in capacities):
            return []  # trained elsewhere and loaded
        stepless = "learner.step(progress) was never called, so no schedule moved"
        if not self.closely:
            trained = any(p.grad is not None for p in controllers)
            return [stepless] if trained and not self._stepped else []
        if not any(capacity.committed for capacity in capacities):
            self._see()
        low, high = self._seen
        unseen = self.continued and not self._late
        early = any(capacity.commit is not None and not capacity.committed for capacity in capacities)
        reasons = {
            "t is where it started (are learner.controller_parameters() in the optimiser, at 0.05 or so?)": bool(
                controllers and not unseen and (high - low < STILL * high.clamp(max=1.0)).all()
            ),
            stepless: not self._stepped,
            "all boundaries are frozen": not controllers and all(capacity.has_boundary for capacity in capacities),
            "this state was saved before the sizes were fixed": self._stepped and early,
            "learner.penalty() was never part of a loss": not self._priced and bool(controllers),
        }
        named = zip(self.names, self.axes, strict=True)
        never = [f"{name} was in no forward pass" for name, axis in named if not axis.called]
        return [reason for reason, holds in reasons.items() if holds] + (never or self._moving())

    def _moving(self) -> list[str]:
        """Which sizes still moved when they were fixed, of one model."""
        if self.axes[0].capacity.replicas is not None or len(self._late) < 2:
            return []
        before, last = (part.tolist() for part in (self._late["before"], self._late["last"].to(self._late["before"])))
        far = (MOVING[1] * (self._seen[1] - self._seen[0])).clamp(min=MOVING[0]).tolist()
        each = zip(self.names, before, last, far, strict=True)
        steps = [(name, a, b) for name, a, b, most in each if abs(a - b) > most]
        if not steps:
            return []
        name, a, b = max(steps, key=lambda step: abs(step[1] - step[2]))
        return [
            f"{len(steps)} of {len(before)} were still moving when they were fixed, {name} from t = {a:.1f} to {b:.1f} "
            "in the last fifth of the time: train longer, raise the boundaries' learning rate, or take a smaller K"
        ]


def warn_of_unlearned(watch: LoopWatch | None) -> None:
    """Warn of what a training has not done for the sizes."""
    if watch is not None and (missing := watch.missing()):
        warnings.warn(f"sizes that were not learned: {'; '.join(missing)} (silent: unsettled='allow')", stacklevel=3)


def warn_of_rounding(t: Tensor, distance: Tensor | None) -> None:
    """Warn of boundaries ``t`` of one model, [G], whose ``distance`` to an integer is more than :data:`SETTLED`."""
    if distance is not None and bool((far := distance > SETTLED).any()):
        warnings.warn(
            f"a boundary that has not settled is rounded: t = {', '.join(f'{v:.2f}' for v in t[far])}. Compare the "
            'outputs in learner.mode("hard") with the soft ones on your data; train longer, raise alpha_max or lower '
            "lambda0 (silent: unsettled='allow')",
            stacklevel=3,
        )


def refuse_diverged(sizes: Tensor) -> None:
    """Raise a ValueError if one of the ``sizes`` is no number, as after a loss that was none."""
    if not bool(sizes.isfinite().all()):
        raise ValueError(f"the training has diverged: sizes {sizes.tolist()} cannot be truncated to")
