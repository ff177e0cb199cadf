"""A model whose size is learned, as the trainer sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ngn.components.base import OrderedSum, deploy
from ngn.methods.base import Mode


class CapacityLearner(nn.Module):
    """The contract that every method fulfils: soft forward, penalty, post-step, count, hard forward, deploy.

    This class fulfils it for any model that contains :class:`OrderedSum` groups, with one capacity a group. G is the
    number of groups, ``*R`` nothing or one replica axis. A method that does not work by coefficients overrides it.

    Raises:
        ValueError: if the model has no ordered group, or groups of different replica counts.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.groups = [module for module in model.modules() if isinstance(module, OrderedSum)]
        if not self.groups:
            raise ValueError("the model has no OrderedSum: there is no size to learn")
        replicas = {group.capacity.replicas for group in self.groups}
        if len(replicas) != 1:
            raise ValueError(f"all groups of a model need the same replicas, not {sorted(map(str, replicas))}")
        self.replicas = replicas.pop()

    def set_progress(self, progress: float) -> None:
        """Move every schedule to ``progress`` in [0, 1]."""
        for group in self.groups:
            group.capacity.set_progress(progress)

    def begin_step(self, step: int | None) -> None:
        """Called before the forward passes of a step; with None before the trained model is evaluated."""
        for group in self.groups:
            group.begin_step(step)

    @property
    def normalised(self) -> bool:
        """Whether any group divides its components by their rms, which :meth:`calibrate` then has to fix."""
        return any(group.capacity.rms_eps is not None for group in self.groups)

    @torch.no_grad()
    def calibrate(self, x: Any) -> None:
        """Make the rms of the components over the batch ``x`` the constants of all that follows, deployment included.

        The next ``begin_step`` of a training drops them. Without normalised groups this does nothing.
        """
        if not self.normalised:
            return
        for group in self.groups:
            group.calibrating, group.rms = True, None
        try:
            self.soft_forward(x)
        finally:
            for group in self.groups:
                group.calibrating = False

    @contextmanager
    def _mode(self, mode: Mode) -> Iterator[None]:
        for group in self.groups:
            group.mode = mode
        try:
            yield
        finally:
            for group in self.groups:
                group.mode = "soft"

    def soft_forward(self, x: Any) -> Tensor:
        """The whole candidate model with its learned gates; what is trained."""
        output: Tensor = self.model(x)
        return output

    def hard_forward(self, x: Any) -> Tensor:
        """The retained components of every group as they are deployed: truncation."""
        with self._mode("hard"):
            return self.soft_forward(x)

    def kept_forward(self, x: Any) -> Tensor:
        """The retained prefix of every group with its learned gates."""
        with self._mode("kept"):
            return self.soft_forward(x)

    def penalty(self) -> Tensor:
        """Sum of the groups' penalties, [*R]."""
        return torch.stack([group.penalty() for group in self.groups]).sum(0)

    def activity_penalty(self) -> Tensor | None:
        """What the last forward pass adds to the task loss by what it computed, [*R]; None for nothing."""
        parts = [part for group in self.groups if (part := group.activity_penalty()) is not None]
        return torch.stack(parts).sum(0) if parts else None

    def make_room(self) -> bool:
        """Allocate the components that the boundaries have come to need; whether parameters have grown."""
        grown = [group.make_room() for group in self.groups]
        return any(grown)

    def post_step(self) -> None:
        """Called after every optimiser step."""
        for group in self.groups:
            group.capacity.post_step()

    def count(self) -> Tensor:
        """Retained components: int64 [*R, G]."""
        return torch.stack([group.capacity.count() for group in self.groups], -1)

    def size(self) -> Tensor:
        """Continuous sizes (t for a boundary): float64 [*R, G]."""
        return torch.stack([group.capacity.size() for group in self.groups], -1)

    def learned_decay(self) -> Tensor | None:
        """The ratios r of the ordering weights where every group learns its own: float64 [*R, G]; else None."""
        ratios = [group.capacity.learned_decay() for group in self.groups]
        learned = [r for r in ratios if r is not None]
        return torch.stack(learned, -1) if len(learned) == len(ratios) else None

    def controller_parameters(self) -> list[nn.Parameter]:
        """What decides the size; trained at a rate of its own and never decayed."""
        return [p for group in self.groups for p in group.capacity.controllers() if p.requires_grad]

    def body_parameters(self) -> list[nn.Parameter]:
        """Everything else that is trained."""
        controllers = {id(p) for p in self.controller_parameters()}
        return [p for p in self.model.parameters() if p.requires_grad and id(p) not in controllers]

    def deploy(self, replica: int | None = None) -> nn.Module:
        """The truncated model as an ordinary module: no gates, only what is retained. A stack needs the replica."""
        return deploy(self.model, replica)
