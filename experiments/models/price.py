"""Dual ascent: one price for all axes brings the cost of the deployed model to a budget.

    minimise L subject to C(t) <= B, by dual ascent with one multiplier for all axes, priced by their costs:

    e      = C(t) / B(p) - 1                     B(p): linear from the initial cost to B over the ramp
    lambda <- clip(lambda exp(K_I e dp + K_P (e - e_before)))
    loss  += sum_g lambda stop(dC/dt_g) / B t_g while e > 0: the slope of lambda max(0, C/B - 1)
    at the commit: the largest counts with C <= B near the boundaries

p is the part of the time before the commit that has passed.

The price acts only above the limit. A large multiplier would otherwise go on closing gates below the limit, and closed
gates have no gradient with which to reopen. The penalty is exact: every lambda above the multiplier of the solution
gives the same solution.

log lambda follows the PI controller nuPI with nu = 0 (Sohrabi et al., "On PI controllers for updating Lagrange
multipliers in constrained optimization", ICML 2024). Its integral is over p, so that it does not depend on the number
of steps. C: ``ngn/cost.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.models.nearest import largest
from ngn.budget import Budget, LimitedLearner

COMMIT = 0.5
"""When sizes are fixed. Half is early: the weights had adapted to half-open gates and need to adjust."""
GAINS = (40.0, 1.0)
"""K_I over the time before the commit, and K_P."""
RAMP = 0.2
"""Fraction of that time in which the limit moves from the initial cost to the budget."""
PRICE = 1e-4
"""The initial multiplier."""
PRICES = (1e-7, 1e2)
"""Smallest and largest multiplier. The floor lets it rise again after a time far below the budget."""


class PricedLearner(LimitedLearner):
    """Learn sizes by their price, which the budget sets.

    ``lambda0`` of the gates has no effect; their snapping strength does. The model can end below the budget if it never
    grew to it; the report then says so.

    Attributes:
        price: lambda, [*R].
    """

    price: Tensor
    before: Tensor
    start: Tensor
    reached: Tensor
    """1 if the soft model was ever above the budget, which then held sizes back; else 0: float64 [*R]."""
    progress: Tensor

    def __init__(self, model: nn.Module, budget: Budget) -> None:
        super().__init__(model, budget, COMMIT)
        nan = torch.full_like(self.limit, torch.nan)
        for name, value in (("price", torch.full_like(nan, PRICE)), ("before", nan), ("start", nan.clone())):
            self.register_buffer(name, value)
        self.register_buffer("reached", torch.zeros_like(nan))  # no bool: averages of models average buffers
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))

    def set_progress(self, progress: float) -> None:
        """Move the schedules, then update lambda by the cost since the previous step."""
        cost, slopes = self.costs()
        self.reached[cost > self.limit.to(cost.device)] = 1.0
        super().set_progress(progress)
        self._ascend(progress, cost)
        price = torch.where(self.before > 0, self.price, 0.0)
        for g, gate in enumerate(self.gates):
            gate.pay(price * slopes[..., g] / self.limit.to(slopes.device))

    def _ascend(self, progress: float, cost: Tensor) -> None:
        now = progress / (self.gates[0].commit or 1.0)  # the sizes reach the budget by the commit
        passed = now - float(self.progress)
        self.progress.fill_(now)
        if passed < 0 or bool(self.start.isnan().any()):  # a training begins
            self.start.copy_(cost)
            self.before.fill_(torch.nan)
        ramp = min(1.0, now / RAMP)
        limit = self.limit.to(cost.device)
        e = cost / (self.start + (limit - self.start) * ramp) - 1.0
        change = pi_step(e, torch.where(self.before.isnan(), e, self.before), max(0.0, passed), *GAINS)
        self.price.copy_((self.price * change.exp()).clamp(*PRICES))
        self.before.copy_(e)

    def final_counts(self) -> list[tuple[int, ...]]:
        sizes, limits = self._counts().reshape(-1, len(self.gates)), self.limit.reshape(-1)
        allowed = [self._allowed(g) for g in range(len(self.gates))]
        each = zip(sizes.tolist(), limits.tolist(), self.reached.reshape(-1).tolist(), strict=True)
        measures = (self.cost.estimate, self.cost.measured)
        return [largest(size, allowed, *measures, limit, fill=fill) for size, limit, fill in each]

    def _budget_used(self) -> str:
        """The cost and the budget of each model, and whether the task asked for less."""
        allowed, parts = [self._allowed(g) for g in range(len(self.gates))], []
        for (counts, cost, limit), reached in zip(
            self._costs_and_limits(), self.reached.reshape(-1).tolist(), strict=True
        ):
            most = largest(counts, allowed, self.cost.estimate, self.cost.estimate, limit, fill=not reached)
            less = self.gates[0].committed and sum(most) > sum(counts)
            parts.append(self._used(cost, limit) + (" (the task asked for less)" if less else ""))
        return ", ".join(parts)


def pi_step(e: Tensor, before: Tensor, passed: float, integral: float, proportional: float) -> Tensor:
    """The change of log lambda as the error moves from ``before`` to ``e`` over the progress ``passed``."""
    return integral * passed * e + proportional * (e - before)
