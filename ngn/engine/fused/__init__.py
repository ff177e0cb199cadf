"""Compiled kernels for the plain training loop where one fits; ``tests/test_fused*.py`` compare them."""

from ngn.components.latent import GatedBottleneck
from ngn.engine.batches import Batches
from ngn.engine.fused.autoencoder import AutoencoderTrainer, unsupported_autoencoder
from ngn.engine.fused.fits import unsupported_step, unsupported_whole
from ngn.engine.fused.step1d import StepTrainer
from ngn.engine.fused.whole import FusedTrainer
from ngn.engine.trainer import Loss, Trainer, TrainPlan
from ngn.methods.learner import CapacityLearner

__all__ = ["AutoencoderTrainer", "FusedTrainer", "StepTrainer", "trainer_for", "unsupported"]


def unsupported(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> str | None:
    """Why no kernel can do this training or give its gradients, or None if one can."""
    if any(isinstance(group, GatedBottleneck) for group in learner.groups):
        return unsupported_autoencoder(learner, batches, loss, plan)
    return unsupported_step(learner, batches, loss, plan)


def trainer_for(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> type[Trainer]:
    """The trainer in which a kernel does most: all of a training, the gradients of each step, or nothing."""
    if unsupported(learner, batches, loss, plan):
        return Trainer
    if any(isinstance(group, GatedBottleneck) for group in learner.groups):
        return AutoencoderTrainer
    return StepTrainer if unsupported_whole(learner, batches, loss, plan) else FusedTrainer
