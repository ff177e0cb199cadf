"""``ngn.fit``: train a learner without configurations or records."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ngn.budget.evidence import PARTS
from ngn.learner import Learner
from ngn.learner.importance import BATCHES, Importance
from ngn.learner.shrinking import shrink
from ngn.losses import Taught, as_loss, checked_teacher, named, told
from ngn.methods.fixed import Retained
from ngn.methods.ngn import COMMIT
from ngn.tensor_files import tensors_of
from ngn.train.batches import Batches, FullBatches, HeldOutParts, IteratedBatches, ShuffledBatches, Split, rows_of
from ngn.train.plan import History, TrainPlan
from ngn.train.trainer import Trainer

LARGE = 1000
"""Rows from which one batch of all data deserves a word."""


def fit(
    learner: Learner,
    inputs: Any,
    targets: Any = None,
    loss: Callable[[Any, Any], Tensor] | None = None,
    plan: TrainPlan | None = None,
    commit: float | None = COMMIT,
    held_out: Any = None,
    by_importance: Importance | None = None,
    batch: int | None = None,
    teacher: nn.Module | None = None,
    retrain: bool = False,
    **settings: Any,
) -> History:
    """Train a learner, then set it to ``eval()`` mode. All studies of the suite use the same trainer.

    Args:
        learner: a model with learned sizes.
        inputs: the training data in one of three forms: tensors with all inputs, [N, ...] (a tuple for several
            arguments of the model, a dictionary for named ones); an iterable of batches, such as a ``DataLoader``,
            which is read as often as the steps need; or an object with ``at(index) -> batch``.
        targets: the training targets, [N, ...]; None if ``inputs`` has them.
        loss: returns the mean loss of each model, [*R]. It is ``loss(output, target)``, for batches that are pairs of
            input and target, or ``loss(model, batch)``. The second is one that calls the model: the loss is tried on
            the first batch before training. None is the ``loss`` of the model's output, for batches that are
            dictionaries, such as those of transformers with labels.
        plan: steps, optimiser, learning rates, clipping.
        commit: fraction of training from which boundaries are integers and the truncated model is trained. It applies
            to gates without a commit of their own (``learn_sizes`` sets one). None changes no gate.
        held_out: under a budget, data on which benefits of components are judged, so that no size grows to memorise
            noise: a pair of tensors (inputs, targets), or batches. None: training data. Of a front, data that decide
            whether sizes by scores are better than even ones. None: they stay even.
        by_importance: sort the units before the first step by this score, "taylor" or "wanda" from the first 32 batches
            (:mod:`ngn.learner.importance`). A resumed training keeps its order.
        batch: of tensors, the rows of a batch; they are shuffled in each epoch, by the seed of ``torch.manual_seed``.
            None takes all rows in every step.
        teacher: a trained classifier or language model with the inputs and outputs of this one, such as a copy of it
            from before ``learn_sizes``. Steps then learn its logits, too (:class:`ngn.losses.Taught`); sizes are judged
            by the loss alone.
        retrain: then train once more, as long, from the weights of before, cut to the learned sizes from the first
            step. The learner keeps the weights that are better on ``held_out``; ``History.compared`` has both losses.
        settings: further arguments of :class:`~ngn.train.trainer.Trainer`, such as ``on_evaluate``, ``folder``,
            ``progress``. Unless ``model`` is a wrapper, ``shrink=True`` is the default: fixed sizes are cut in place.

    Raises:
        TypeError: if an argument has the wrong type, or arguments do not fit together.
        ValueError: if the loss is not one number per model, or ``batch`` is no number of rows.

    Returns:
        The curves of objective, task loss and t.

    Warns:
        UserWarning: if a loss is not finite, gates have a commit other than ``commit``, or tensors of more than
            :data:`LARGE` rows are one batch.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
    >>> x = torch.linspace(-1, 1, 8).unsqueeze(-1)
    >>> learner = ngn.learn_sizes(model, {"": ngn.Width(4)}, example=x, lambda0=1e-3)
    >>> plan = ngn.TrainPlan(steps=6, optimizer="adamw")
    >>> history = ngn.fit(learner, x, x.sin(), torch.nn.functional.mse_loss, plan, batch=4, progress="never")
    >>> history.curves["task"].shape
    (6, 1)
    """
    if not isinstance(learner, Learner):
        raise TypeError(
            f"the first argument of fit must be a learner, such as ngn.Learner(model), not {type(learner).__name__}"
        )
    plan = _checked(inputs, targets, loss, plan, settings)
    if commit is not None:
        learner.commit_at(commit)
    commits = sorted({axis.capacity.commit for axis in learner.axes if axis.capacity.commit not in (None, commit)})
    if commits and commit != COMMIT:
        warnings.warn(
            f"commit={commit} does not apply to gates with a commit of their own ({', '.join(map(str, commits))}): "
            f"pass it where the gates are made, as in learn_sizes(..., commit={commit})",
            stacklevel=2,
        )
    settings.setdefault("shrink", settings.get("model") is None)
    settings["folder"] = None if settings.get("folder") is None else Path(settings["folder"])
    if held_out is not None and not retrain and learner.budget is None:
        raise ValueError("held_out= judges sizes under a budget: call learn_sizes(..., budget=...), or leave it out")
    if retrain and (held_out is None or getattr(learner.budget, "several", False) or not settings["shrink"]):
        raise ValueError(
            "retrain= trains the learned sizes once more, and held-out data choose: it needs held_out=, one size (no "
            "front), and sizes that are cut in training (no wrapper as model=, no shrink=False)"
        )
    batches = _batches(inputs, targets, batch)
    judged = None
    if held_out is not None:
        two = isinstance(held_out, tuple | list) and len(held_out) == 2
        pair = two and (targets is not None or _are_tensors(held_out))
        most = rows_of(batches.at(0)) if pair else None  # no more than a training batch
        judged = HeldOutParts(Split(*held_out), PARTS, most) if pair else _batches(held_out, None, None)
    called = settings.get("model")
    whole = as_loss(loss, learner if called is None else called, lambda: batches.at(0))
    if by_importance is not None:
        if not learner.axes:
            raise ValueError("by_importance= sorts the units of ngn.learn_sizes: pass its learner, or leave it out")
        several = 1 if isinstance(batches, FullBatches) else BATCHES
        learner.sort(by_importance, (batches.at(n) for n in range(several)), whole)
    if teacher is not None:
        whole = Taught(whole, checked_teacher(teacher, learner))
    before = copy.deepcopy(learner) if retrain else None
    trainer = Trainer(learner, batches, whole, plan, held_out=judged, **settings)
    history = trainer.fit()
    if before is not None:
        history = _retrained(before, trainer, history)
    if (diverged := history.diverged_at[history.diverged_at >= 0]).size:
        warnings.warn(
            f"the loss was no longer finite at step {diverged.min()}: lower the learning rates, or set "
            "TrainPlan(clip=...)",
            stacklevel=2,
        )
    return history


def _retrained(before: Learner, learned: Trainer, history: History) -> History:
    """Train ``before`` at the sizes of a training, and give the trained learner its weights if they are better."""
    learner, held_out = learned.learner, learned.held_out
    counts = [axis.K for axis in learner.axes]
    if held_out is None or not torch.equal(learner.count(), torch.tensor(counts)):
        raise ValueError("retrain= needs sizes of 1 or more that are fixed and cut in training: give a commit")
    for axis in before.axes:
        axis.capacity = Retained(axis.K).to(axis.capacity.size().device)
    shrink(before.model, before.axes, counts)
    folder = learned.folder and learned.folder / "retrain"
    once_more = replace(learned, learner=Learner(before.model), folder=folder, title=f"{learned.title} again")
    again = once_more.fit()

    def loss(model: nn.Module) -> float:
        return float(np.mean([float(learned.loss(model, held_out.at(part))) for part in range(PARTS)]))

    losses = {"learned": learned.evaluate(loss, "hard"), "retrained": once_more.evaluate(loss)}
    if losses["retrained"] < losses["learned"]:
        of_sizes = {id(value) for axis in learner.axes for value in (*axis.parameters(), *axis.buffers())}
        tensors = tensors_of(before.model)
        with torch.no_grad():
            for name, value in tensors_of(learner.model).items():
                if isinstance(value, Tensor) and id(value) not in of_sizes:
                    value.copy_(tensors[name])
        history = replace(again, seconds=history.seconds + again.seconds)
    return replace(history, compared=losses)


def _are_tensors(data: Any) -> bool:
    return type(data) is tuple and all(isinstance(part, Tensor) for part in data)


def _checked(inputs: Any, targets: Any, loss: Any, plan: Any, settings: Mapping[str, Any]) -> TrainPlan:
    """The plan. Arguments that do not fit together are refused with the reader's call."""
    given = (inputs, targets, loss, plan)
    short = [repr(each) if each is None or isinstance(each, str | int | float) else named(each) for each in given]
    arrays = [name for name, value in (("inputs", inputs), ("targets", targets)) if isinstance(value, np.ndarray)]
    name = named(loss)
    mistakes = {
        "a DataLoader already yields the targets: call fit(learner, loader, None, loss, plan)": targets is not None
        and isinstance(inputs, DataLoader),
        "a data set yields single samples: pass torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)": (
            isinstance(inputs, Dataset) and not isinstance(inputs, IterableDataset)
        ),
        "a tuple of tensors is no batches: call fit(learner, inputs, targets, loss, plan), or pass a list of batches": (
            targets is None and _are_tensors(inputs)
        ),
        "targets come before the loss: call fit(learner, inputs, targets, loss, plan)": callable(targets),
        "after the data, fit needs a loss function, then an ngn.TrainPlan(steps=...)": not isinstance(plan, TrainPlan)
        or not (loss is None or callable(loss)),
        f"{name} is a class: pass an object of it, {name}()": isinstance(loss, type),
        "loss=None takes the loss of the model's output, and targets need a loss, such as "
        "torch.nn.functional.cross_entropy. Or pass inputs that have the labels, and no targets": (
            loss is None and targets is not None
        ),
    }
    mistakes |= {f"{name} must be a tensor, not a numpy array: pass torch.from_numpy({name})": True for name in arrays}
    own = ("batch", "commit", "by_importance", "teacher", "retrain")
    known = [*(each.name for each in fields(Trainer) if each.init), *own][4:]
    for name in [name for name in settings if name not in known]:
        of_plan = name in [each.name for each in fields(TrainPlan)]
        near = get_close_matches(name, known, 1, 0.5)
        hint = f": pass ngn.TrainPlan({name}=...)" if of_plan else f": did you mean {near[0]}=?" if near else ""
        mistakes[f"fit has no {name}={hint}"] = True
    for why, made in mistakes.items():
        if made:
            raise TypeError(f"ngn.fit(learner, {', '.join(short)}): {why}")
    return plan


