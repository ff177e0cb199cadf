"""Losses of training: any function ``loss(model, batch) -> [*R]``, with the mean loss of each model of a stack.

Users write ``loss(output, target)`` as well, or leave the loss to the model. :func:`as_loss` tells which.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

Loss = Callable[[nn.Module, Any], Tensor]
"""(model, batch) → mean loss of each model, [*R]. A call of the model is its soft forward pass."""
Criterion = Callable[..., Tensor]
"""(output [*R, N, ...], target [N, ...] or [*R, N, ...]) → mean loss of each model, [*R]."""


@dataclass(frozen=True)
class Supervised:
    """The loss ``criterion(model(x), target)`` for batches ``(x, target)``.

    A dictionary ``x`` has the named arguments of the model, and a tuple several arguments.

    Raises:
        TypeError: if a batch is not a pair. Errors of the criterion get a note that says how it was called.
    """

    criterion: Criterion
    refused: str = field(default="", compare=False)
    """Why the criterion is no ``loss(model, batch)``, for the note."""

    def __call__(self, model: nn.Module, batch: tuple[Any, Tensor]) -> Tensor:
        self.check(batch)
        x, target = batch
        output = model(**x) if isinstance(x, Mapping) else model(*x) if type(x) is tuple else model(x)
        try:
            return self.criterion(output, target)
        except Exception as error:
            name = named(self.criterion)
            how = f"It was called as {name}(output, target), with output: {told(output)}, target: {told(target)}."
            error.add_note(f"{how} {self.refused}".rstrip())
            raise

    def check(self, batch: Any) -> None:
        """Raise a TypeError if ``batch`` is not a pair."""
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(
                f"{named(self.criterion)}(output, target) needs batches of two, (input, target), but a batch is "
                f"{told(batch)}: write a loss(model, batch) that calls the model itself, or pass loss=None if the "
                f"model's output has a loss. {self.refused}".rstrip()
            )


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    """The ``loss`` of the output of ``model``, as models of transformers give it if the batch has ``labels``.

    It is a TypeError if the output has no loss, or the batch is a tuple or a list.
    """
    if isinstance(batch, tuple | list):
        raise TypeError(
            f"loss=None takes the loss of the model's output. A batch is {told(batch)}, which does not name the "
            "arguments of the model: pass a loss, such as torch.nn.functional.cross_entropy, or batches that are "
            "dictionaries"
        )
    output = model(**batch) if isinstance(batch, Mapping) else model(batch)
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"loss=None takes the loss of the model's output, but {told(output)} has none. A batch is {told(batch)}: "
            "add the labels to it, or pass a loss"
        )
    return loss


@dataclass(frozen=True)
class Taught:
    """``loss``, and how far the logits are from those of a trained ``teacher`` for the same inputs.

        (1 - w) L + w T^2 KL(softmax(z' / T) || softmax(z / T)), z and z' the logits of model and teacher

    over the last dimension, as a mean over all others (Hinton et al., arXiv 1503.02531). In eval mode, in which data
    judge sizes, it is ``loss`` alone.

    Attributes:
        teacher: in eval mode. It takes what the model takes, and returns logits, or an output that has ``logits``.
        temperature, weight: T and w.
    """

    loss: Loss
    teacher: nn.Module
    temperature: float = 4.0
    weight: float = 0.9

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        if not model.training:
            return self.loss(model, batch)
        calls: list[tuple[Any, Any, Any]] = []
        with model.register_forward_hook(lambda _, *call: calls.append(call), with_kwargs=True):
            task = self.loss(model, batch)
        return self.beside(task, *calls[-1])

    def beside(self, task: Tensor, args: Any, named: Any, output: Any, share: float = 1.0) -> Tensor:
        """The sum above for one call of the model, its ``output``, and L; ``share`` scales the other term, as L is."""
        with torch.no_grad():
            aim = F.softmax(_logits(self.teacher(*args, **named)).float() / self.temperature, -1)
        apart = F.kl_div(F.log_softmax(_logits(output).float() / self.temperature, -1), aim, reduction="none").sum(-1)
        return (1 - self.weight) * task + self.weight * share * self.temperature**2 * apart.mean()


def checked_teacher(teacher: nn.Module, learner: Any) -> nn.Module:
    """``teacher`` in eval mode.

    Raises:
        ValueError: if it is a part of the learner, or that is a stack.
    """
    if learner.replicas is not None or {*teacher.modules()} & {*learner.modules()}:
        raise ValueError("teacher= is a model of its own: pass copy.deepcopy(model), made before learn_sizes")
    return teacher.eval()


def _logits(output: Any) -> Tensor:
    """The logits of an output, [*, N, ..., classes]; a TypeError if it is no tensor and has none."""
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise TypeError(f"teacher= compares logits, but {told(output)} is returned: leave teacher= out")
    return logits


def as_loss(loss: Callable[[Any, Any], Tensor] | None, model: nn.Module, first: Callable[[], Any]) -> Loss:
    """``loss`` as a function of model and batch, whichever two arguments it takes; ``first`` returns the first batch.

    - None is the ``loss`` of the model's output (:func:`own_loss`).
    - A loss that calls the model is ``loss(model, batch)``. To see it, the loss is called with the model and the first
      batch. That call ends where it calls the model, so nothing is computed, and random numbers are put back.
    - Any other loss is ``loss(output, target)``, so batches are pairs. :class:`Supervised` says so without a call.

    It is a TypeError if the loss takes no two arguments, or is ``loss(output, target)`` and batches are no pairs.
    """
    if loss is None or isinstance(loss, Supervised):
        return loss or own_loss
    try:
        inspect.signature(loss).bind(None, None)
    except ValueError:  # Python knows no signature of it
        pass
    except TypeError as error:
        raise TypeError(
            "a loss is loss(output, target) or loss(model, batch), but "
            f"{named(loss)}({', '.join(inspect.signature(loss).parameters)}) does not take two arguments ({error})"
        ) from None
    batch, parts, refused = first(), {*model.modules()}, "did not call the model"

    def stop(module: nn.Module, args: Any) -> None:
        if module in parts:
            raise _ModelCalled

    with register_module_forward_pre_hook(stop), torch.random.fork_rng(), torch.no_grad():
        try:
            with warnings.catch_warnings(action="ignore"):  # a compiled model minds the hook
                loss(model, batch)
        except _ModelCalled:
            return loss
        except Exception as error:  # stays in the messages below
            refused = f"raised {type(error).__name__}: {error}"
    supervised = Supervised(loss, f"As {named(loss)}(model, batch) it {refused}.")
    supervised.check(batch)
    return supervised


class _ModelCalled(BaseException):
    """Ends a trial call of a loss at its first call of the model."""


def named(loss: Any) -> str:
    """The name of a loss for messages."""
    return getattr(loss, "__name__", type(loss).__name__).replace("<lambda>", "loss")


def told(value: Any) -> str:
    """A value in a few words, for messages: float32 [64, 10]; a tuple of 3; a dictionary with input_ids, labels."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {[*value.shape]}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with {', '.join(map(str, value))}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def mean_squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of each model over samples and coordinates. output [*R, N, C]; returns [*R]."""
    return (output - target).square().mean((-2, -1))


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of each model, nats. output [*R, N, C], target [N] or [*R, N]; returns [*R]."""
    lead = output.shape[:-2]
    rows, labels = output.float().flatten(0, -2), target.expand(*lead, output.shape[-2]).flatten()
    return F.cross_entropy(rows, labels, reduction="none").view(*lead, -1).mean(-1)
