"""Callbacks for the trainers of other packages; each module needs its package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ngn.contract import Learner
from ngn.importance import Importance
from ngn.train.losses import Loss


class BoundaryOptimizer:
    """Train the boundaries with their own Adam, inside a loop that has another optimiser for the weights.

    Call :meth:`step` after the backward pass and before the other optimiser's step. The other optimiser may hold the
    boundaries, too. It does not move them, because their gradients are cleared by then. The boundaries are therefore
    independent of its learning rate, schedule and weight decay.

    Args:
        learner: the learner of the model. Its penalty is added to the gradients, not to the loss.
        lr: learning rate of the boundaries.

    Raises:
        TypeError: if ``learner`` is not a learner.

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

    def __init__(self, learner: Learner, lr: float = 5e-2) -> None:
        if not isinstance(learner, Learner):
            raise TypeError(f"the callback needs a learner, as of ngn.learn_sizes, not a {type(learner).__name__}")
        self.learner = learner
        self.optimizer = torch.optim.Adam(learner.controller_parameters(), lr=lr)

    def check_model(self, model: nn.Module) -> None:
        """Check that the trained ``model`` contains the learner's model.

        Raises:
            ValueError: if it does not.
        """
        parts = {id(p) for p in model.parameters()}
        if not all(id(p) in parts for p in self.learner.controller_parameters()):
            raise ValueError("the trained model does not contain the sizes of the learner: train learner.model")

    def sort(self, by_importance: Importance | None, batches: Any, loss: Loss | None) -> None:
        """Sort units before the first step, if ``by_importance`` is given; ``loss`` as for ``ngn.fit``."""
        if by_importance is not None:
            self.learner.sort(by_importance, batches, loss)  # type: ignore[operator]

    def step(self) -> None:
        """Add the gradients of the penalty, move the boundaries, and clear their gradients.

        Under a budget the learner reads the gradients, and moves the boundaries itself. The boundaries do not move if a
        gradient is not finite, as after an overflow in float16.
        """
        penalty = self.learner.penalty()
        if penalty.requires_grad:
            penalty.sum().backward()
        self.learner.after_backward(self.learner._steps)
        gradients = [p.grad for p in self.optimizer.param_groups[0]["params"] if p.grad is not None]
        # one copy to the host for all gradients
        if not gradients or bool(torch.stack([gradient.isfinite().all() for gradient in gradients]).all()):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint of the model lacks, as lists: Adam's moments and the learner's own tensors."""
        adam = [self.optimizer.state.get(p, {}) for p in self.optimizer.param_groups[0]["params"]]
        own = {name: value for name, value in self.learner.state_dict().items() if not name.startswith("model.")}
        own |= self.learner.orders()
        return {"adam": [_to_lists(moments) for moments in adam], "learner": _to_lists(own)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load the result of :meth:`state`."""
        adam = {n: _to_tensors(moments) for n, moments in enumerate(state["adam"]) if moments}
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": adam})
        own = _to_tensors(state["learner"])
        self.learner.reorder(own)
        self.learner.load_state_dict(own, strict=False)


def _to_lists(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in tensors.items()}


def _to_tensors(numbers: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
