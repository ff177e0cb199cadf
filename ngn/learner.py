"""The learner of a model with ordered axes: one capacity per axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ngn.checks import axes_of
from ngn.components.base import OrderedSum
from ngn.contract import Learner
from ngn.methods.base import Mode
from ngn.report import Group, groups_of

STILL = 0.05
"""A boundary that has moved by less has not been trained."""


class CapacityLearner(Learner):
    """The learner of any model that contains :class:`~ngn.axis.OrderedAxis` modules, with one capacity per axis.

    Attributes:
        axes, names: the axes in the order of counts and sizes, and what each is called.

    Raises:
        ValueError: if the model has no axis, or axes of different replica counts.

    >>> import ngn, torch
    >>> sums = [ngn.OrderedSum(ngn.MLPBank([2, 3, 2], K, 0, name=K), ngn.CountGate(K, t0=K - 2.0)) for K in (4, 8)]
    >>> ngn.CapacityLearner(torch.nn.Sequential(*sums)).count()
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
        self._start = [p.detach().clone() for p in self.controller_parameters()]
        self._stepped = self._priced = False

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
        for axis in self.axes:
            axis.capacity.set_progress(progress)

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
        progress = [getattr(axis.capacity, "progress", None) for axis in self.axes]
        if not self.watched or (not self._stepped and any(p is not None and float(p) > 0 for p in progress)):
            return []  # not watched, or trained elsewhere and loaded
        pairs = zip(self.controller_parameters(), self._start, strict=True)
        far = max((float((now - start.to(now.device)).detach().abs().max()) for now, start in pairs), default=STILL)
        reasons = {
            "t is where it started (are learner.controller_parameters() in the optimiser, at 0.05 or so?)": far < STILL,
            "learner.step(progress) was never called, so no schedule moved": not self._stepped,
            "learner.penalty() was never part of a loss": not self._priced and bool(self.controller_parameters()),
        }
        named = zip(self.names, self.axes, strict=True)
        never = [f"{name} was in no forward pass" for name, axis in named if not axis.called]
        return [reason for reason, holds in reasons.items() if holds] + never

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

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for axis, K in zip(self.axes, tensors["allocated"].tolist(), strict=True):
            if K > axis.K:
                axis.grow(K)
        super().restore(tensors)
