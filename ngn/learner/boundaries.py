"""Boundaries in a training loop: their own Adam, steps that the loop left out, and what truncation would round."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ngn.axis import OrderedAxis
from ngn.methods.batch import sizes

LR = 5e-2
"""Learning rate of the boundaries."""
BETAS, EPS = (0.9, 0.999), 1e-8


@torch.no_grad()
def adam_step(parameters: Sequence[nn.Parameter], moments: Tensor, lr: float) -> None:
    """Take a step of Adam, without weight decay. None moves if a gradient is not finite; copies nothing to the host.

    Parameters without a gradient stay. ``moments``, [3, entries], are steps, means and mean squares, changed in place.
    """
    if all(p.grad is None for p in parameters):
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    g = torch.cat([gradient.flatten() for gradient in gradients]).to(moments)
    seen = g.new_tensor([p.grad is not None for p in parameters for _ in range(p.numel())]).bool()
    steps, mean, square = moments
    steps, mean, square = steps + 1.0, mean.lerp(g, 1.0 - BETAS[0]), square.lerp(g * g, 1.0 - BETAS[1])
    change = lr * mean / (1.0 - BETAS[0] ** steps) / ((square / (1.0 - BETAS[1] ** steps)).sqrt() + EPS)
    takes = seen & g.isfinite().all()
    moments.copy_(torch.where(takes, torch.stack([steps, mean, square]), moments))
    changes = torch.where(takes, change, 0.0).split([p.numel() for p in parameters])
    for p, part in zip(parameters, changes, strict=True):
        if p.grad is not None:
            p.sub_(part.view_as(p))


def moved_elsewhere(
    parameters: Sequence[nn.Parameter], before: Sequence[Tensor] | None, optimizers: Sequence[Optimizer]
) -> bool | None:
    """Whether an optimiser is there to move the boundaries: one with a group of them alone, or none of torch's.

    ``before``: their values before the optimisers' steps, None if unknown. The result is None if it cannot be told yet.
    Warns of weight decay in a group of boundaries.
    """
    if all(p.grad is None for p in parameters):
        return None
    own = {id(p) for p in parameters}
    groups = [({id(p) for p in group["params"]}, group) for each in optimizers for group in each.param_groups]
    holding = [(held, group) for held, group in groups if held & own]
    if not holding:
        if before is None or all(map(torch.equal, parameters, before)):
            return None if before is None else False
        living = [each for each in gc.get_objects() if issubclass(type(each), Optimizer)]  # one that was not passed
        return moved_elsewhere(parameters, None, living) is not False
    apart = [group for held, group in holding if held <= own]
    if decay := max((group.get("weight_decay", 0.0) for group in apart), default=0.0):
        warnings.warn(
            f"weight_decay={decay:g} pulls the boundaries of your optimiser's own group for them: set it to 0 in that "
            "group. Or give the optimiser learner.parameters() in one group, and learner.step moves the boundaries "
            "without weight decay",
            stacklevel=4,
        )
    return bool(apart)


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
            penalty.register_hook(lambda gradient: setattr(self, "_priced", True))

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


def warn_of_unlearned(watch: LoopWatch, t: Tensor, distance: Tensor | None) -> None:
    """Warn of everything in :meth:`LoopWatch.missing`, and of boundaries ``t``, [G], whose ``distance`` to an integer
    is more than :data:`SETTLED`."""
    if missing := watch.missing():
        reasons = "; ".join(missing)
        warnings.warn(f"some sizes were not learned: {reasons}. To silence this, pass unsettled='allow'.", stacklevel=3)
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
