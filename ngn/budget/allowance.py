"""What a budget allows: the cost of a model, its limit, the counts within it, and where boundaries lie at counts.

A gate spans WIDTH of its count (beta = 2 / max(1, WIDTH n_g)), so that the slope at the boundary is that of several
components. Over the last part of the way gates sharpen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ngn.budget import BUDGET_COMMIT, Limits, Reach
from ngn.budget.cost import NOISY, Cost, refuse_changing
from ngn.budget.evidence import prefers
from ngn.budget.rounding import REMOVALS, Allowed, NestedCounts, largest, order_by_scores, points, thinned
from ngn.checks import summed
from ngn.learner.sized import SizedModel
from ngn.methods.batch import benefits, place
from ngn.methods.ngn import NOMINAL_ZERO, CountGate

TRIALS = 8
"""Largest number of sizes, and number of held-out parts, for trials of roundings."""
STEP = 0.98
"""Factor by which the limit of the formula falls at least, where the model is slower than the formula says."""
TIMINGS, NEAR = 6, 0.97
"""How many counts are timed to find some within the limit and near to it; the fraction of it that is near enough."""
WIDTH = 0.1
"""Fraction of a count that its gate spans."""
SHARPEN = 0.7
"""Fraction of the time before the commit from which gates sharpen, down to NARROWEST components."""
NARROWEST = 0.1
OPEN = 4.0
"""Widths of a gate by which the boundary of a full size lies beyond its last component, so that all gates are open."""
NEARLY_FULL = 0.95
"""Fraction of K above which a boundary moves beyond the last component."""
BEGINNING = 6
"""Parts of the held-out data by which sizes by scores and even ones are compared."""
COARSE = 2.5
"""Components below which rounding, and not evidence, would decide most of a size: it changes it by over a fifth."""


class Allowance:
    """The counts that ``budget`` allows the sizes of ``sized``; the gates of a :class:`Budget` get one commit.

    ``limit`` is that on the ``cost`` of each model, float64 [*R], and ``reach`` what training can reach. It is a
    ValueError if the budget cannot be kept to (:class:`~ngn.budget.allocation.BudgetLearner`).
    """

    def __init__(self, sized: SizedModel, budget: Limits) -> None:
        self.sized, self.budget = sized, budget
        self.gates: list[CountGate] = sized.gates  # type: ignore[assignment]
        if not (budget.several or all(gate.has_boundary for gate in self.gates)):
            raise ValueError(
                "a budget needs boundaries that move: give every axis an ngn.CountGate, or leave capacity= out"
            )
        if not budget.several:
            sized.commit_at(BUDGET_COMMIT)
        commits = sorted({gate.commit or 1.0 for gate in self.gates})
        if len(commits) > 1:
            raise ValueError(
                f"a budget fixes all sizes together: give all gates one commit, not {' and '.join(map(str, commits))}"
            )
        if any(gate.growing for gate in self.gates):
            raise ValueError("without a preset K there is no largest model to begin with: give every gate its K")
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
        self.reach = Reach(budget.kind, smallest, self.limit.reshape(-1).tolist(), self.cost.full)
        noise = self.cost.noise()
        if smallest > float(self.limit.min()):
            raise ValueError(
                f"a budget of {float(self.limit.min()):,g} {budget.kind} is too small: the smallest model has "
                f"{smallest:,g}{self._advice(smallest, least)}" + (noise and f". {noise}")
            )
        if noise:
            warnings.warn(f"Sizes under this budget are uncertain. {noise}", stacklevel=4)

    def most(self, device: torch.device, before_cuts: bool = False) -> Tensor:
        """The largest continuous count of each axis, float64 [G]."""
        now = self.cost.largest if before_cuts else [gate.K for gate in self.gates]
        return torch.tensor(now, dtype=torch.float64, device=device)

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
        measured = self.cost.estimate if before_cuts else self.cost.measured
        each = zip(sizes.reshape(-1, len(self.gates)).tolist(), self.limit.reshape(-1).tolist(), strict=True)
        if timed:
            return [self._within_time(size, allowed, limit) for size, limit in each]
        return [largest(size, allowed, self.cost.estimate, measured, limit) for size, limit in each]

    def even(self, limit: float, allowed: Allowed) -> NestedCounts:
        """The largest of ``allowed`` counts within another limit, in proportion to K; of time, by the formula."""
        whole = torch.tensor(self.cost.largest, dtype=torch.float64)
        sizes = self.at_cost(torch.tensor(limit, dtype=torch.float64), whole, None, whole).tolist()
        exact = self.cost.estimate if self.budget.kind == "milliseconds" else self.cost.measured
        return largest(sizes, allowed, self.cost.estimate, exact, limit)

    def _within_time(self, sizes: Sequence[float], allowed: Sequence[Sequence[int]], limit: float) -> tuple[int, ...]:
        """The slowest counts within a limit on the time, of those that the formula gives for limits around it.

        Time is measured where the formula ends: of many measurements on the way, a lucky one would win.
        """
        least = best = tuple(counts[0] for counts in allowed)
        bound, inside, outside, longest, tried = limit, 0.0, math.inf, 0.0, 0
        while True:
            counts = largest(sizes, allowed, self.cost.estimate, self.cost.estimate, bound)
            took, tried = self.cost.measured(counts), tried + 1
            if longest < took <= limit:
                best, longest = counts, took
            if NEAR * limit <= took <= limit or counts == least or (longest and tried >= TIMINGS):
                return best
            nearer = bound * limit / took
            if took > limit:
                outside, nearer = bound, min(STEP * bound, nearer)
            else:
                inside = bound
            bound = nearer if inside < nearer < outside else math.sqrt(inside * outside)

    def place(self, n: Tensor, fraction: float) -> None:
        """Move the boundaries to counts ``n``, [*R, G], at this ``fraction`` of the time before the commit."""
        sharp = max(0.0, min(1.0, (1.0 - fraction) / (1.0 - SHARPEN)))
        width = ((WIDTH * n).clamp(min=1.0) * sharp).clamp(min=NARROWEST)
        full = (n / self.most(n.device, before_cuts=True) - NEARLY_FULL).clamp(min=0.0) / (1.0 - NEARLY_FULL)
        t = n - n.new_tensor([gate.smallest_count for gate in self.gates]) + OPEN * width * full
        place(self.gates, t.clamp(min=NOMINAL_ZERO), 2.0 / width)

    def place_sharply(self, counts: Tensor) -> None:
        """Open ``counts`` components, [*R, G], as a cut would."""
        t = counts - counts.new_tensor([gate.smallest_count for gate in self.gates])
        place(self.gates, t.clamp(min=NOMINAL_ZERO), torch.full_like(t, 2.0 / NARROWEST))

    def leaning(self, sizes: Tensor, z: Tensor) -> Tensor:
        """Move sizes of few components by up to half of one to where the evidence z points: 1.4 heads become 1 or 2."""
        lean = 0.5 * (z / self.budget.significance).clamp(-1.0, 1.0)
        return torch.where(sizes < COARSE, (sizes + lean).clamp(min=0.5), sizes)

    def best_roundings(self, sizes: Tensor, few: Tensor, loss: Callable[[int], Tensor]) -> Tensor:
        """The counts, [R, G], at which held-out losses are lowest: one of the ``few`` sizes after the other is tried.

        Each is tried at its other neighbour, while the rest follow the limit. It stays there if the loss falls by more
        than ``significance`` standard errors; ``sizes``, [R, G], then change, too. ``loss``: number of a held-out part
        → its loss, [*R]. The boundaries stay where they were tried last.
        """

        def losses(counts: Tensor) -> Tensor:
            """Those of all parts, [TRIALS, R]."""
            self.place_sharply(counts.reshape(*self.limit.shape, -1))
            return summed(torch.stack([loss(part).detach().to(counts).reshape(-1) for part in range(TRIALS)]))

        best = sizes.new_tensor(self.within(sizes))
        lowest = losses(best)
        for g in few.any(0).nonzero().flatten().tolist()[:TRIALS]:
            allowed, other = sizes.new_tensor(self.allowed(g)), sizes.clone()
            apart = (allowed - sizes[:, g, None]).abs().masked_fill(allowed == best[:, g, None], torch.inf)
            other[:, g] = allowed[apart.argmin(-1)].clamp(min=0.5)
            if torch.equal(counts := sizes.new_tensor(self.within(other)), best):
                continue
            fall = lowest - (tried := losses(counts))
            won = few[:, g] & (fall.mean(0) > self.budget.significance * fall.std(0) / TRIALS**0.5)
            sizes[won], best[won], lowest[:, won] = other[won], counts[won], tried[:, won]
        return best

    def scores(self, progress: float) -> list[Tensor] | None:
        """Squared Taylor scores of the components of each size, before the first step; None if one has none."""
        known = [getattr(axis, "worth", None) for axis in self.sized.axes]
        begun = progress > 0.0 or self.sized.replicas is not None or len(self.gates) == 1
        if begun or self.budget.significance == math.inf or any(each is None for each in known):
            return None
        scores = [torch.zeros(K, dtype=torch.float64) for K in self.cost.largest]
        for size, worth in zip(self.cost.size_of.tolist(), known, strict=True):
            scores[size] += worth.cpu()  # type: ignore[union-attr]
        return scores

    @torch.no_grad()
    def preferred(
        self, scores: Sequence[Tensor], even: NestedCounts, loss: Callable[[int], Tensor]
    ) -> NestedCounts | None:
        """The knapsack of ``scores`` at the limit if held-out data prefer it to the ``even`` counts, else None.

        The boundaries stay where they were tried last.
        """
        allowed = thinned([self.allowed(g) for g in range(len(self.gates))], REMOVALS // 4)
        counts = points(order_by_scores(allowed, scores, self.cost), allowed, self.cost, [float(self.limit)])[0][0]
        models = torch.tensor([self.cost.largest, even, counts], dtype=torch.float64, device=self.gates[0].tau.device)

        def loss_at(model: int, part: int) -> Tensor:
            self.place_sharply(models[model])
            return loss(part)

        significance = self.budget.significance
        better = counts != even and prefers(self.sized.model, [1], [2], 0, loss_at, significance, BEGINNING)
        return counts if better else None

    def gain(self, sizes: Tensor, value: Tensor) -> Tensor:
        """-sum_g n_g dL/dn_g, what more of every size would gain on a held-out loss ``value``, [*R]."""
        taus = [gate.tau for gate in self.gates if gate.tau.requires_grad]  # not of removed layers
        slope_of = dict(zip(taus, torch.autograd.grad(value.sum(), taus, allow_unused=True), strict=True))
        return summed((sizes * benefits(self.gates, [slope_of.get(gate.tau) for gate in self.gates])).sum(-1))

    def _advice(self, smallest: float, least: Sequence[int]) -> str:
        """What budgets can be reached, for a message."""
        text = f", with {', '.join(map(str, least))} components" if len(least) < 5 else ""
        text += " (at_least=)" * any(gate.least > gate.smallest_count for gate in self.gates)
        share = math.ceil(1e3 * smallest / self.cost.full) / 10
        text += f". Give a budget of at least {smallest:,g}, or a share of at least '{share:g}%'"
        frozen = sum(p.numel() for p in self.sized.model.parameters() if not p.requires_grad)
        if self.budget.kind == "parameters" and frozen:
            text += f". Frozen parameters count, too; they are {frozen:,}"
        return text

    def limit_at(self, now: float, start: Tensor) -> Tensor:
        """B, float64 [*R], at the fraction ``now`` of the time before the commit, from the counts ``start``."""
        first, limit, now = self.cost(start)[0], self.limit.to(start.device), min(1.0, now)
        return torch.where(limit < first, first * (limit / first) ** now, first + (limit - first) * now**0.5)

    def at_cost(self, limit: Tensor, start: Tensor, lead: Tensor | None, most: Tensor) -> Tensor:
        """The counts f e_g exp(a_g) with cost ``limit``, [*R]: float64 [*R, G]; e are ``start``, a is ``lead`` or 0."""
        device = start.device
        least = torch.tensor([max(0.5, float(n)) for n in self.cost.smallest], dtype=torch.float64, device=device)
        base = start.maximum(least) if lead is None else start.maximum(least) * lead.exp()

        def at(factor: Tensor) -> Tensor:
            return (base * factor.unsqueeze(-1).exp()).clamp(min=least).minimum(most)

        low, high = torch.full_like(limit, -12.0, device=device), torch.full_like(limit, 12.0, device=device)
        grid = torch.linspace(0.0, 1.0, 129, dtype=torch.float64, device=device)
        for _ in range(5):  # each round leaves a part in 128 of the interval
            factors = low + (high - low) * grid.view(-1, *[1] * low.dim())
            within = (self.cost(at(factors))[0] <= limit).sum(0).clamp(1, 128)
            low, high = (factors.gather(0, (within - 1 + i).unsqueeze(0)).squeeze(0) for i in (0, 1))
        return at(low)

    def _kept(self) -> list[float]:
        """The cost of each model at its counts."""
        counts = torch.stack([gate.count() for gate in self.gates], -1)
        return [self.cost.measured(tuple(each)) for each in counts.reshape(-1, len(self.gates)).tolist()]

    def refuse_more(self, replica: int) -> None:
        """Raise a ValueError if the counts of a model are above its limit."""
        cost, limit, gate = self._kept()[replica], float(self.limit.reshape(-1)[replica]), self.gates[0]
        if cost > limit * (1 + min(self.cost.spread, NOISY)):  # times of another process are no closer than that
            reason = (
                f"sizes are fixed at progress {gate.commit:g}. Train that far, and in a loop of your own call "
                "learner.step(progress) after each optimizer.step()"
            )
            reason = "these sizes were fixed under another budget" if gate.committed else reason
            raise ValueError(f"{cost:,g} {self.budget.kind} are above the budget of {limit:,g}: {reason}")

    def refuse_changed(self, small: nn.Module, replica: int) -> None:
        """Raise a ValueError if a deployed model is above its limit; times of one measurement do not count."""
        limit = float(self.limit.reshape(-1)[replica])
        if self.budget.kind != "milliseconds" and (cost := self.cost.of(small)) > limit:
            reason = "the model was changed after its sizes were made learnable"
            raise ValueError(f"{cost:,g} {self.budget.kind} are above the budget of {limit:,g}: {reason}")

    def used(self, above: Sequence[float]) -> str:
        """The cost and the budget of each model; ``above``: the fraction of training in which it cost more."""
        gate, digits = self.gates[0], 3 if self.budget.kind == "milliseconds" else 0
        since = f"{'' if gate.committed else 'to be '}held from {gate.commit or 1.0:.0%} of training on"
        return "; ".join(
            f"{cost:,.{digits}f} of {limit:,.{digits}f} {self.budget.kind} ({cost / limit:.1%}), "
            + (since if over or not gate.committed else "held throughout")
            for cost, limit, over in zip(self._kept(), self.limit.reshape(-1).tolist(), above, strict=True)
        )
