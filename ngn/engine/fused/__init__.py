"""Compiled kernels for the plain training loop where one fits; ``tests/test_fused*.py`` compare them."""

from ngn.components.conv import ConvBank
from ngn.components.latent import GatedBottleneck
from ngn.engine.batches import Batches
from ngn.engine.fused.autoencoder import AutoencoderTrainer
from ngn.engine.fused.branches import BranchesTrainer
from ngn.engine.fused.fits import unsupported_whole
from ngn.engine.fused.gradients import GradientsTrainer
from ngn.engine.fused.step1d import StepTrainer
from ngn.engine.fused.whole import FusedTrainer
from ngn.engine.trainer import Loss, Trainer, TrainPlan
from ngn.methods.learner import CapacityLearner

__all__ = ["AutoencoderTrainer", "BranchesTrainer", "FusedTrainer", "StepTrainer", "trainer_for", "unsupported"]


def _gradients_of(learner: CapacityLearner) -> type[GradientsTrainer]:
    """The trainer with the kernel that is made for the gradients of such a model."""
    if any(isinstance(group, GatedBottleneck) for group in learner.groups):
        return AutoencoderTrainer
    if any(isinstance(group.bank, ConvBank) for group in learner.groups):
        return BranchesTrainer
    return StepTrainer


def unsupported(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> str | None:
    """Why no kernel can do this training or give its gradients, or None if one can."""
    return _gradients_of(learner).unsupported(learner, batches, loss, plan)


def trainer_for(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> type[Trainer]:
    """The trainer in which a kernel does most: all of a training, the gradients of each step, or nothing."""
    trainer = _gradients_of(learner)
    if trainer.unsupported(learner, batches, loss, plan):
        return Trainer
    if trainer is StepTrainer and not unsupported_whole(learner, batches, loss, plan):
        return FusedTrainer
    return trainer
