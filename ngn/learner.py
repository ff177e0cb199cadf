"""The learner of a model with ordered axes: one capacity per axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import axes_of
from ngn.components.base import OrderedSum
from ngn.contract import Learner
from ngn.cost import cut_to
from ngn.methods.base import Mode
from ngn.report import Group, groups_of

STILL = 0.05
"""A boundary that has moved by less, or by less than this part of a t below 1, has not been trained."""
LATE = 0.8
"""Part of the time before sizes are fixed after which a boundary is expected to be at rest."""
MOVING = (0.5, 0.1)
"""It is not, if it still moves by more components, and by a larger part of all the way that it has gone."""


class CapacityLearner(Learner):
    """The learner of any model that contains :class:`~ngn.axis.OrderedAxis` modules, with one capacity per axis.

    Attributes:
        axes, names: the axes in the order of counts and sizes, and what each is called.

    Raises:
        ValueError: if the model has no axis, or axes of different replica counts.

    >>> import ngn, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> _ = ngn.attach_low_rank(model, ["0", "2"], lambda number: ngn.CountGate(8, t0=(2.0, 6.0)[number]), seed=0)
    >>> ngn.CapacityLearner(model).count()
    tensor([3, 7])
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.axes = axes_of(model)
        if not self.axes:
            raise ValueError("the model has no OrderedAxis with a capacity: there is no size to learn")
        paths = {id(module): path for path, module in model.named_modules()}
        self.names = [axis.name or paths[id(axis)] for axis in self.axes]
        replicas = {axis.capacity.replicas for axis in self.axes}
        if len(replicas) != 1:
            raise ValueError(f"all axes of a model need the same replicas, not {sorted(map(str, replicas))}")
        self.replicas = replicas.pop()
        banks = [axis.bank for axis in self.axes if isinstance(axis, OrderedSum) and axis.bank.drawn]
        if len({(str(bank.seeds), bank.name) for bank in banks}) < len(banks):
            raise ValueError("two banks of one seed and name would start alike: give each bank a name of its own")
        self.has_boundary = all(axis.capacity.has_boundary for axis in self.axes)
        self.watched = False
        """Whether :meth:`deploy` warns of sizes that were not learned."""
        self._stepped = self._priced = False
        self._seen = torch.stack([self.size()] * 2)
        """The smallest and the largest sizes so far, of those who are watched: [2, *R, G]."""
        self._late: dict[str, Tensor] = {}
        """Their sizes shortly before they are fixed, and just before."""
        self._continued = False
        """Whether it goes on from a checkpoint, before which sizes may have been fixed."""

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        for axis in self.axes:
            axis.mode = mode
        try:
            yield
        finally:
            for axis in self.axes:
                axis.mode = "soft"

    def set_progress(self, progress: float) -> None:
        self._stepped |= progress > 0
        if self.watched:
            self._watch(progress)
        for axis in self.axes:
            axis.capacity.set_progress(progress)

    def _watch(self, progress: float) -> None:
        fixed = min(axis.capacity.commit or 1.0 for axis in self.axes)
        if progress < fixed:  # rounding is no movement
            self._late["before" if progress < LATE * fixed else "last"] = self._see()

    def _see(self) -> Tensor:
        """The sizes, which are taken into the range of those so far."""
        size = self.size()
        low, high = self._seen.to(size)
        self._seen = torch.stack([torch.minimum(low, size), torch.maximum(high, size)])
        return size

    def commit_at(self, progress: float) -> None:
        """Let the boundaries that are not committed at a time of their own be integers from ``progress`` on."""
        for axis in self.axes:
            if axis.capacity.commit is None:
                axis.capacity.commit_at(progress)

    def before_step(self, step: int | None) -> None:
        for axis in self.axes:
            axis.before_step(step)

    def make_room(self) -> bool:
        grown = [axis.make_room() for axis in self.axes]  # all of them, not only to the first that has grown
        return any(grown)

    def penalty(self) -> Tensor:
        """Sum of the axes' penalties, [*R]."""
        penalty = torch.stack([axis.penalty() for axis in self.axes]).sum(0)
        if self.watched and not self._priced and penalty.requires_grad:
            penalty.register_hook(self._note)
        return penalty

    def _note(self, gradient: Tensor) -> None:
        self._priced = True

    def idle(self) -> list[str]:
        controllers = self.controller_parameters()
        progress = [getattr(axis.capacity, "progress", None) for axis in self.axes]
        if not self._stepped and any(p is not None and float(p) > 0 for p in progress):
            return []  # trained elsewhere and loaded
        stepless = "learner.step(progress) was never called, so no schedule moved"
        if not self.watched:
            trained = any(p.grad is not None for p in controllers)
            return [stepless] if trained and not self._stepped else []
        if not any(getattr(axis.capacity, "committed", False) for axis in self.axes):
            self._see()
        low, high = self._seen
        unseen = self._continued and not self._late
        reasons = {
            "t is where it started (are learner.controller_parameters() in the optimiser, at 0.05 or so?)": bool(
                controllers and not unseen and (high - low < STILL * high.clamp(max=1.0)).all()
            ),
            stepless: not self._stepped,
            "all boundaries are frozen": self.has_boundary and not controllers,
            "the model is of a time before sizes were fixed": self._stepped and any(map(_early, self.axes)),
            "learner.penalty() was never part of a loss": not self._priced and bool(controllers),
        }
        named = zip(self.names, self.axes, strict=True)
        never = [f"{name} was in no forward pass" for name, axis in named if not axis.called]
        return [reason for reason, holds in reasons.items() if holds] + (never or self._moving())

    def _moving(self) -> list[str]:
        """What sizes were still on their way when they were fixed, of one model."""
        if self.replicas is not None or len(self._late) < 2:
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

    def whole(self) -> nn.Module:
        return cut_to(self.model, self.axes, [axis.K for axis in self.axes])

    def groups(self) -> list[Group]:
        return groups_of(self.axes, self.names) if self.replicas is None else []

    def _distance(self) -> Tensor | None:
        if not self.has_boundary:
            return None
        # Beyond the last component there is nothing to be rounded.
        last = torch.tensor([axis.K - (getattr(axis.capacity, "delta", 0.5) > 0) for axis in self.axes])
        t = self.size().minimum(last.to(self.size()))
        return (t - t.round()).abs()

    def activity_penalty(self) -> Tensor | None:
        parts = [part for axis in self.axes if (part := axis.activity_penalty()) is not None]
        return torch.stack(parts).sum(0) if parts else None

    def after_step(self, step: int) -> None:
        for axis in self.axes:
            axis.capacity.after_step()

    def finish(self, batches: Any) -> None:
        """Calibrate normalised components on the inputs of batch 0."""
        if any(axis.capacity.rms_eps is not None for axis in self.axes):
            self.calibrate(batches.at(0)[0])

    @torch.no_grad()
    def calibrate(self, x: Any) -> None:
        """Make the rms of the components over the batch ``x`` the constants of all that follows, deployment included.

        The next ``before_step`` of a training drops them. Without normalised axes this changes nothing.
        """
        sums = [axis for axis in self.axes if isinstance(axis, OrderedSum) and axis.capacity.rms_eps is not None]
        for axis in sums:
            axis.calibrating, axis.rms = True, None
        try:
            if sums:
                self(x)
        finally:
            for axis in sums:
                axis.calibrating = False

    def count(self) -> Tensor:
        return torch.stack([axis.capacity.count() for axis in self.axes], -1)

    def size(self) -> Tensor:
        return torch.stack([axis.capacity.size() for axis in self.axes], -1)

    def learned_decay(self) -> Tensor | None:
        ratios = [axis.capacity.learned_decay() for axis in self.axes]
        learned = [r for r in ratios if r is not None]
        return torch.stack(learned, -1) if len(learned) == len(ratios) else None

    def controller_parameters(self) -> list[nn.Parameter]:
        return [p for axis in self.axes for p in axis.capacity.controllers() if p.requires_grad]

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"allocated": torch.tensor([axis.K for axis in self.axes])}

    def resume(self, step: int, progress: float) -> None:
        self._continued = True
        super().resume(step, progress)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._continued = True
        for axis, K in zip(self.axes, tensors["allocated"].tolist(), strict=True):
            if K > axis.K:
                axis.grow(K)
        super().restore(tensors)


def _early(axis: OrderedAxis) -> bool:
    """Whether an axis has a commit and is not there."""
    capacity = axis.capacity
    return capacity.commit is not None and not getattr(capacity, "committed", True)
