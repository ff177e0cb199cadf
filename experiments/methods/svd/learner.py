"""Truncate low-rank terms after training, by the singular values of all maps together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ngn.components.low_rank import LowRankLinear
from ngn.learner import CapacityLearner
from ngn.methods.fixed import Retained


class SingularValueLearner(CapacityLearner):
    """Train plain low-rank terms, then keep the largest singular values of all products B A together.

    After training, ``up`` and ``down`` of every map are replaced by the singular value decomposition of their product:
    up diag(c) down = P S Q' → (P S^1/2) (S^1/2 Q'). This changes only the basis. Truncation then keeps the terms whose
    singular values are among the ``total`` largest of the model. No other allocation of the total is closer to the
    products in the Frobenius norm.

    Args:
        model: a model whose axes belong to :class:`~ngn.components.low_rank.LowRankLinear` modules, with
            :class:`~ngn.methods.fixed.Retained` capacities and weights of one.
        total: terms to keep, summed over the maps.

    Raises:
        ValueError: if an axis is of another kind, or the total is not between 0 and the number of terms.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)).requires_grad_(False)
    >>> _ = ngn.attach_low_rank(model, ["0", "1"], lambda number: ngn.Retained(4), seed=0)
    >>> learner, x = SingularValueLearner(model, total=3), torch.randn(32, 6)
    >>> _ = ngn.fit(learner, x, x.sin(), torch.nn.functional.mse_loss, ngn.TrainPlan(steps=9), progress="never")
    >>> int(learner.count().sum())
    3
    """

    def __init__(self, model: nn.Module, total: int) -> None:
        super().__init__(model)
        self.maps = [module for module in model.modules() if isinstance(module, LowRankLinear)]
        self.capacities: list[Retained] = [axis.capacity for axis in self.axes]  # type: ignore[misc]
        plain = all(isinstance(c, Retained) and bool((c.w == 1).all()) for c in self.capacities)
        if not plain or [map_.axis for map_ in self.maps] != self.axes:
            raise ValueError("every axis must belong to a LowRankLinear, with a Retained capacity and weights of one")
        most = sum(capacity.K for capacity in self.capacities)
        if not 0 <= total <= most:
            raise ValueError(f"total must be between 0 and {most} terms, not {total}")
        self.total = total

    @torch.no_grad()
    def finish(self, batches: Any) -> None:
        values = [_rotate(map_) for map_ in self.maps]
        largest = torch.cat(values).sort(descending=True, stable=True).indices[: self.total]
        owner = torch.cat([torch.full_like(s, number) for number, s in enumerate(values)])[largest]
        for number, capacity in enumerate(self.capacities):
            capacity.left.fill_(int((owner == number).sum()))


def _rotate(map_: LowRankLinear) -> Tensor:
    """Rotate ``map_`` into the basis of its singular vectors. Return its singular values, float64 [K]."""
    (q, upper), (p, lower) = torch.linalg.qr(map_.up.double()), torch.linalg.qr(map_.down.double().T)
    left, s, right = torch.linalg.svd(upper @ lower.T, full_matrices=False)
    up, down, values = (torch.zeros_like(value, dtype=torch.float64) for value in (map_.up, map_.down, map_.down[:, 0]))
    up[:, : len(s)], down[: len(s)], values[: len(s)] = q @ left * s.sqrt(), s.sqrt()[:, None] * (p @ right.T).T, s
    map_.up.copy_(up)
    map_.down.copy_(down)
    return values
