"""Watch a training: find steps that a loop left out, and boundaries that truncation would round."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from ngn.axis import OrderedAxis
from ngn.methods.batch import sizes

STILL = 0.05
"""A boundary counts as untrained if it moved by less than this (for t below 1: by less than this fraction of t)."""
LATE = 0.8
"""Fraction of the time before the sizes are fixed after which boundaries should be at rest."""
MOVING = (0.5, 0.1)
"""A boundary is not at rest if it then moves by more than both: so many components, this fraction of its range."""
SETTLED = 0.1
"""Largest distance of a boundary from an integer at which truncation should hardly change the model."""


class LoopWatch:
    """Record what a training loop does with the sizes, ``axes`` with their ``names``.

    It watches sizes, penalty and forward passes only ``closely``, and steps always. ``by_optimizer``: the optimiser
    moves the boundaries; under a budget the learner does, and notes when it has read their gradients. If the training
    is ``continued`` from a checkpoint, sizes may have been fixed before it.
    """

    def __init__(self, axes: Sequence[OrderedAxis], names: Sequence[str]) -> None:
        self.axes, self.names = axes, names
        self.closely = self.continued = self.gradients_read = False
        self.by_optimizer = True
        self._stepped = self._priced = False
        self._seen = torch.stack([sizes([axis.capacity for axis in axes])] * 2)
        """The smallest and the largest sizes so far: [2, *R, G]."""
        self._late: dict[str, Tensor] = {}
        """The sizes at ``LATE`` ("before") and just before they are fixed ("last")."""

    def progressed(self, progress: float) -> None:
        """Note that the schedules are about to move to ``progress``."""
        self._stepped |= progress > 0
        if self.closely and self.by_optimizer:
            fixed = min(axis.capacity.commit or 1.0 for axis in self.axes)
            if progress < fixed:  # rounding does not count as movement
                self._late["before" if progress < LATE * fixed else "last"] = self._sizes_seen()

    def priced(self, penalty: Tensor) -> None:
        """Note, the first time, when gradients of ``penalty`` are computed."""
        if not self._priced and penalty.requires_grad:
            penalty.register_hook(self._note_priced)

    def _note_priced(self, gradient: Tensor) -> None:
        self._priced = True

    def _sizes_seen(self) -> Tensor:
        """The sizes; extends their range so far."""
        size = sizes([axis.capacity for axis in self.axes])
        low, high = self._seen.to(size)
        self._seen = torch.stack([torch.minimum(low, size), torch.maximum(high, size)])
        return size

    def missing(self) -> list[str]:
        """List what the training left out or left unfinished, with what to do about it."""
        capacities = [axis.capacity for axis in self.axes]
        controllers = [p for capacity in capacities for p in capacity.controllers() if p.requires_grad]
        if not self._stepped and any(c.progress is not None and float(c.progress) > 0 for c in capacities):
            return []  # loaded after a training elsewhere
        stepless = "learner.step(progress) was never called, so no schedule moved: call it after each optimizer.step()"
        if not self.closely:
            trained = any(p.grad is not None for p in controllers)
            return [stepless] if trained and not self._stepped else []
        if not any(capacity.committed for capacity in capacities):
            self._sizes_seen()
        low, high = self._seen
        elsewhere = self.continued and not any(axis.called for axis in self.axes)  # before the checkpoint
        unseen = self.continued and not self._late
        early = any(capacity.commit is not None and not capacity.committed for capacity in capacities)
        still = bool(controllers and not unseen and (high - low < STILL * high.clamp(max=1.0)).all())
        reasons = {
            "t has not moved: clear gradients after learner.step, and raise the learning rate of the boundaries": (
                self.by_optimizer and still
            ),
            "no gradient of a boundary was seen: call learner.step(progress) before optimizer.zero_grad()": (
                bool(controllers) and not (self.by_optimizer or self.gradients_read or self.continued)
            ),
            stepless: not self._stepped,
            "all boundaries are frozen": not controllers and all(capacity.has_boundary for capacity in capacities),
            "this state was saved before the sizes were fixed": self._stepped and early,
            "learner.penalty() was never part of a loss: add it to every loss": (
                self.by_optimizer and not self._priced and bool(controllers) and not (elsewhere or unseen)
            ),
        }
        named = zip(self.names, self.axes, strict=True)
        gone = self.continued  # and without cuts: in a layer that was removed before the checkpoint
        idle = [name for name, axis in named if not (axis.called or elsewhere or (gone and not axis.cuts))]
        never = [f"{name} was never part of a forward pass" for name in idle]
        return [reason for reason, holds in reasons.items() if holds] + (never or self._moving())

    def _moving(self) -> list[str]:
        """Report the sizes that still moved when they were fixed; empty for a stack, and where a limit moves them."""
        if not self.by_optimizer or self.axes[0].capacity.replicas is not None or len(self._late) < 2:
            return []
        before, last = (part.tolist() for part in (self._late["before"], self._late["last"].to(self._late["before"])))
        far = (MOVING[1] * (self._seen[1] - self._seen[0])).clamp(min=MOVING[0]).tolist()
        each = zip(self.names, before, last, far, strict=True)
        steps = [(name, a, b) for name, a, b, most in each if abs(a - b) > most]
        if not steps:
            return []
        name, a, b = max(steps, key=lambda step: abs(step[1] - step[2]))
        return [
            f"{len(steps)} of {len(before)} were still moving when fixed, {name} from t = {a:.1f} to {b:.1f} in "
            "the last fifth: train longer, raise the boundaries' learning rate, or choose a smaller K"
        ]


def warn_of_unlearned(watch: LoopWatch) -> None:
    """Warn of everything in :meth:`LoopWatch.missing`."""
    if missing := watch.missing():
        reasons = "; ".join(missing)
        warnings.warn(f"some sizes were not learned: {reasons}. To silence this, pass unsettled='allow'.", stacklevel=3)


def warn_of_rounding(t: Tensor, distance: Tensor | None) -> None:
    """Warn of boundaries ``t``, [G], whose ``distance`` to an integer is more than :data:`SETTLED`."""
    if distance is not None and bool((far := distance > SETTLED).any()):
        warnings.warn(
            f"a boundary has not settled and is rounded: t = {', '.join(f'{v:.2f}' for v in t[far])}. Compare the "
            'outputs in learner.mode("hard") with the soft ones on your data. To settle it, train longer, raise '
            "alpha_max or lower lambda0. To silence this, pass unsettled='allow'.",
            stacklevel=3,
        )


def refuse_diverged(sizes: Tensor) -> None:
    """Raise a ValueError if one of the ``sizes`` is not finite, as after a loss that was not."""
    if not bool(sizes.isfinite().all()):
        raise ValueError(
            f"the training has diverged: sizes {sizes.tolist()} cannot be deployed; train with a lower learning rate"
        )
