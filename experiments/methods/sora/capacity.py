"""SoRA: low-rank terms under sparse gates (Ding et al., "Sparse Low-rank Adaptation of Pre-trained Language Models",
EMNLP 2023), written from the equations alone.

    y = W x + sum_k g_k B_k (A_k x),  g_k ~ N(0, 1) at the start
    after each step of the optimiser  g_k <- sign(g_k) max(|g_k| - xi, 0)      proximal step of xi |g|_1

The gates are independent and have no order. Those of exactly zero are pruned; the others stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ngn.learner import CapacityLearner
from ngn.methods.base import Capacity, Mode
from ngn.streams import generator


def proximal(g: Tensor, xi: Tensor | float) -> Tensor:
    """sign(g) max(|g| - xi, 0): the minimiser over z of (z - g)^2 / 2 + xi |z|.

    >>> import torch
    >>> proximal(torch.tensor([1.5, -0.5, -2.0]), 0.5)
    tensor([ 1.0000, -0.0000, -1.5000])
    """
    return g.sign() * (g.abs() - xi).clamp(min=0.0)


class SoRA(Capacity):
    """K independent gates under an l1 penalty that acts by proximal steps.

    The threshold xi of a step is what ``shrinkage * progress ** power`` has risen by since the step before: constant
    for a power of 1, rising linearly for 2.

    Args:
        K: terms.
        seed, name: gate k is drawn from them and k.
        shrinkage: the sum of xi over training, by which a gate without a gradient shrinks.
        power: of the course of that sum.

    >>> import ngn
    >>> gate = SoRA(4, seed=0)
    >>> gate.gates("soft").shape, gate.count().item()
    (torch.Size([4]), 4)
    """

    replicas = None

    def __init__(self, K: int, seed: int, *, shrinkage: float = 6.0, power: float = 2.0, name: str | int = 0) -> None:
        super().__init__()
        if shrinkage < 0 or power <= 0:
            raise ValueError(f"shrinkage cannot be negative, nor power zero: not {shrinkage} and {power}")
        self.K, self.shrinkage, self.power = K, shrinkage, power
        draws = [torch.randn(1, dtype=torch.float64, generator=generator(seed, "gate", name, k)) for k in range(K)]
        self.g = nn.Parameter(torch.cat(draws))
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))
        self.register_buffer("open", torch.ones(K, dtype=torch.bool))
        self.register_buffer("frozen", torch.zeros((), dtype=torch.bool))
        self.progress: Tensor
        self.open: Tensor
        self.frozen: Tensor
        self.xi = torch.zeros((), dtype=torch.float64)

    def set_progress(self, progress: float) -> None:
        # Not negative: where training begins anew, gates must not grow.
        self.xi = (self.shrinkage * (progress**self.power - self.progress**self.power)).clamp(min=0)
        self.progress.fill_(progress)

    def gates(self, mode: Mode) -> Tensor:
        """g as it is, in every mode."""
        return self.g

    def weights(self) -> Tensor:
        """Ones: the gates are not ordered."""
        return torch.ones_like(self.g, requires_grad=False)

    def kept(self) -> Tensor:
        """The terms whose gate is not exactly zero; they need not be a prefix."""
        return self.g.detach() != 0

    def penalty(self) -> Tensor:
        """None: the l1 term acts by the proximal steps."""
        return torch.zeros_like(self.xi)

    @torch.no_grad()
    def after_step(self) -> None:
        """The proximal step; once frozen, no gate shrinks, and closed ones stay closed."""
        self.g.copy_(torch.where(self.frozen, self.g * self.open, proximal(self.g, self.xi)))

    @torch.no_grad()
    def freeze(self, open_: Tensor) -> None:
        """From now on exactly the gates of ``open_``, bool [K], are open."""
        self.open.copy_(open_)
        self.frozen.fill_(True)

    def count(self) -> Tensor:
        return self.kept().sum(-1)

    def size(self) -> Tensor:
        """The number of open gates."""
        return self.count().double()

    def controllers(self) -> list[nn.Parameter]:
        """None: the gates are trained as the body is."""
        return []


class SoRALearner(CapacityLearner):
    """SoRA with one threshold for all axes, which is frozen when ``target`` gates are left.

    At the first step in which the proximal step would leave at most ``target`` gates open, the ``target`` largest stay
    for good, and none shrinks any more. A training that ends before that keeps more.

    Args:
        model: its axes have :class:`~experiments.methods.sora.capacity.SoRA` capacities.
        target: open gates, summed over the axes; None to shrink to the end.

    Raises:
        ValueError: if an axis has another capacity, or the target is negative or more than there are gates.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)).requires_grad_(False)
    >>> _ = ngn.attach_low_rank(model, ["0", "1"], lambda number: SoRA(4, seed=0, name=number), seed=0)
    >>> learner, plan = SoRALearner(model, target=3), ngn.TrainPlan(steps=50, lr=1e-2)
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
