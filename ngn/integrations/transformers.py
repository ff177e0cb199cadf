"""Learned sizes in transformers' ``Trainer``."""

from __future__ import annotations

import warnings
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ngn.contract import Learner
from ngn.integrations import BoundarySteps


class SizesCallback(TrainerCallback, ExportableState):
    """Learns the sizes of ``learner.model`` while a ``Trainer`` trains its weights. ::

        learner = ngn.learn_sizes(model, {"model.layers.*.mlp": ngn.Width(16)}, lambda0=1e-2)
        trainer = transformers.Trainer(model=learner.model, ..., callbacks=[SizesCallback(learner)])
        trainer.train()
        small = learner.deploy()

    The penalty is added to the gradients, not to the loss that is shown, beside which ``sizes`` says where t stands
    and, under a budget, the cost. What the trainer sets for its own optimiser (learning rate, schedule, weight decay)
    is not that of the boundaries. A training that is resumed from a checkpoint goes on as it would have;
    ``restore_callback_states_from_checkpoint`` is not needed for that, and cannot make this callback, whose learner is
    not in the file.

    Args:
        learner: made of the model that is trained.
        lr: learning rate of the boundaries.

    Raises:
        ValueError: in training, if the model is another one.
    """

    def __init__(self, learner: Learner, lr: float = 5e-2) -> None:
        self.steps = BoundarySteps(learner, lr)

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": self.steps.state()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.steps.of(others["model"])
        if args.load_best_model_at_end:
            warnings.warn(
                "load_best_model_at_end may bring back weights of before the sizes were fixed, whose model is larger: "
                "compare checkpoints of after the commit alone",
                stacklevel=2,
            )
        if state.global_step and type(self).__name__ in state.stateful_callbacks:
            self.steps.restore(state.stateful_callbacks[type(self).__name__]["attributes"])
        self.steps.learner.resume(state.global_step, state.global_step / state.max_steps)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.steps.take()

    def on_log(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        logs = others.get("logs") or {}
        if "loss" in logs or "train_loss" in logs:  # not of an evaluation, whose metrics are numbers
            logs["sizes"] = self.steps.learner.standing()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.steps.learner.step(state.global_step / state.max_steps)
