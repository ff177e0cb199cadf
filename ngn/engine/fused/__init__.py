"""Compiled kernels for the plain training loop where one fits; ``tests/test_fused*.py`` compare them."""

from collections.abc import Callable

from ngn.components.conv import ConvBank
from ngn.components.latent import GatedBottleneck
from ngn.engine.batches import Batches
from ngn.engine.fused.autoencoder import AutoencoderTrainer, unsupported_autoencoder
from ngn.engine.fused.branches import BranchesTrainer, unsupported_branches
from ngn.engine.fused.fits import unsupported_step, unsupported_whole
from ngn.engine.fused.step1d import StepTrainer
from ngn.engine.fused.whole import FusedTrainer
from ngn.engine.trainer import Loss, Trainer, TrainPlan
from ngn.methods.learner import CapacityLearner

__all__ = ["AutoencoderTrainer", "BranchesTrainer", "FusedTrainer", "StepTrainer", "trainer_for", "unsupported"]

Unsupported = Callable[[CapacityLearner, Batches, Loss, TrainPlan], str | None]


def _gradients_of(learner: CapacityLearner) -> tuple[Unsupported, type[Trainer]]:
    """The kernel that is made for the gradients of such a model: why it cannot give them, and its trainer."""
    if any(isinstance(group, GatedBottleneck) for group in learner.groups):
        return unsupported_autoencoder, AutoencoderTrainer
    if any(isinstance(group.bank, ConvBank) for group in learner.groups):
        return unsupported_branches, BranchesTrainer
    return unsupported_step, StepTrainer


def unsupported(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> str | None:
    """Why no kernel can do this training or give its gradients, or None if one can."""
    return _gradients_of(learner)[0](learner, batches, loss, plan)


def trainer_for(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> type[Trainer]:
    """The trainer in which a kernel does most: all of a training, the gradients of each step, or nothing."""
    reason, trainer = _gradients_of(learner)
    if reason(learner, batches, loss, plan):
        return Trainer
    if trainer is StepTrainer and not unsupported_whole(learner, batches, loss, plan):
        return FusedTrainer
    return trainer
