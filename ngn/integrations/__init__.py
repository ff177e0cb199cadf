"""Callbacks for the trainers of other packages; each module needs its package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from ngn.learner import Learner
from ngn.learner.boundaries import LR
from ngn.learner.importance import Importance
from ngn.losses import Taught, checked_teacher, own_loss

TAUGHT = WeakKeyDictionary[nn.Module, ExitStack]()
"""What a callback with a teacher has changed of a trained model; a training that failed left it to the next one."""


class BoundaryOptimizer:
    """Train the boundaries inside a loop that has an optimiser for the weights, and adds no penalty to the loss.

    Call :meth:`step` after the backward pass and before the optimiser's step. The optimiser may hold the boundaries,
    too. It does not move them, because their gradients are cleared by then.

    Args:
        learner: the learner of the trained module, or of a part of it. Its penalty is added to the gradients, not to
            the loss.
        lr: learning rate of the boundaries.
        shrink: of a callback: cut fixed sizes in place. False keeps them masked; for an optimiser that cannot be cut
            (Adafactor) it silences the warning.
        by_importance: of a callback: sort the units before the first step by this score, from the first 32 batches.
        loss: of a callback: ``loss(model, batch)`` for the scores; None: that of the model's output.
        teacher: of a callback: a trained model like ``learner.model``. Steps learn its logits, too.

    Raises:
        TypeError: if ``learner`` is not a learner.
        ValueError: if ``teacher`` is a part of it; in training, if the trained module does not contain the learner's
            model.

    >>> import torch, ngn
    >>> from ngn.integrations import BoundaryOptimizer
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> x = torch.randn(4, 2)
    >>> learner = ngn.learn_sizes(model, {"": ngn.Width(8, t0=3.0)}, example=x, lambda0=1.0)
    >>> boundaries = BoundaryOptimizer(learner, lr=0.5)
    >>> model(x).sum().backward()
    >>> boundaries.step()
    >>> float(learner.size()) != 3.0, learner.controller_parameters()[0].grad
    (True, None)
    """

    def __init__(
        self,
        learner: Learner,
        lr: float = LR,
        shrink: bool = True,
        by_importance: Importance | None = None,
        loss: Callable[..., Any] | None = None,
        teacher: nn.Module | None = None,
    ) -> None:
        if not isinstance(learner, Learner):
            raise TypeError(f"the callback needs a learner, as of ngn.learn_sizes, not a {type(learner).__name__}")
        self.learner, self.lr, self.shrink = learner, lr, shrink
        self.by_importance, self.loss = by_importance, loss
        self.both = None if teacher is None else Taught(own_loss, checked_teacher(teacher, learner))

    def begin(self, model: nn.Module, done: int, batches: Any) -> None:
        """Check that the trained ``model`` contains the learner's; before step 0, sort its units if asked to."""
        parts = {id(p) for p in model.parameters()}
        if not all(id(p) in parts for p in self.learner.controller_parameters()):
            raise ValueError("the trained model does not contain the sizes of the learner: train learner.model")
        if self.by_importance is not None and not done:
            self.learner.sort(self.by_importance, batches, self.loss)
        self.taught = TAUGHT.setdefault(model, ExitStack())
        self.taught.close()
        if self.both is not None:
            self.both.teacher.to(next(model.parameters()).device)

    def step(self) -> None:
        """Add the gradients of the penalty, move the boundaries, and clear their gradients.

        Under a budget the learner reads the gradients, and moves the boundaries itself. The boundaries do not move if a
        gradient is not finite, as after an overflow in float16.
        """
        penalty = self.learner.penalty()
        if penalty.requires_grad:
            penalty.sum().backward()
        self.learner.after_backward(self.learner._steps)
        self.learner.move_boundaries(self.lr)
        for p in self.learner.controller_parameters():
            p.grad = None

    def moments(self) -> dict[str, Any]:
        """Return what a checkpoint of the model lacks, as lists: the learner's own tensors."""
        values = {name: value for name, value in self.learner.state_dict().items() if not name.startswith("model.")}
        return {"learner": {name: value.tolist() for name, value in (values | self.learner.orders()).items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load the result of :meth:`moments`."""
        values = {name: torch.tensor(value, dtype=torch.float64) for name, value in state["learner"].items()}
        self.learner.reorder(values)
        self.learner.load_state_dict(values, strict=False)