def _batches(inputs: Any, targets: Any, batch: int | None) -> Batches:
    """The batches of tensors, of an iterable, or of an object that has them."""
    if targets is None and not isinstance(inputs, Tensor | Mapping):
        kind, numbered = type(inputs).__name__, hasattr(inputs, "at")
        if batch is not None:
            raise TypeError(f"batch={batch} is for tensors: a {kind} has its own batches, so leave it out")
        if not numbered and not isinstance(inputs, Iterable):
            raise TypeError(f"inputs must be tensors or batches, such as a DataLoader, not a {kind}")
        return inputs if numbered else IteratedBatches(inputs)
    inputs = dict(inputs) if isinstance(inputs, Mapping) else inputs
    data = inputs if targets is None else (inputs, targets)
    rows = rows_of(data)
    if batch is not None:
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(f"batch must be a number of rows, such as 64, not {batch!r}")
        if rows is None:
            what = told(inputs) if targets is None else f"{told(inputs)} and {told(targets)}"
            raise TypeError(f"batch={batch} takes rows of tensors of equal length, not of {what}")
        if batch < rows:
            return ShuffledBatches(data, rows, batch)
    elif rows is not None and rows > LARGE:
        warnings.warn(
            f"every step trains on all {rows:,} rows as one batch: pass batch=64 for shuffled minibatches, or "
            f"batch={rows} if you mean it",
            stacklevel=3,
        )
    return IteratedBatches([inputs]) if targets is None else FullBatches(Split(inputs, targets))
