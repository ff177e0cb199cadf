"""A budget: sizes are learned under a limit on what the deployed model costs.

    minimise L subject to C(t) <= B, by dual ascent with one multiplier for all groups, priced by their costs:

    e      = C(t) / B(p) - 1                     B(p): linear from today's cost to B over the first fifth
    lambda <- clip(lambda exp(K_I e dp + K_P (e - e_before)))
    loss  += sum_g lambda stop(dC/dt_g) / B t_g while e > 0: the slope of lambda max(0, C/B - 1)
    at the commit: the largest counts with C <= B near the boundaries

p is the part of the time up to the commit that has passed.

Only what is above the limit pays: a multiplier that has grown until it closes gates would go on closing them below the
limit, and closed gates have no slope to return by. Such a penalty is exact: any lambda above the multiplier of the
solution has that solution.

The update of log lambda is the PI controller nuPI with nu = 0 (Sohrabi et al., "On PI controllers for updating Lagrange
multipliers in constrained optimization", ICML 2024), its integral taken over p, so that it does not depend on the
number of steps. C: ``ngn/cost.py``.
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
"""A number, one per replica, or a share of what the largest model costs, such as "60%"."""
BUDGET_COMMIT = 0.5
"""When sizes under a budget are fixed: the weights have made up for half-open gates, and have to learn anew."""
PRICES = (1e-7, 1e2)
"""Smallest and largest multiplier: far below a budget it does not fall so low that it could not return."""


@dataclass(frozen=True)
class Budget:
    """What the deployed model may cost: exactly one of the first three.

    Attributes:
        parameters: as deployed.
        macs: multiply-adds in matrix products and convolutions of the forward pass of ``example``.
        milliseconds: median wall time of that pass on this machine as it is now.
        example: an input of one model; a tuple for several arguments, a dictionary for named ones.
        round_to: kept counts are multiples of it, or all components.
        gains: K_I per training up to the commit, and K_P.
        ramp: part of it in which the limit moves from today's cost to the budget.
        price: the first lambda.

    Raises:
        ValueError: if there is not exactly one limit, or a number is out of its range.

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
            raise ValueError(f"a budget is one of parameters, macs and milliseconds, not {given or 'nothing'}")
        if given != ["parameters"] and self.example is None:
            raise ValueError(f"a budget of {given[0]} needs an input of one model to measure it with: example=")
        if self.round_to < 1 or not 0 <= self.ramp < 1 or not self.price > 0:
            raise ValueError("a budget needs round_to of 1 or more, a ramp in [0, 1) and a positive price")

    @property
    def kind(self) -> Literal["parameters", "macs", "milliseconds"]:
        """Which cost is limited."""
        return "parameters" if self.parameters is not None else "macs" if self.macs is not None else "milliseconds"

    def limit(self, largest: float, replicas: int | None) -> Tensor:
        """The largest cost, float64 [*R]; ``largest`` is that of all components.

        Raises:
            ValueError: if it is no positive number, and no share such as "60%".
        """
        given: Any = getattr(self, self.kind)
        if isinstance(given, str):
            share = given.strip().removesuffix("%")
            if not given.strip().endswith("%") or not share.strip().replace(".", "", 1).isdigit():
                raise ValueError(f"a share of the largest model is written as in '60%', not {given!r}")
            given = float(share) / 100 * largest
        value = setting(given, replicas)
        if not bool((value > 0).all()):
            raise ValueError(f"a budget is positive, not {given}")
        if self.kind != "milliseconds" and bool((value < 1).any()):
            raise ValueError(f"a budget of {given} {self.kind}: a share is written as in '60%'")
        return value


