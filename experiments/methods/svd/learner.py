"""Low-rank terms cut after training by the singular values of all maps together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ngn.components.low_rank import LowRankLinear
from ngn.learner import CapacityLearner
from ngn.methods.fixed import Retained


class SingularValueLearner(CapacityLearner):
    """Plain low-rank terms, cut after training: of the singular values of all B A together, the largest are kept.

    When training has ended, up and down of every map become those of the singular value decomposition of their product,
    up diag(c) down = P S Q' → (P S^1/2) (S^1/2 Q'), which changes nothing but the basis; truncation then keeps, of each
    map, as many as are among the ``total`` largest of the model. No other allocation of the total is nearer to the
    products in the Frobenius norm.

    Args:
        model: its axes are those of :class:`~ngn.components.low_rank.LowRankLinear`, with
            :class:`~ngn.methods.fixed.Retained` capacities and weights of one.
        total: terms to keep, summed over the maps.

    Raises:
        ValueError: if an axis is another, or the total is negative or more than there are terms.

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
            raise ValueError("every axis needs a Retained capacity with weights of one, in a LowRankLinear")
        most = sum(capacity.K for capacity in self.capacities)
        if not 0 <= total <= most:
            raise ValueError(f"the total is one of 0 to {most} terms, not {total}")
        self.total = total

    @torch.no_grad()
    def finish(self, batches: Any) -> None:
        values = [_rotate(map_) for map_ in self.maps]
        largest = torch.cat(values).sort(descending=True, stable=True).indices[: self.total]
        owner = torch.cat([torch.full_like(s, number) for number, s in enumerate(values)])[largest]
        for number, capacity in enumerate(self.capacities):
            capacity.left.fill_(int((owner == number).sum()))


def _rotate(map_: LowRankLinear) -> Tensor:
    """Give ``map_`` the basis of the singular vectors of its product; its singular values, float64 [K]."""
    (q, upper), (p, lower) = torch.linalg.qr(map_.up.double()), torch.linalg.qr(map_.down.double().T)
    left, s, right = torch.linalg.svd(upper @ lower.T, full_matrices=False)
    up, down, values = (torch.zeros_like(value, dtype=torch.float64) for value in (map_.up, map_.down, map_.down[:, 0]))
    up[:, : len(s)], down[: len(s)], values[: len(s)] = q @ left * s.sqrt(), s.sqrt()[:, None] * (p @ right.T).T, s
    map_.up.copy_(up)
    map_.down.copy_(down)
    return values
