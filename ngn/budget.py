"""A budget: a limit on the cost of the deployed model, which it never exceeds.

:class:`Budget` says what is limited. :class:`LimitedLearner` measures the cost of the model at any sizes, fixes sizes
within the limit at the commit, and refuses to deploy a model above it. How sizes get there is left to subclasses:
:class:`~ngn.allocation.BudgetLearner` learns them. C: ``ngn/cost.py``.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ngn.cost import NOISY, Cost, refuse_changing
from ngn.learner import CapacityLearner
from ngn.methods.base import setting
from ngn.methods.ngn import CountGate
from ngn.rounding import largest
from ngn.watching import refuse_diverged

Limit = float | str | Sequence[float] | Tensor
"""A number, one per replica, or a share of the cost of the largest model, such as "60%"."""
BUDGET_COMMIT = 0.4
"""When sizes under a budget are fixed. The rest of training is the small model's alone."""
STEP = 0.98
"""Factor by which the limit of the formula falls at least, where the model is slower than the formula says."""


@dataclass(frozen=True)
class Budget:
    """Limit the cost of the deployed model: give ``parameters``, ``macs`` or ``milliseconds``.

    Attributes:
        parameters: parameters of the deployed model.
        macs: multiply-adds in the matrix products and convolutions of one forward pass on ``example``.
        milliseconds: shortest wall time of that pass on this machine, as busy as it is now.
        example: an input of one model; a tuple for several arguments, a dictionary for named ones. Default: that of
            ``learn_sizes``.
        round_to: counts are multiples of it, or all components.
        significance: standard errors by which the benefit of a component has to differ from that of the others before
            a size parts from the even allocation. ``math.inf`` keeps it even.

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
    significance: float = 3.0

    def __post_init__(self) -> None:
        given = [name for name in ("parameters", "macs", "milliseconds") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a budget takes one of parameters, macs and milliseconds, not {given or 'nothing'}")
        if self.round_to < 1 or not self.significance > 0:
            raise ValueError(
                "a budget needs round_to of 1 or more and a positive significance, "
                f"not {self.round_to} and {self.significance}"
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


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors lie on one device and are equal."""
    return one.device == other.device and torch.equal(one, other)


