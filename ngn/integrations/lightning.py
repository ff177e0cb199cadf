"""Learned sizes in Lightning's ``Trainer``."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Callback

from ngn.budget import BudgetLearner
from ngn.contract import Learner
from ngn.integrations import BoundarySteps


class SizesCallback(Callback):
    """Learns the sizes of ``learner.model``, a part of a module that Lightning trains with one optimiser. ::

        class Classifier(lightning.pytorch.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = network()
            ...

        module = Classifier()
        learner = ngn.learn_sizes(module.model, {"conv*": ngn.Channels(8)}, lambda0=1e-2)
        lightning.pytorch.Trainer(max_epochs=10, callbacks=[SizesCallback(learner)]).fit(module, loader)
        small = learner.deploy()

    The penalty is added to the gradients, not to the loss that is shown, and the boundaries have an optimiser of their
    own. The mean t is logged and, under a budget, the cost. A training that is resumed from the end of an epoch goes on
    as it would have; within one Lightning begins its data anew.

    Args:
        learner: made of the model that is trained, or a part of it.
        lr: learning rate of the boundaries.

    Raises:
        ValueError: in training, if the model is another one, or the number of steps is not known.
    """

    def __init__(self, learner: Learner, lr: float = 5e-2) -> None:
        self.steps, self.done = BoundarySteps(learner, lr), 0

    def state_dict(self) -> dict[str, Any]:
        return self.steps.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps.restore(state_dict)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.steps.of(pl_module)
        self.total = trainer.estimated_stepping_batches
        if not math.isfinite(self.total):
            raise ValueError("schedules need an end: set max_epochs or max_steps")
        self.done = trainer.global_step
        self.steps.learner.resume(self.done, self.done / self.total)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.steps.take()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > self.done:  # not one of several batches whose gradients are accumulated
            self.done = trainer.global_step
            learner = self.steps.learner
            learner.step(min(1.0, self.done / self.total))
            if self.done % trainer.log_every_n_steps == 0:
                pl_module.log("t", learner.size().mean().float(), prog_bar=True)
                if isinstance(learner, BudgetLearner):
                    pl_module.log(learner.budget.kind, learner.costs()[0].mean().float(), prog_bar=True)
