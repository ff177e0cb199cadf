"""Learn sizes in Lightning's ``Trainer``."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Callback
from torch.optim.swa_utils import AveragedModel

from ngn.budget import LimitedLearner
from ngn.contract import Learner
from ngn.integrations import BoundaryOptimizer


class SizesCallback(Callback):
    """Learn the sizes of ``learner.model``, part of a ``LightningModule`` that one optimiser trains. ::

        class Classifier(lightning.pytorch.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = network()
            ...

        module = Classifier()
        learner = ngn.learn_sizes(module.model, {"conv*": ngn.Channels(8)}, example=images, lambda0=1e-2)
        lightning.pytorch.Trainer(max_epochs=10, callbacks=[SizesCallback(learner)]).fit(module, loader)
        small = learner.deploy()

    The callback adds the penalty to the gradients; the shown loss is without it. The boundaries have their own
    optimiser. The callback logs the mean t and, under a budget, the cost.

    A training resumed from the end of an epoch continues exactly. After a resumption within an epoch, Lightning starts
    its data from the beginning.

    Fixed sizes are cut in place (:meth:`~ngn.contract.Learner.shrink`), in the averages of other callbacks, too. If a
    strategy wraps the module (DDP, FSDP), or there are several optimisers, they stay masked until ``deploy``.

    Args:
        learner: the learner of the trained module, or of a part of it.
        lr: learning rate of the boundaries.
        shrink: False keeps fixed sizes masked, as an optimiser with a state of other shapes needs (Adafactor).
        by_importance: sort the units before the first step by this score (:mod:`ngn.importance`), from the first 32
            batches of the training data.
        loss: for the scores, as that of ``ngn.fit``; called with the learner's model and a batch.

    Raises:
        ValueError: in training, if the module does not contain the learner's model, or if the number of steps is
            unknown.
    """

    def __init__(
        self, learner: Learner, lr: float = 5e-2, shrink: bool = True, by_importance: Any = None, loss: Any = None
    ) -> None:
        self.boundaries, self.done, self.shrink = BoundaryOptimizer(learner, lr), 0, shrink
        self.by_importance, self.loss = by_importance, loss

    def state_dict(self) -> dict[str, Any]:
        return self.boundaries.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.boundaries.restore(state_dict)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.boundaries.check_model(pl_module)
        self.total = trainer.estimated_stepping_batches
        if not math.isfinite(self.total):
            raise ValueError("schedules need the number of training steps: set max_epochs or max_steps")
        self.done = trainer.global_step
        if not self.done:
            batches = map(trainer.strategy.batch_to_device, trainer.train_dataloader)
            self.boundaries.sort(self.by_importance, batches, self.loss)
        self.boundaries.learner.resume(self.done, self.done / self.total)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.boundaries.step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > self.done:  # false while gradients are accumulated
            self.done = trainer.global_step
            learner = self.boundaries.learner
            plain = self.shrink and len(trainer.optimizers) == 1 and trainer.model is pl_module
            held = (part for callback in trainer.callbacks for part in vars(callback).values())
            averages = [part for part in held if isinstance(part, AveragedModel)]
            learner.step(min(1.0, self.done / self.total), trainer.optimizers[0] if plain else None, averages)
            if self.done % trainer.log_every_n_steps == 0:
                pl_module.log("t", learner.size().mean().float(), prog_bar=True)
                if isinstance(learner, LimitedLearner):
                    pl_module.log(learner.budget.kind, learner.costs()[0].mean().float(), prog_bar=True)
