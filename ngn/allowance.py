"""What a budget allows: the cost of a model, its limit, and the counts within it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from ngn.budget import Limits, Reach
from ngn.cost import Cost, refuse_changing
from ngn.methods.base import Capacity
from ngn.rounding import largest
from ngn.sized import SizedModel

STEP = 0.98
"""Factor by which the limit of the formula falls at least, where the model is slower than the formula says."""


class Allowance:
    """The counts that ``budget`` allows the sizes of ``sized``.

    Attributes:
        cost, limit: the cost, and the limit on it of each model, float64 [*R].
        reach: the costs that training can reach.
        growing: whether components are allocated as sizes grow.

    Raises:
        ValueError: if the budget cannot be kept to (:class:`~ngn.allocation.BudgetLearner`).
    """

    def __init__(self, sized: SizedModel, budget: Limits) -> None:
        self.sized, self.budget = sized, budget
        self.gates: list[Capacity] = sized.gates
        self.growing = any(gate.growing for gate in self.gates)
        if self.growing and isinstance(getattr(budget, budget.kind), str):
            raise ValueError("without a preset K there is no largest model: give the budget as a number, not a share")
        if budget.kind != "parameters" and budget.example is None:
            raise ValueError(
                f"a budget of {budget.kind} needs an input to measure with: pass example= to learn_sizes or to Budget"
            )
        if budget.kind == "macs":
            refuse_changing(sized.model, sized.axes, budget.example)
        self.cost = Cost(sized.model, sized.axes, budget.kind, budget.example)
        self.limit = budget.limit(self.cost.full, sized.replicas)
        least = tuple(self.allowed(g)[0] for g in range(len(self.gates)))
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

    def most(self, device: torch.device | None = None, before_cuts: bool = False) -> Tensor:
        """The largest continuous count of each axis, float64 [G]; infinite where components are allocated."""
        now = self.cost.largest if before_cuts else [gate.K for gate in self.gates]
        most = [float("inf") if gate.growing else K for gate, K in zip(self.gates, now, strict=True)]
        return torch.tensor(most, dtype=torch.float64, device=device)

    def allowed(self, g: int, before_cuts: bool = False) -> list[int]:
        """The counts that axis ``g`` may end with, or could before components were cut on the way; ascending."""
        low, gate, step = self.cost.smallest[g], self.gates[g], self.budget.round_to
        whole = max(gate.K, self.cost.largest[g])
        K = whole if before_cuts else gate.K
        most = K if gate.most is None else min(K, gate.most)
        counts = ({K} if whole == K else set()) | {*range(0, K + 1, step)}
        if not (allowed := sorted(n for n in counts if low <= n <= most)):
            name = self.sized.names[self.cost.size_of.tolist().index(g)]
            raise ValueError(f"{name}: round_to={step} of the budget leaves no count from {low} to {most}")
        return allowed

    def within(self, sizes: Tensor, before_cuts: bool = False) -> list[tuple[int, ...]]:
        """The largest counts within the limit of each model, in proportion to ``sizes``, [*R, G].

        Without the components that were cut on the way, a cost ``before_cuts`` is an estimate.
        """
        allowed = [self.allowed(g, before_cuts) for g in range(len(self.gates))]
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

    def _advice(self, smallest: float, least: Sequence[int]) -> str:
        """What budgets can be reached, for a message."""
        text = f", with {', '.join(map(str, least))} components" if len(least) < 5 else ""
        text += " (at_least=)" * any(gate.least > gate.smallest_count for gate in self.gates)
        text += f". Give a budget of at least {smallest:,g}"
        if not self.growing:
            text += f", or a share of at least '{math.ceil(1e3 * smallest / self.cost.full) / 10:g}%'"
        frozen = sum(p.numel() for p in self.sized.model.parameters() if not p.requires_grad)
        if self.budget.kind == "parameters" and frozen:
            text += f". Frozen parameters count, too; they are {frozen:,}"
        return text
