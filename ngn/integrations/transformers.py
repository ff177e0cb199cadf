"""Learn sizes in transformers' ``Trainer``."""

from __future__ import annotations

import warnings
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ngn.integrations import BoundaryOptimizer


class SizesCallback(BoundaryOptimizer, TrainerCallback, ExportableState):
    """Learn the sizes of ``learner.model`` while a ``Trainer`` trains its weights. ::

        learner = ngn.learn_sizes(model, {"model.layers.*.mlp": ngn.Width(16)}, lambda0=1e-2)
        trainer = transformers.Trainer(model=learner.model, ..., callbacks=[SizesCallback(learner)])
        trainer.train()
        small = learner.deploy()

    The callback adds the penalty to the gradients; the shown loss is without it. The logs also get ``sizes``: the mean
    t and, under a budget, the cost. The boundaries have their own optimiser. The learning rate, schedule and weight
    decay of the ``Trainer`` do not apply to them.

    A training resumed from a checkpoint continues exactly. Do not set ``restore_callback_states_from_checkpoint``: it
    is not needed, and transformers cannot create this callback, because the checkpoint does not contain the learner.

    Fixed sizes are cut in place (:meth:`~ngn.learner.Learner.shrink`). With several processes, DeepSpeed, FSDP,
    ``torch_compile`` or ``load_best_model_at_end`` they stay masked until ``deploy``.

    Args:
        learner: the learner of the trained model.
        lr: learning rate of the boundaries.
        shrink: False keeps fixed sizes masked. For an optimiser that cannot be cut (Adafactor) it silences the warning.
        by_importance: sort the units before the first step by this score (:mod:`ngn.importance`), from the first 32
            batches of the training data.
        loss: ``loss(model, batch)`` for the scores; None: that of the model's output.

    Raises:
        ValueError: in training, if the trained model does not contain the learner's model.
    """

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": self.moments()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if args.load_best_model_at_end:
            warnings.warn(
                "load_best_model_at_end may load a checkpoint from before the sizes were fixed, with a larger model: "
                "evaluate only checkpoints after the commit",
                stacklevel=2,
            )
        if state.global_step and type(self).__name__ in state.stateful_callbacks:
            self.restore(state.stateful_callbacks[type(self).__name__]["attributes"])
        self.begin(others["model"], state.global_step, others["train_dataloader"])
        self.learner.resume(state.global_step, self._progress(state))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.step()

    def on_log(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        logs = others.get("logs") or {}
        if "loss" in logs or "train_loss" in logs:  # an evaluation's logs must hold numbers only
            logs["sizes"] = self.learner.standing()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        masked = args.deepspeed or args.fsdp or args.torch_compile or args.load_best_model_at_end
        optimizer = others["optimizer"] if self.shrink and not masked else None
        self.learner.step(self._progress(state), optimizer)

    @staticmethod
    def _progress(state: Any) -> float:
        """Training progress in [0, 1]: resumed from its last checkpoint, a Trainer takes one step beyond the last."""
        return min(1.0, state.global_step / state.max_steps)
