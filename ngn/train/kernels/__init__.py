"""Compiled kernels that train as a whole, where one fits; the tests compare them with the plain trainer."""

<<<<<<< HEAD
from ngn.train.kernels.supported import unsupported
from ngn.train.kernels.trainer import KernelTrainer

__all__ = ["KernelTrainer", "unsupported"]
=======
from ngn.components.base import OrderedSum
from ngn.components.conv import ConvBank
from ngn.components.latent import GatedBottleneck
from ngn.learner import CapacityLearner
from ngn.train.batches import Batches
from ngn.train.kernels.autoencoder import AutoencoderTrainer
from ngn.train.kernels.branches import BranchesTrainer
from ngn.train.kernels.fits import unsupported_whole
from ngn.train.kernels.gradients import GradientsTrainer
from ngn.train.kernels.step1d import StepTrainer
from ngn.train.kernels.whole import FusedTrainer
from ngn.train.losses import Loss
from ngn.train.trainer import Trainer, TrainPlan

__all__ = ["AutoencoderTrainer", "BranchesTrainer", "FusedTrainer", "StepTrainer", "trainer_for", "unsupported"]


def _gradients_of(learner: CapacityLearner) -> type[GradientsTrainer]:
    """The trainer with the kernel that is made for the gradients of such a model."""
    if any(isinstance(group, GatedBottleneck) for group in learner.axes):
        return AutoencoderTrainer
    if any(isinstance(axis, OrderedSum) and isinstance(axis.bank, ConvBank) for axis in learner.axes):
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
>>>>>>> 6b802c9 (A size lives on an axis of tensors; deployment is one copy that is cut, and the deployed twins go)
