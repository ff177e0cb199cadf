"""``ngn.fit``: train a learner without configurations or records."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from ngn.allocation import BudgetLearner
from ngn.confirmation import PARTS
from ngn.contract import Learner
from ngn.importance import BATCHES, Importance
from ngn.learner import CapacityLearner
from ngn.methods.ngn import COMMIT
from ngn.train.batches import Batches, FullBatches, HeldOutParts, IteratedBatches, Split
from ngn.train.losses import Supervised, takes_output_and_target
from ngn.train.plan import History, TrainPlan
from ngn.train.trainer import Trainer


def fit(
    learner: Learner,
    inputs: Any,
    targets: Tensor | None,
    loss: Callable[[Any, Any], Tensor],
    plan: TrainPlan,
    commit: float | None = COMMIT,
    held_out: Any = None,
    by_importance: Importance | None = None,
    **settings: Any,
) -> History:
    """Train a learner, then set it to ``eval()`` mode. All studies of the suite use the same trainer.

    Args:
        learner: a model with learned sizes.
        inputs: the training data in one of three forms: all inputs, for full batches; an iterable of batches, such as a
            ``DataLoader``, which is read as often as the steps need; or an object with ``at(index) -> batch``.
        targets: the training targets; None if ``inputs`` are batches.
        loss: returns the mean loss of each model, [*R]. With targets it is called as ``loss(output, target)``. With
            batches it is called as ``loss(model, batch)``. Exception: if the loss is one of torch's, such as
            ``torch.nn.functional.cross_entropy``, batches must be pairs of input and target. Wrap any other loss of
            output and target: ``ngn.Supervised(loss)``.
        plan: steps, optimiser, learning rates, clipping.
        commit: fraction of training from which boundaries are integers and the truncated model is trained. It applies
            to gates without a commit of their own (``learn_sizes`` sets one). None changes no gate.
        held_out: under a budget, data on which benefits of components are judged, so that no size grows to memorise
            noise. With ``targets`` a pair of inputs and targets, else batches, as ``inputs``. None: training data.
        by_importance: sort the units before the first step by this score, "taylor" or "wanda" from the first 32 batches
            (:mod:`ngn.importance`). A resumed training keeps its order.
        settings: further arguments of :class:`~ngn.train.trainer.Trainer`, such as ``on_evaluate``, ``folder``,
            ``progress``. Unless ``model`` is a wrapper, ``shrink=True`` is the default: fixed sizes are cut in place.

    Raises:
        TypeError: if ``learner``, ``plan`` or ``loss`` has the wrong type, or the data are numpy arrays.
        ValueError: if the loss is not one number per model.

    Returns:
        The curves of objective, task loss and t.

    Warns:
        UserWarning: if a loss is not finite, or gates have a commit other than ``commit``.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
    >>> x = torch.linspace(-1, 1, 8).unsqueeze(-1)
    >>> learner = ngn.learn_sizes(model, {"": ngn.Width(4)}, example=x, lambda0=1e-3)
    >>> pairs = torch.utils.data.TensorDataset(x, x.sin())
    >>> loader = torch.utils.data.DataLoader(pairs, batch_size=4, shuffle=True)
    >>> plan = ngn.TrainPlan(steps=6, optimizer="adamw")
    >>> history = ngn.fit(learner, loader, None, torch.nn.functional.mse_loss, plan, progress="never")
    >>> history.curves["task"].shape
    (6, 1)
    """
    if not isinstance(learner, Learner):
        raise TypeError(
            "the first argument of fit must be a learner, such as ngn.CapacityLearner(model), not "
            f"{type(learner).__name__}"
        )
    for name, value in (("inputs", inputs), ("targets", targets)):
        if isinstance(value, np.ndarray):
            raise TypeError(f"{name} must be a tensor, not a numpy array: pass torch.from_numpy({name})")
    if not callable(loss) or not isinstance(plan, TrainPlan):
        raise TypeError(f"fit needs a loss function and an ngn.TrainPlan(steps=...), not {loss!r} and {plan!r}")
    if targets is not None and isinstance(inputs, DataLoader):
        raise TypeError("a DataLoader already yields the targets: call fit(learner, loader, None, loss, plan)")
    if isinstance(learner, CapacityLearner):
        if commit is not None:
            learner.commit_at(commit)
        own = sorted({axis.capacity.commit for axis in learner.axes if axis.capacity.commit not in (None, commit)})
        if own and commit != COMMIT:
            warnings.warn(
                f"commit={commit} does not apply to gates with a commit of their own ({', '.join(map(str, own))}): "
                f"pass it where the gates are made, as in learn_sizes(..., commit={commit})",
                stacklevel=2,
            )
    settings.setdefault("shrink", settings.get("model") is None)
    if held_out is not None and not isinstance(learner, BudgetLearner):
        raise ValueError("held_out= judges sizes under a budget: call learn_sizes(..., budget=...), or leave it out")
    whole = Supervised(loss) if targets is not None or takes_output_and_target(loss) else loss
    judged = None if held_out is None else _batches(held_out, None)
    if held_out is not None and targets is not None:
        judged = HeldOutParts(Split(*held_out), PARTS)
    batches = _batches(inputs, targets)
    if by_importance is not None:
        if not isinstance(learner, CapacityLearner):
            raise ValueError("by_importance= sorts the units of ngn.learn_sizes: pass its learner, or leave it out")
        learner.sort(by_importance, (batches.at(n) for n in range(BATCHES if targets is None else 1)), whole)
    history = Trainer(learner, batches, whole, plan, held_out=judged, **settings).fit()
    if (diverged := history.diverged_at[history.diverged_at >= 0]).size:
        warnings.warn(
            f"the loss was no longer finite at step {diverged.min()}: lower the learning rates, or set "
            "TrainPlan(clip=...)",
            stacklevel=2,
        )
    return history


def _batches(inputs: Any, targets: Tensor | None) -> Batches:
    """The batches of full data, of an iterable, or of an object that has them."""
    if targets is not None:
        return FullBatches(Split(inputs, targets))
    return inputs if hasattr(inputs, "at") else IteratedBatches(inputs)
