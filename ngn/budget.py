"""A budget: learn sizes under a limit on the cost of the deployed model.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ngn.cost import Cost, largest
from ngn.learner import CapacityLearner
from ngn.methods.base import setting
from ngn.methods.ngn import CountGate
from ngn.watching import refuse_diverged

Limit = float | str | Sequence[float] | Tensor
"""A number, one per replica, or a share of the cost of the largest model, such as "60%"."""
BUDGET_COMMIT = 0.5
"""When sizes under a budget are fixed. Half is early: the weights had adapted to half-open gates and need to adjust."""
PRICES = (1e-7, 1e2)
"""Smallest and largest multiplier. The floor lets it rise again after a time far below the budget."""


@dataclass(frozen=True)
class Budget:
    """Limit the cost of the deployed model: give ``parameters``, ``macs`` or ``milliseconds``.

    Attributes:
        parameters: parameters of the deployed model.
        macs: multiply-adds in the matrix products and convolutions of one forward pass on ``example``.
        milliseconds: median wall time of that pass on this machine, as busy as it is now.
        example: an input of one model; a tuple for several arguments, a dictionary for named ones.
        round_to: counts are multiples of it, or all components.
        gains: K_I over the time before the commit, and K_P.
        ramp: fraction of that time in which the limit moves from the initial cost to the budget.
        price: initial lambda.

    Raises:
        ValueError: if there is not exactly one limit, or a number is out of range.

    >>> import ngn
    >>> ngn.Budget(parameters="60%").kind
    'parameters'
    """

    parameters: Limit | None = None
    macs: Limit | None = None
    milliseconds: Limit | None = None
    example: Any = None
    round_to: int = 1
    gains: tuple[float, float] = (40.0, 1.0)
    ramp: float = 0.2
    price: float = 1e-4

    def __post_init__(self) -> None:
        given = [name for name in ("parameters", "macs", "milliseconds") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a budget takes one of parameters, macs and milliseconds, not {given or 'nothing'}")
        if given != ["parameters"] and self.example is None:
            raise ValueError(f"a budget of {given[0]} needs an input to measure with: add example=")
        if self.round_to < 1 or not 0 <= self.ramp < 1 or not self.price > 0:
            raise ValueError(
                "a budget needs round_to of 1 or more, a ramp in [0, 1) and a positive price, "
                f"not {self.round_to}, {self.ramp} and {self.price}"
            )

    @property
    def kind(self) -> Literal["parameters", "macs", "milliseconds"]:
        """The name of the limited cost."""
        return "parameters" if self.parameters is not None else "macs" if self.macs is not None else "milliseconds"

    def limit(self, largest: float, replicas: int | None) -> Tensor:
        """The limit on the cost, float64 [*R]; ``largest`` is the cost of the model with all components.

        Raises:
            ValueError: if it is neither a positive number nor a share such as "60%".
        """
        given: Any = getattr(self, self.kind)
        if isinstance(given, str):
            share = given.strip().removesuffix("%")
            if not given.strip().endswith("%") or not share.strip().replace(".", "", 1).isdigit():
                raise ValueError(f"write a share of the largest model as in '60%', not {given!r}")
            given = float(share) / 100 * largest
        value = setting(given, replicas)
        if not bool((value > 0).all()):
            raise ValueError(f"a budget must be positive, not {given}")
        if self.kind != "milliseconds" and bool((value < 1).any()):
            raise ValueError(f"a budget of {given} {self.kind} is below 1: write a share as in '60%'")
        return value


@dataclass(frozen=True)
class Reach:
    """Costs that a training can reach: of the smallest model, as requested (per replica), and of the largest model.

    ``largest`` is None if components are allocated during training.
    """

    kind: str
    smallest: float
    requested: list[float]
    largest: float | None

    def __str__(self) -> str:
        named = [("smallest", self.smallest), *(("requested", value) for value in dict.fromkeys(self.requested))]
        whole = self.largest
        rows = [*named, *([("largest", whole)] if whole is not None else [])]
        share = "" if whole is None else "  of the largest"
        lines = [f"{'':10}{self.kind:>14}{share}"]
        for name, value in rows:
            part = "" if whole is None else f"{100 * value / whole:14.1f} %"
            lines.append(f"{name:10}{value:14,.{0 if self.kind != 'milliseconds' else 3}f}{part}")
        if whole is not None and min(self.requested) >= whole:
            lines.append("the largest model is within the budget")
        return "\n".join(lines)


class BudgetLearner(CapacityLearner):
    """Learn sizes so that the deployed model never exceeds a budget.

    The budget sets the price, so ``lambda0`` of the gates has no effect; their snapping strength does. Sizes are fixed
    at the gates' ``commit``, else at :data:`BUDGET_COMMIT`, so that no further component fits. The model can end below
    the budget if it never grew to it; the report then says so.

    Args:
        model: its axes have :class:`~ngn.methods.ngn.CountGate` capacities.
        budget: the limit.

    Attributes:
        reach: the costs that training can reach; print it before training.
        price: lambda, [*R].

    Raises:
        ValueError: if the budget is below the smallest model (the message gives its cost). Also for a share without a
            preset K, and for axes with other capacities or different commits.

    >>> import torch, ngn
    >>> layer = ngn.LowRankLinear(torch.nn.Linear(1, 1), ngn.CountGate(8, t0=6.0), seed=0, name="map")
    >>> learner = ngn.BudgetLearner(layer, ngn.Budget(parameters=10))
    >>> print(learner.reach)
                  parameters  of the largest
    smallest               4          22.2 %
    requested             10          55.6 %
    largest               18         100.0 %
    >>> x = torch.linspace(-1, 1, 32)[:, None]
    >>> _ = ngn.fit(learner, x, x.sin(), torch.nn.functional.mse_loss, ngn.TrainPlan(steps=50), progress="never")
    >>> sum(p.numel() for p in learner.deploy().parameters())
    10
    >>> print(learner.report())
    axis: 8 -> 4 components, -8 parameters (t = 3.00)
    parameters: 18 -> 10 (-44%)
    budget: 10 of 10 parameters
    """

    price: Tensor
    before: Tensor
    start: Tensor
    reached: Tensor
    """1 if the soft model was ever above the budget, which then held sizes back; else 0: float64 [*R]."""
    progress: Tensor

    def __init__(self, model: nn.Module, budget: Budget) -> None:
        super().__init__(model)
        self.gates: list[CountGate] = [axis.capacity for axis in self.axes]  # type: ignore[misc]
        if not all(gate.has_boundary for gate in self.gates):
            raise ValueError("a budget needs learned boundaries: give every axis a CountGate")
        self.commit_at(BUDGET_COMMIT)
        if len(commits := sorted({gate.commit or 1.0 for gate in self.gates})) > 1:
            raise ValueError(
                f"a budget fixes all sizes together: give all gates one commit, not {' and '.join(map(str, commits))}"
            )
        self.budget, self.growing = budget, any(gate.growing for gate in self.gates)
        if self.growing and isinstance(getattr(budget, budget.kind), str):
            raise ValueError("without a preset K there is no largest model: give the budget as a number, not a share")
        self.cost = Cost(model, self.axes, budget.kind, budget.example)
        self.limit = budget.limit(self.cost.full, self.replicas)
        least = tuple(self._allowed(g)[0] for g in range(len(self.axes)))
        smallest = self.cost.measured(least)
        self.reach = Reach(
            budget.kind, smallest, self.limit.reshape(-1).tolist(), None if self.growing else self.cost.full
        )
        if smallest > float(self.limit.min()):
            raise ValueError(
                f"a budget of {float(self.limit.min()):,g} {budget.kind} is too small: the smallest model has "
                f"{smallest:,g}, with {', '.join(map(str, least))} components"
            )
        nan = torch.full_like(self.limit, torch.nan)
        for name, value in (("price", torch.full_like(nan, budget.price)), ("before", nan), ("start", nan.clone())):
            self.register_buffer(name, value)
        self.register_buffer("reached", torch.zeros_like(nan))  # no bool: averages of models average buffers
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep price and progress in float64 when the model is cast: lower precision would lose small steps."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, value in before.items():
            moved = self._buffers[name]
            if value is not None and moved is not None and moved.dtype != value.dtype:
                self._buffers[name] = value.to(moved.device)
        return self

    def _counts(self) -> Tensor:
        """Continuous counts t + 1/2 + delta: float64 [*R, G]."""
        return torch.stack([g.size() + g.smallest_count for g in self.gates], -1)

    def costs(self) -> tuple[Tensor, Tensor]:
        """Cost of the soft model, C(t), float64 [*R], and its slopes dC/dt, [*R, G]."""
        counts = self._counts()
        most = [float("inf") if gate.growing else gate.K for gate in self.gates]
        return self.cost(torch.minimum(counts, torch.tensor(most).to(counts)))

    def set_progress(self, progress: float) -> None:
        """Move the schedules, then update lambda by the cost since the previous step."""
        cost, slopes = self.costs()
        self.reached[cost > self.limit.to(cost.device)] = 1.0
        committing = [gate.commit is not None and progress >= gate.commit for gate in self.gates]
        if any(committing) and not self.gates[committing.index(True)].committed:
            self._settle()
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
        ramp = min(1.0, now / self.budget.ramp) if self.budget.ramp else 1.0
        limit = self.limit.to(cost.device)
        e = cost / (self.start + (limit - self.start) * ramp) - 1.0
        change = pi_step(e, torch.where(self.before.isnan(), e, self.before), max(0.0, passed), *self.budget.gains)
        self.price.copy_((self.price * change.exp()).clamp(*PRICES))
        self.before.copy_(e)

    def _settle(self) -> None:
        """Fix the sizes of each replica at the largest counts within the budget."""
        sizes, limits = self._counts().reshape(-1, len(self.gates)), self.limit.reshape(-1)
        allowed = [self._allowed(g) for g in range(len(self.gates))]
        each = zip(sizes.tolist(), limits.tolist(), self.reached.reshape(-1).tolist(), strict=True)
        measures = (self.cost.estimate, self.cost.measured)
        counts = [largest(size, allowed, *measures, limit, fill=fill) for size, limit, fill in each]
        settled = torch.tensor(counts).reshape(self.count().shape)
        for g, gate in enumerate(self.gates):
            gate.settle(settled[..., g])

    def _allowed(self, g: int) -> list[int]:
        """The counts that axis ``g`` may end with, ascending."""
        low, step = self.cost.smallest[g], self.budget.round_to
        K = max(self.axes[g].K, self.cost.largest[g])  # grown, or cut
        return sorted({K, *(n for n in range(0, K + 1, step) if n >= low)})

    def deploy(self, replica: int | None = None, **settings: Any) -> nn.Module:  # type: ignore[override]
        """Deploy as :meth:`Learner.deploy <ngn.contract.Learner.deploy>` does.

        Raises:
            ValueError: if the model exceeds the budget. Its sizes are not fixed yet, or were fixed under another,
                or the model has changed since (a new head, say).
        """
        refuse_diverged(self._sizes_of(replica))
        counts, limit = self.count().reshape(-1, len(self.gates))[replica or 0], self.limit.reshape(-1)[replica or 0]
        above = f"{self.budget.kind} are above the budget of {float(limit):,g}"
        if (cost := self.cost.measured(tuple(counts.tolist()))) > limit:
            reason = f"it holds from progress {self.gates[0].commit:g} on: train that far, or call set_progress"
            if self.gates[0].committed:
                reason = "these sizes were fixed under another budget"
            raise ValueError(f"{cost:,g} {above}: {reason}")
        small = super().deploy(replica, **settings)
        if self.budget.kind != "milliseconds" and (cost := self.cost.of(small)) > limit:
            raise ValueError(f"{cost:,g} {above}: the model was changed after its sizes were made learnable")
        return small

    def _budget_used(self) -> str:
        """The cost and the budget of each model, and whether the task asked for less."""
        digits, parts = 3 if self.budget.kind == "milliseconds" else 0, []
        allowed = [self._allowed(g) for g in range(len(self.gates))]
        each = (self.count().reshape(-1, len(allowed)), self.limit.reshape(-1), self.reached.reshape(-1))
        for counts, limit, reached in zip(*(values.tolist() for values in each), strict=True):
            most = largest(counts, allowed, self.cost.estimate, self.cost.estimate, limit, fill=not reached)
            less = self.gates[0].committed and sum(most) > sum(counts)
            used = f"{self.cost.measured(tuple(counts)):,.{digits}f} of {limit:,.{digits}f} {self.budget.kind}"
            parts.append(used + (" (the task asked for less)" if less else ""))
        return ", ".join(parts)

    def standing(self) -> str:
        cost, limit = float(self.costs()[0].mean()), float(self.limit.mean())
        return f"{super().standing()}, {cost:,.4g} of {limit:,.4g} {self.budget.kind}"


def pi_step(e: Tensor, before: Tensor, passed: float, integral: float, proportional: float) -> Tensor:
    """The change of log lambda as the error moves from ``before`` to ``e`` over the progress ``passed``."""
    return integral * passed * e + proportional * (e - before)
