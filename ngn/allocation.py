"""Learners that share a given total of components among all axes of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ngn.components.low_rank import LowRankLinear
from ngn.learner import CapacityLearner
from ngn.methods.fixed import Retained
from ngn.methods.sora import SoRA


class SoRALearner(CapacityLearner):
    """SoRA with one threshold for all axes, which is frozen when ``target`` gates are left.

    At the first step in which the proximal step would leave at most ``target`` gates open, the ``target`` largest stay
    for good, and none shrinks any more. A training that ends before that keeps more.

    Args:
        model: its axes have :class:`~ngn.methods.sora.SoRA` capacities.
        target: open gates, summed over the axes; None to shrink to the end.

    Raises:
        ValueError: if an axis has another capacity, or the target is negative or more than there are gates.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)).requires_grad_(False)
    >>> _ = ngn.attach_low_rank(model, ["0", "1"], lambda number: ngn.SoRA(4, seed=0, name=number), seed=0)
    >>> learner, plan = ngn.SoRALearner(model, target=3), ngn.TrainPlan(steps=50, lr=1e-2)
    >>> x = torch.randn(32, 6)
    >>> _ = ngn.fit(learner, x, x.sin(), torch.nn.functional.mse_loss, plan, progress="never")
    >>> int(learner.count().sum())
    3
    """

    def __init__(self, model: nn.Module, target: int | None = None) -> None:
        super().__init__(model)
        self.capacities: list[SoRA] = [axis.capacity for axis in self.axes]  # type: ignore[misc]
        if not all(isinstance(capacity, SoRA) for capacity in self.capacities):
            raise ValueError("every axis needs a SoRA capacity")
        most = sum(capacity.K for capacity in self.capacities)
        if target is not None and not 0 <= target <= most:
            raise ValueError(f"the target is one of 0 to {most} gates, not {target}")
        self.target = target

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        first = self.capacities[0]
        if self.target is not None and not bool(first.frozen):
            size = torch.cat([capacity.g for capacity in self.capacities]).abs()
            if int((size > first.xi).sum()) <= self.target:
                open_ = torch.zeros_like(size, dtype=torch.bool)
                open_[size.topk(self.target).indices] = True
                parts = open_.split([capacity.K for capacity in self.capacities])
                for capacity, part in zip(self.capacities, parts, strict=True):
                    capacity.freeze(part)
        super().after_step(step)


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
    >>> learner, x = ngn.SingularValueLearner(model, total=3), torch.randn(32, 6)
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
