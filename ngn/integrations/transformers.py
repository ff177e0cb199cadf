"""Learned sizes in transformers' ``Trainer``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from ngn.contract import Learner
from ngn.integrations import BoundarySteps


class SizesCallback(TrainerCallback):
    """Learns the sizes of ``learner.model`` while a ``Trainer`` trains its weights. ::

        learner = ngn.learn_sizes(model, {"model.layers.*.mlp": ngn.Width(16)}, lambda0=1e-2)
        trainer = transformers.Trainer(model=learner.model, ..., callbacks=[SizesCallback(learner)])
        trainer.train()
        small = learner.deploy()

    The penalty is added to the gradients, not to the loss that is shown. What the trainer sets for its own optimiser
    (learning rate, schedule, weight decay) is not that of the boundaries. Adam's moments of the boundaries are not in
    the trainer's checkpoints; the boundaries are.

    Args:
        learner: made of the model that is trained.
        lr: learning rate of the boundaries.

    Raises:
        ValueError: in training, if the model is another one.
    """

    def __init__(self, learner: Learner, lr: float = 5e-2) -> None:
        self.steps = BoundarySteps(learner, lr)

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.steps.of(others["model"])
        self.steps.learner.set_progress(state.global_step / state.max_steps)
        self.steps.learner.before_step(state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.steps.take()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.steps.learner.step(state.global_step / state.max_steps)