class LimitedLearner(CapacityLearner):
    """Base class of learners whose deployed model never exceeds a budget.

    Sizes are fixed at the gates' ``commit``, else at :data:`BUDGET_COMMIT`.

    Args:
        model: its axes have :class:`~ngn.methods.ngn.CountGate` capacities.
        budget: the limit.

    Attributes:
        reach: the costs that training can reach; print it before training.
        limit: the limit on the cost, float64 [*R].

    Raises:
        ValueError: if the budget is below the smallest model (the message gives its cost). Also for a share without a
            preset K, and for axes with other capacities or different commits.
    """

    def __init__(self, model: nn.Module, budget: Budget) -> None:
        super().__init__(model)
        self.gates: list[CountGate] = [axis.capacity for axis in self.axes]  # type: ignore[misc]
        if not all(gate.has_boundary for gate in self.gates):
            raise ValueError(
                "a budget needs boundaries that move: give every axis an ngn.CountGate, or leave capacity= out"
            )
        self.commit_at(BUDGET_COMMIT)
        if len(commits := sorted({gate.commit or 1.0 for gate in self.gates})) > 1:
            raise ValueError(
                f"a budget fixes all sizes together: give all gates one commit, not {' and '.join(map(str, commits))}"
            )
        self.budget, self.growing = budget, any(gate.growing for gate in self.gates)
        if self.growing and isinstance(getattr(budget, budget.kind), str):
            raise ValueError("without a preset K there is no largest model: give the budget as a number, not a share")
        if budget.kind != "parameters" and budget.example is None:
            raise ValueError(
                f"a budget of {budget.kind} needs an input to measure with: pass example= to learn_sizes or to Budget"
            )
        if budget.kind == "macs":
            refuse_changing(model, self.axes, budget.example)
        self.cost = Cost(model, self.axes, budget.kind, budget.example)
        self.limit = budget.limit(self.cost.full, self.replicas)
        self._costs: tuple[Tensor, tuple[Tensor, Tensor]] | None = None
        least = tuple(self._allowed(g)[0] for g in range(len(self.axes)))
        smallest = self.cost.measured(least)
        self.reach = Reach(
            budget.kind, smallest, self.limit.reshape(-1).tolist(), None if self.growing else self.cost.full
        )
        noise = self.cost.noise()
        if smallest > float(self.limit.min()):
            raise ValueError(
                f"a budget of {float(self.limit.min()):,g} {budget.kind} is too small: the smallest model has "
                f"{smallest:,g}{self._advice(smallest, least)}" + (noise and f". {noise}")
            )
        if noise:
            warnings.warn(f"Sizes under this budget are uncertain. {noise}", stacklevel=4)

    def _advice(self, smallest: float, least: Sequence[int]) -> str:
        """What budgets can be reached, for a message."""
        text = f", with {', '.join(map(str, least))} components" if len(least) < 5 else ""
        text += f". Give a budget of at least {smallest:,g}"
        if not self.growing:
            text += f", or a share of at least '{math.ceil(1e3 * smallest / self.cost.full) / 10:g}%'"
        frozen = sum(p.numel() for p in self.model.parameters() if not p.requires_grad)
        if self.budget.kind == "parameters" and frozen:
            text += f". Frozen parameters count, too; they are {frozen:,}"
        return text

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep the learner's own buffers in float64 when the model is cast: lower precision would lose small steps."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, value in before.items():
            moved = self._buffers[name]
            if value is not None and moved is not None and moved.dtype != value.dtype:
                self._buffers[name] = value.to(moved.device)
        return self

    def _most(self, device: torch.device | None = None, before_cuts: bool = False) -> Tensor:
        """The largest continuous count of each axis, float64 [G]; infinite where components are allocated."""
        now = self.cost.largest if before_cuts else [gate.K for gate in self.gates]
        most = [float("inf") if gate.growing else K for gate, K in zip(self.gates, now, strict=True)]
        return torch.tensor(most, dtype=torch.float64, device=device)

    def _counts(self) -> Tensor:
        """Continuous counts t + 1/2 + delta: float64 [*R, G]."""
        return torch.stack([g.size() + g.smallest_count for g in self.gates], -1)

    def costs(self) -> tuple[Tensor, Tensor]:
        """Cost of the soft model, C(t), float64 [*R], and its slopes dC/dt, [*R, G]."""
        counts = self._counts()
        counts = torch.minimum(counts, self._most(counts.device))
        if self._costs is None or not same(self._costs[0], counts):
            self._costs = counts, self.cost(counts)
        return self._costs[1]

    def set_progress(self, progress: float) -> None:
        """Move the schedules. At the commit, fix the sizes within the budget."""
        committing = [gate.commit is not None and progress >= gate.commit for gate in self.gates]
        if any(committing) and not self.gates[committing.index(True)].committed:
            settled = torch.tensor(self.final_counts()).reshape(self.count().shape)
            for g, gate in enumerate(self.gates):
                gate.settle(settled[..., g])
        super().set_progress(progress)

    @abstractmethod
    def final_counts(self) -> list[tuple[int, ...]]:
        """The counts to fix at the commit, for each model: their cost is at most its limit."""

    def _allowed(self, g: int, before_cuts: bool = False) -> list[int]:
        """The counts that axis ``g`` may end with, or could before components were cut on the way; ascending."""
        low, K, step = self.cost.smallest[g], self.axes[g].K, self.budget.round_to
        most = max(K, self.cost.largest[g])
        K = most if before_cuts else K
        return sorted(({K} if most == K else set()) | {n for n in range(0, K + 1, step) if n >= low})

    def _within(self, sizes: Tensor, before_cuts: bool = False) -> list[tuple[int, ...]]:
        """The largest counts within the limit of each model, in proportion to ``sizes``, [*R, G].

        Without the components that were cut on the way, a cost ``before_cuts`` is an estimate.
        """
        allowed = [self._allowed(g, before_cuts) for g in range(len(self.gates))]
        timed = not before_cuts and self.budget.kind == "milliseconds"
        measured = self.cost.estimate if before_cuts or timed else self.cost.measured
        least, found = tuple(counts[0] for counts in allowed), []
        each = zip(sizes.reshape(-1, len(self.gates)).tolist(), self.limit.reshape(-1).tolist(), strict=True)
        for size, limit in each:
            counts = largest(size, allowed, self.cost.estimate, measured, bound := limit)
            # Time is measured where the formula ends: of many measurements on the way, a lucky one would win.
            while timed and (took := self.cost.measured(counts)) > limit and counts != least:
                bound *= min(STEP, limit / took)
                counts = largest(size, allowed, self.cost.estimate, measured, bound)
            found.append(counts)
        return found

    def deploy(self, replica: int | None = None, **settings: Any) -> nn.Module:  # type: ignore[override]
        """Deploy as :meth:`Learner.deploy <ngn.contract.Learner.deploy>` does.

        Raises:
            ValueError: if the model exceeds the budget. Its sizes are not fixed yet, or were fixed under another,
                or the model has changed since (a new head, say).
        """
        refuse_diverged(self._sizes_of(replica))
        counts, limit = self.count().reshape(-1, len(self.gates))[replica or 0], self.limit.reshape(-1)[replica or 0]
        above = f"{self.budget.kind} are above the budget of {float(limit):,g}"
        cost = self.cost.measured(tuple(counts.tolist()))
        if cost > limit * (1 + min(self.cost.spread, NOISY)):  # times of another process are no closer than that
            reason = (
                f"sizes are fixed at progress {self.gates[0].commit:g}. Train that far, and in a loop of your own call "
                "learner.step(progress) after each optimizer.step()"
            )
            if self.gates[0].committed:
                reason = "these sizes were fixed under another budget"
            raise ValueError(f"{cost:,g} {above}: {reason}")
        small = super().deploy(replica, **settings)
        if self.budget.kind != "milliseconds" and (cost := self.cost.of(small)) > limit:
            raise ValueError(f"{cost:,g} {above}: the model was changed after its sizes were made learnable")
        return small

    def _costs_and_limits(self) -> list[tuple[list[int], float, float]]:
        """Counts, cost at these counts and limit of each model."""
        counts, limits = self.count().reshape(-1, len(self.gates)).tolist(), self.limit.reshape(-1).tolist()
        return [(n, self.cost.measured(tuple(n)), limit) for n, limit in zip(counts, limits, strict=True)]

    def _used(self, cost: float, limit: float) -> str:
        digits = 3 if self.budget.kind == "milliseconds" else 0
        return f"{cost:,.{digits}f} of {limit:,.{digits}f} {self.budget.kind}"

    def _budget_used(self) -> str:
        """The cost and the budget of each model."""
        return ", ".join(self._used(cost, limit) for _, cost, limit in self._costs_and_limits())

    def standing(self) -> str:
        cost, limit = float(self.costs()[0].mean()), float(self.limit.mean())
        return f"{super().standing()}, {cost:,.4g} of {limit:,.4g} {self.budget.kind}"