@dataclass(frozen=True)
class Reach:
    """What can be reached, known before training: costs of the smallest model, the requested (per replica) and the
    largest one, whose size is None where components are allocated as boundaries advance."""

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
    """Learns the sizes of a model so that the deployed one is never above a budget, every time.

    Prices of the gates themselves (``lambda0``) are not paid; the snapping strength is theirs. Boundaries are committed
    at the progress that they say, else at :data:`BUDGET_COMMIT`. No further component fits then, unless the sizes have
    been below the budget from the first: the task asked for less, and the report says so.

    Args:
        model: its axes have :class:`~ngn.methods.ngn.CountGate` capacities.
        budget: what it may cost.

    Attributes:
        reach: the table of what can be reached, to be printed before training.
        price: lambda, [*R].

    Raises:
        ValueError: if the budget is below the smallest model, whose cost the message says; if an axis has another
            capacity, or another commit; if a share is asked for where components are allocated as boundaries advance.

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
    """1 where the soft model was ever above the budget, so that it has held sizes back, else 0: float64 [*R]."""
    progress: Tensor

    def __init__(self, model: nn.Module, budget: Budget) -> None:
        super().__init__(model)
        self.gates: list[CountGate] = [axis.capacity for axis in self.axes]  # type: ignore[misc]
        if not all(gate.has_boundary for gate in self.gates):
            raise ValueError("a budget needs boundaries: every axis a CountGate")
        self.commit_at(BUDGET_COMMIT)
        if len(commits := sorted({gate.commit or 1.0 for gate in self.gates})) > 1:
            raise ValueError(f"sizes under one budget are fixed at once, not at {' and '.join(map(str, commits))}")
        self.budget, self.growing = budget, any(gate.growing for gate in self.gates)
        if self.growing and isinstance(getattr(budget, budget.kind), str):
            raise ValueError("without a preset K there is no largest model of which a budget could be a share")
        self.cost = Cost(model, self.axes, budget.kind, budget.example)
        self.limit = budget.limit(self.cost.full, self.replicas)
        least = tuple(self._allowed(g)[0] for g in range(len(self.axes)))
        smallest = self.cost.measured(least)
        self.reach = Reach(
            budget.kind, smallest, self.limit.reshape(-1).tolist(), None if self.growing else self.cost.full
        )
        if smallest > float(self.limit.min()):
            raise ValueError(
                f"no model has as few as {float(self.limit.min()):,g} {budget.kind}: the smallest has {smallest:,g}, "
                f"with {', '.join(map(str, least))} components"
            )
        nan = torch.full_like(self.limit, torch.nan)
        for name, value in (("price", torch.full_like(nan, budget.price)), ("before", nan), ("start", nan.clone())):
            self.register_buffer(name, value)
        self.register_buffer("reached", torch.zeros_like(nan))  # a number, as averages of models average buffers
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What casts the model leaves the types of price and progress: small steps are lost in anything less."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, value in before.items():
            moved = self._buffers[name]
            if value is not None and moved is not None and moved.dtype != value.dtype:
                self._buffers[name] = value.to(moved.device)
        return self

    def _counts(self) -> Tensor:
        """Components as a boundary counts them, t + 1/2 + delta, no more than there are: float64 [*R, G]."""
        return torch.stack([g.size() + g.smallest_count for g in self.gates], -1)

    def costs(self) -> tuple[Tensor, Tensor]:
        """What the soft model costs, C(t), float64 [*R], and its slopes dC/dt, [*R, G]."""
        counts = self._counts()
        most = [float("inf") if gate.growing else gate.K for gate in self.gates]
        return self.cost(torch.minimum(counts, torch.tensor(most).to(counts)))

    def set_progress(self, progress: float) -> None:
        """Move the schedules, then lambda by what has happened since the step before."""
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
        now = progress / (self.gates[0].commit or 1.0)  # so that sizes have come to the budget by then
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
        """Fix, of every replica, the largest counts that are within the budget."""
        sizes, limits = self._counts().reshape(-1, len(self.gates)), self.limit.reshape(-1)
        allowed = [self._allowed(g) for g in range(len(self.gates))]
        each = zip(sizes.tolist(), limits.tolist(), self.reached.reshape(-1).tolist(), strict=True)
        measures = (self.cost.estimate, self.cost.measured)
        counts = [largest(size, allowed, *measures, limit, fill=fill) for size, limit, fill in each]
        settled = torch.tensor(counts).reshape(self.count().shape)
        for g, gate in enumerate(self.gates):
            gate.settle(settled[..., g])

    def _allowed(self, g: int) -> list[int]:
        """The counts of a group that may be kept, ascending."""
        low, K, step = self.cost.smallest[g], self.axes[g].K, self.budget.round_to
        return sorted({K, *(n for n in range(0, K + 1, step) if n >= low)})

    def deploy(self, replica: int | None = None, **settings: Any) -> nn.Module:  # type: ignore[override]
        """As of :class:`~ngn.contract.Learner`.

        Raises:
            ValueError: if the boundaries are not committed yet, and the model would be above the budget; or if what has
                been done to the model since it got its sizes, such as another head, takes it there.
        """
        refuse_diverged(self._sizes_of(replica))
        counts, limit = self.count().reshape(-1, len(self.gates))[replica or 0], self.limit.reshape(-1)[replica or 0]
        above = f"{self.budget.kind} are above the budget of {float(limit):,g}"
        if (cost := self.cost.measured(tuple(counts.tolist()))) > limit:
            way_out = f"which holds from the commit on: train to p = {self.gates[0].commit:g} (set_progress)"
            if self.gates[0].committed:
                way_out = "which is not the one under which these sizes were fixed"
            raise ValueError(f"{cost:,g} {above}, {way_out}")
        small = super().deploy(replica, **settings)
        if self.budget.kind != "milliseconds" and (cost := self.cost.of(small)) > limit:
            raise ValueError(f"{cost:,g} {above}: the model was changed after it had got its sizes")
        return small

    def _budget_used(self) -> str:
        """Cost and budget of every model, and whether the task asked for less."""
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
    """The change of log lambda when the error goes from ``before`` to ``e`` in a part ``passed`` of training."""
    return integral * passed * e + proportional * (e - before)
