"""Learned size in your own training, without configurations or records."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from ngn.contract import Learner
from ngn.learner import CapacityLearner
from ngn.methods.ngn import COMMIT
from ngn.train.batches import Batches, FullBatches, IteratedBatches, Split
from ngn.train.losses import Supervised, of_outputs
from ngn.train.plan import Course, TrainPlan
from ngn.train.trainer import Trainer


def fit(
    learner: Learner,
    inputs: Any,
    targets: Tensor | None,
    loss: Callable[[Any, Any], Tensor],
    plan: TrainPlan,
    commit: float | None = COMMIT,
    **settings: Any,
) -> Course:
    """Train a learner; the trainer of every study.

    Args:
        learner: a model with ordered components.
        inputs: the whole training input for full batches; or the batches, as an iterable such as a ``DataLoader``,
            which is gone through as often as the steps need, or an object with ``at(index) -> batch``.
        targets: the training targets, or None where ``inputs`` are batches.
        loss: mean loss of each model, [*R]: (output, target) → loss with targets, (model, batch) → loss with batches.
            One of torch's, such as ``torch.nn.functional.cross_entropy``, takes the batches to be pairs of input and
            target; for another loss of output and target write ``ngn.Supervised(loss)``.
        plan: steps, optimiser, learning rates, clipping.
        commit: fraction of training from which boundaries are integers, and the model the truncated one; of those that
            say nothing of it themselves (:class:`~ngn.methods.ngn.CountGate`; those of ``learn_sizes`` do). None leaves
            them as they are.
        settings: whatever else :class:`~ngn.train.trainer.Trainer` takes, such as ``on_evaluate``, ``folder``,
            ``progress``.

    Raises:
        TypeError: if there is no learner, plan or loss, or samples are no tensors.
        ValueError: if the loss is not one number per model.

    Returns:
        The curves of objective, task loss and t. The learner is left in ``eval()`` mode.

    Warns:
        UserWarning: if a loss was no longer finite, or boundaries say another commit than is asked for.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
    >>> learner = ngn.learn_sizes(model, {"": ngn.Width(4)}, lambda0=1e-3)
    >>> x = torch.linspace(-1, 1, 8).unsqueeze(-1)
    >>> pairs = torch.utils.data.TensorDataset(x, x.sin())
    >>> loader = torch.utils.data.DataLoader(pairs, batch_size=4, shuffle=True)
    >>> plan = ngn.TrainPlan(steps=6, optimizer="adamw")
    >>> course = ngn.fit(learner, loader, None, torch.nn.functional.mse_loss, plan, progress="never")
    >>> course.curves["task"].shape
    (6, 1)
    """
    if not isinstance(learner, Learner):
        raise TypeError(f"fit trains a learner, such as ngn.CapacityLearner(model), not {type(learner).__name__}")
    for name, value in (("inputs", inputs), ("targets", targets)):
        if isinstance(value, np.ndarray):
            raise TypeError(f"{name} are a numpy array: pass torch.from_numpy({name})")
    if not callable(loss) or not isinstance(plan, TrainPlan):
        raise TypeError(f"fit takes a loss and an ngn.TrainPlan(steps=...), not {loss!r} and {plan!r}")
    if targets is not None and isinstance(inputs, DataLoader):
        raise TypeError("the batches of a DataLoader hold their targets: fit(learner, loader, None, loss, plan)")
    if isinstance(learner, CapacityLearner):
        if commit is not None:
            learner.commit_at(commit)
        own = sorted({axis.capacity.commit for axis in learner.axes if axis.capacity.commit not in (None, commit)})
        if own and commit != COMMIT:
            warnings.warn(
                f"commit={commit} is not for boundaries that say {', '.join(map(str, own))} themselves: give it to "
                "their gates, as in learn_sizes(..., commit=...)",
                stacklevel=2,
            )
    if targets is not None:
        course = Trainer(learner, FullBatches(Split(inputs, targets)), Supervised(loss), plan, **settings).fit()
    else:
        batches: Batches = inputs if hasattr(inputs, "at") else IteratedBatches(inputs)
        whole = Supervised(loss) if of_outputs(loss) else loss
        course = Trainer(learner, batches, whole, plan, **settings).fit()
    if (diverged := course.diverged_at[course.diverged_at >= 0]).size:
        warnings.warn(
            f"the loss was no longer finite at step {diverged.min()}: lower the learning rates, or set plan.clip",
            stacklevel=2,
        )
    return course
