"""Other people's training loops, each in a module of its own that needs its package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ngn.contract import Learner


class BoundarySteps:
    """Steps of what decides the sizes, by an Adam of its own, between the gradients and the step of another optimiser.

    That optimiser may hold the boundaries, too: they have no gradient when it moves. So its learning rate, its schedule
    and its weight decay, made for weights, are not the boundaries'.

    Args:
        learner: whose penalty is added to the gradients here, not to the loss.
        lr: learning rate of the boundaries.

    >>> import torch, ngn
    >>> from ngn.integrations import BoundarySteps
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> learner = ngn.learn_sizes(model, {"": ngn.Width(8, t0=3.0)}, lambda0=1.0)
    >>> steps = BoundarySteps(learner, lr=0.5)
    >>> model(torch.randn(4, 2)).sum().backward()
    >>> steps.take()
    >>> float(learner.size()) != 3.0, learner.controller_parameters()[0].grad
    (True, None)
    """

    def __init__(self, learner: Learner, lr: float = 5e-2) -> None:
        if not isinstance(learner, Learner):
            raise TypeError(f"the callback takes what ngn.learn_sizes returns, not a {type(learner).__name__}")
        self.learner = learner
        self.optimizer = torch.optim.Adam(learner.controller_parameters(), lr=lr)

    def of(self, model: nn.Module) -> None:
        """Raise a ValueError if ``model``, which is trained, is not the learner's."""
        parts = {id(p) for p in model.parameters()}
        if not all(id(p) in parts for p in self.learner.controller_parameters()):
            raise ValueError("the model that is trained is not learner.model")

    def take(self) -> None:
        """Add the penalty's gradients, move the boundaries, and clear their gradients.

        Where a gradient is no number they stand still, as the weights do when a scale for float16 was too large.
        """
        penalty = self.learner.penalty()
        if penalty.requires_grad:
            penalty.sum().backward()
        gradients = [p.grad for p in self.optimizer.param_groups[0]["params"] if p.grad is not None]
        if not gradients or bool(torch.stack([gradient.isfinite().all() for gradient in gradients]).all()):  # read once
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """What a checkpoint of the model lacks, as numbers: Adam's moments, and the tensors of the learner's own."""
        adam = [self.optimizer.state.get(p, {}) for p in self.optimizer.param_groups[0]["params"]]
        own = {name: value for name, value in self.learner.state_dict().items() if not name.startswith("model.")}
        return {"adam": [_numbers(moments) for moments in adam], "learner": _numbers(own)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        adam = {n: _tensors(moments) for n, moments in enumerate(state["adam"]) if moments}
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": adam})
        self.learner.load_state_dict(_tensors(state["learner"]), strict=False)


def _numbers(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in tensors.items()}


def _tensors(numbers: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
