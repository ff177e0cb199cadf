"""SoRA: low-rank terms with sparse gates (Ding et al., "Sparse Low-rank Adaptation of Pre-trained Language Models",
EMNLP 2023), from the paper's equations.

    y = W x + sum_k g_k B_k (A_k x),  g_k ~ N(0, 1) at the start
    after each step of the optimiser  g_k <- sign(g_k) max(|g_k| - xi, 0)      proximal step of xi |g|_1

The gates are independent and have no order. Truncation removes the gates that are exactly zero and keeps the others
unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ngn.learner import Learner
from ngn.methods.base import Capacity, Mode
from ngn.streams import generator


def proximal(g: Tensor, xi: Tensor | float) -> Tensor:
    """Return sign(g) max(|g| - xi, 0), the minimiser over z of (z - g)^2 / 2 + xi |z|.

    >>> import torch
    >>> proximal(torch.tensor([1.5, -0.5, -2.0]), 0.5)
    tensor([ 1.0000, -0.0000, -1.5000])
    """
    return g.sign() * (g.abs() - xi).clamp(min=0.0)


class SoRA(Capacity):
    """K independent gates under an l1 penalty, applied by proximal steps.

    The threshold xi of a step is the increase of ``shrinkage * progress ** power`` since the previous step: constant
    for power 1, rising linearly for power 2.

    Args:
        K: terms.
        seed, name: they and k determine the initial gate k.
        shrinkage: sum of xi over training. A gate without a gradient shrinks by this amount.
        power: exponent of the formula above.

    >>> import ngn
    >>> gate = SoRA(4, seed=0)
    >>> gate.gates("soft").shape, gate.count().item()
    (torch.Size([4]), 4)
    """

    replicas = None

    def __init__(self, K: int, seed: int, *, shrinkage: float = 6.0, power: float = 2.0, name: str | int = 0) -> None:
        super().__init__()
        if shrinkage < 0 or power <= 0:
            raise ValueError(f"shrinkage must not be negative and power must be positive, not {shrinkage} and {power}")
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
        # Clamp at zero: when a training starts anew, progress falls, and gates must not grow.
        self.xi = (self.shrinkage * (progress**self.power - self.progress**self.power)).clamp(min=0)
        self.progress.fill_(progress)

    def gates(self, mode: Mode) -> Tensor:
        """Return g, in every mode."""
        return self.g

    def weights(self) -> Tensor:
        """Return ones: the gates are not ordered."""
        return torch.ones_like(self.g, requires_grad=False)

    def kept(self) -> Tensor:
        """Return which gates are not exactly zero, bool [K]. They need not be a prefix."""
        return self.g.detach() != 0

    def penalty(self) -> Tensor:
        """Return zero: the proximal steps apply the l1 term."""
        return torch.zeros_like(self.xi)

    @torch.no_grad()
    def after_step(self) -> None:
        """Make the proximal step. After :meth:`freeze`, gates no longer shrink, and closed gates stay closed."""
        self.g.copy_(torch.where(self.frozen, self.g * self.open, proximal(self.g, self.xi)))

    @torch.no_grad()
    def freeze(self, open_: Tensor) -> None:
        """Keep exactly the gates ``open_``, bool [K], open from now on."""
        self.open.copy_(open_)
        self.frozen.fill_(True)

    def count(self) -> Tensor:
        return self.kept().sum(-1)

    def size(self) -> Tensor:
        """Return the number of open gates."""
        return self.count().double()

    def controllers(self) -> list[nn.Parameter]:
        """Return an empty list: the gates train at the body's learning rate."""
        return []


class SoRALearner(Learner):
    """Train SoRA gates with one threshold for all axes, and freeze them when ``target`` gates are left.

    The first proximal step that would leave at most ``target`` gates open fixes the ``target`` largest gates instead;
    after that, no gate shrinks. A training that ends earlier keeps more gates.

    Args:
        model: a model whose axes have :class:`~experiments.methods.low_rank.sora.SoRA` capacities.
        target: gates to keep open, summed over the axes; None shrinks until the end.

    Raises:
        ValueError: if an axis has another capacity, or the target is not between 0 and the number of gates.

    >>> import torch, ngn
    >>> from ngn.components.low_rank import attach_low_rank
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)).requires_grad_(False)
    >>> _ = attach_low_rank(model, ["0", "1"], lambda number: SoRA(4, seed=0, name=number), seed=0)
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
            raise ValueError("every axis of the model needs a SoRA capacity")
        most = sum(capacity.K for capacity in self.capacities)
        if target is not None and not 0 <= target <= most:
            raise ValueError(f"target must be between 0 and {most} gates, not {target}")
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
