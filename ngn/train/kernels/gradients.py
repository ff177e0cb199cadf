"""The plain trainer with a compiled kernel in the place of its forward and backward pass."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ngn.learner import CapacityLearner
from ngn.train.batches import Batches
from ngn.train.losses import Loss
from ngn.train.trainer import Course, Trainer, TrainPlan


class Unsupported(Protocol):
    """Says why a kernel cannot do a training, or None if it can."""

    def __call__(self, learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan, /) -> str | None: ...


@dataclass
class GradientsTrainer(Trainer):
    """:class:`Trainer` with a kernel's gradients. Against the plain trainer its numbers differ by rounding.

    Raises:
        ValueError: from ``fit``, if the kernel cannot do this training (see ``unsupported``).
    """

    learner: CapacityLearner
    unsupported: ClassVar[Unsupported]

    def fit(self) -> Course:
        """Train to the end, from the newest checkpoint if there is one."""
        reason = type(self).unsupported(self.learner, self.batches, self.loss, self.plan)
        if reason is not None:
            raise ValueError(f"not a training for the kernel: {reason}")
        self.prepare()
        return super().fit()

    @abstractmethod
    def prepare(self) -> None:
        """Find what every step needs, once the training is known to be one for the kernel."""
