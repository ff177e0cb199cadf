"""Learned size in your own training, without configurations or records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ngn.learner import CapacityLearner
from ngn.train.batches import FullBatches, Split
from ngn.train.losses import Supervised
from ngn.train.progress import Mode
from ngn.train.trainer import Course, Trainer, TrainPlan


def fit(
    learner: CapacityLearner,
    inputs: Any,
    targets: Tensor | None,
    loss: Callable[[Any, Any], Tensor],
    plan: TrainPlan,
    progress: Mode = "auto",
) -> Course:
    """Train a learner; the trainer of every study.

    Args:
        learner: a model with ordered groups.
        inputs: the whole training input for full batches, or any object with ``at(index) -> batch``.
        targets: the training targets, or None where ``inputs`` is such a stream.
        loss: (output, target) → mean loss of each model, [*R]; for a stream (model, batch) → that.
        plan: steps, learning rates, clipping.
        progress: whether a progress bar is shown.

    Returns:
        The curves of objective, task loss and t.
    """
    if targets is None:
        return Trainer(learner, inputs, loss, plan, progress=progress).fit()
    batches = FullBatches(Split(inputs, targets))
    return Trainer(learner, batches, Supervised(loss), plan, progress=progress).fit()
