"""Learn sizes in Lightning's ``Trainer``."""

from __future__ import annotations

import functools
import math
from typing import Any

from lightning.pytorch import Callback
from torch import nn

from ngn.axis import OrderedAxis
from ngn.budget.allocation import BudgetLearner
from ngn.integrations import TAUGHT, BoundaryOptimizer
from ngn.losses import Taught


class SizesCallback(BoundaryOptimizer, Callback):
    """Learn the sizes of a model, whose learner is part of a ``LightningModule``. ::

        class Classifier(lightning.pytorch.LightningModule):
            def __init__(self):
                super().__init__()
                self.learner = ngn.learn_sizes(network(), {"conv*": ngn.Channels(8)}, example=images, lambda0=1e-2)
            ...

        module = Classifier()
        lightning.pytorch.Trainer(max_epochs=10, callbacks=[SizesCallback(module.learner)]).fit(module, loader)
        small = module.learner.deploy()

    The callback adds the penalty to the gradients; the shown loss is without it. The boundaries have their own
    optimiser. The callback logs the mean t and, under a budget, the cost.

    A training resumed from the end of an epoch continues exactly. After a resumption within an epoch, Lightning starts
    its data from the beginning.

    Fixed sizes are cut in place (:meth:`~ngn.learner.Learner.shrink`), in all optimisers, and in the averages of other
    callbacks. If a strategy wraps the module (DDP, FSDP), they stay masked until ``deploy``. With manual optimisation,
    boundaries move once in a batch, before the first step of an optimiser of the learner's parameters.

    Arguments and errors are those of :class:`BoundaryOptimizer`; an unknown number of steps is a ValueError, too, and
    a teacher with manual optimisation, which does not read the loss that ``training_step`` returns.
    """

    done = 0
    """Steps of the trainer."""

    state_dict, load_state_dict = BoundaryOptimizer.moments, BoundaryOptimizer.restore  # type: ignore[assignment]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.total, self.done = trainer.estimated_stepping_batches, trainer.global_step
        if not math.isfinite(self.total):
            raise ValueError("schedules need the number of training steps: set max_epochs or max_steps")
        batches = map(trainer.strategy.batch_to_device, trainer.train_dataloader)
        self.begin(pl_module, self.done, batches)
        held = {id(p) for p in self.learner.parameters()}
        self.moving = [
            each for each in trainer.optimizers if held & {id(p) for g in each.param_groups for p in g["params"]}
        ]
        self.moved = False
        if self.both is not None:
            self._teach(pl_module, self.both)
        self.learner.resume(*self._steps(trainer, pl_module))

    def _teach(self, pl_module: Any, both: Taught) -> None:
        """Let ``training_step`` return the loss of ``both``."""
        if not pl_module.automatic_optimization:
            raise ValueError("teacher= needs automatic optimisation: call ngn.losses.Taught in training_step instead")
        own, model = pl_module.training_step, self.learner.model

        @functools.wraps(own)  # Lightning reads its signature
        def training_step(*args: Any, **named: Any) -> Any:
            calls: list[tuple[Any, Any, Any]] = []
            with model.register_forward_hook(lambda _, *call: calls.append(call), with_kwargs=True):
                given = own(*args, **named)
            if isinstance(given, dict):
                return {**given, "loss": both.beside(given["loss"], *calls[-1])}
            return both.beside(given, *calls[-1])

        pl_module.training_step = training_step
        self.taught.callback(setattr, pl_module, "training_step", own)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if pl_module in TAUGHT:
            TAUGHT[pl_module].close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)

    def _steps(self, trainer: Any, pl_module: Any) -> tuple[int, float]:
        """The number of steps, and the fraction of the training that is done."""
        if pl_module.automatic_optimization:
            return trainer.global_step, min(1.0, trainer.global_step / self.total)
        batches = trainer.fit_loop.epoch_loop.total_batch_idx + 1  # global_step counts the steps of all optimisers
        limited = trainer.global_step / trainer.max_steps if trainer.max_steps > 0 else 0.0
        return batches, min(1.0, max(batches / self.total, limited))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if not self.moved and any(optimizer is each for each in self.moving or trainer.optimizers):
            self.moved = True
            self.step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > self.done:  # false while gradients are accumulated
            self.done, self.moved = trainer.global_step, False
            learner = self.learner
            plain = self.shrink and trainer.model is pl_module
            held = (part for callback in trainer.callbacks for part in vars(callback).values())
            averages = [
                part for part in held if isinstance(part, nn.Module) and _first(part) not in (None, _first(pl_module))
            ]
            progress = self._steps(trainer, pl_module)[1]
            learner.step(progress, trainer.optimizers if plain else None, averages)
            if self.done % trainer.log_every_n_steps == 0:
                pl_module.log("t", learner.size().mean().float(), prog_bar=True)
                if isinstance(learner, BudgetLearner):
                    pl_module.log(learner.budget.kind, learner.costs()[0].mean().float(), prog_bar=True)


def _first(model: nn.Module) -> OrderedAxis | None:
    """The first axis of a model; a copy of the model has another."""
    return next((part for part in model.modules() if isinstance(part, OrderedAxis)), None)
