"""Compiled kernels for the plain training loop where one fits; ``tests/test_fused*.py`` compare them."""

from ngn.engine.batches import Batches
from ngn.engine.fused.fits import unsupported, unsupported_whole
from ngn.engine.fused.step1d import StepTrainer
from ngn.engine.fused.whole import FusedTrainer
from ngn.engine.trainer import Loss, Trainer, TrainPlan
from ngn.methods.learner import CapacityLearner

__all__ = ["FusedTrainer", "StepTrainer", "trainer_for", "unsupported"]


def trainer_for(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> type[Trainer]:
    """The trainer in which a kernel does most: all of a training, the gradients of each step, or nothing."""
    if unsupported(learner, batches, loss, plan):
        return Trainer
    return StepTrainer if unsupported_whole(learner, batches, loss, plan) else FusedTrainer
