"""Learn sizes under a budget: shrink together, part on evidence.

    B(q)   limit at the fraction q of the time before the commit, C_0 the initial cost:
           C_0 (B / C_0)^q if it falls, C_0 + (B - C_0) sqrt(q) if it rises
    n_g    continuous counts: n_g = f e_g exp(a_g), clipped to [low_g, K_g]; e_g: initial counts;
           f: the one factor for which C(n) = B(q)
    z_g    the evidence that g deserves more of the budget, in standard errors: the mean importance of a component
           over about fifty steps, where the slope at the boundary does not contradict it (``ngn/budget/evidence.py``)
    a_g   += SPEED dq sign(z_g) clip(|z_g| - z_min, 0, 1), from 0, or from log(k_g / e_g) where held-out data prefer k
    k_g    counts at the limit if the component of least squared Taylor score per cost goes first (a knapsack)

Boundaries follow the limit together. They part from one another only where an importance differs from the mean by more
than z_min standard errors, at constant total cost and at a bounded rate. Without such evidence every a_g stays 0,
and the result is the even allocation. Held-out data, where given, must confirm it, and decide how few components are
rounded. No price enters a gradient: Adam would divide it by its own size, so that all boundaries would fall alike.

Where units were sorted by Taylor scores, held-out data decide before the first step between k and even sizes, both cut
to the limit by masks. If k is better, the limit is reached HASTE times as fast.

Shrinking first and widening by one factor is MorphNet's way (Gordon et al., arXiv 1711.06798). Differentiable sparsity
allocation (Ning et al., arXiv 2004.02164) exchanges sizes by their gradients at a constant budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ngn.budget import Budget
from ngn.budget.allowance import COARSE, OPEN, WIDTH, Allowance
from ngn.budget.evidence import PARTS, BoundaryEvidence, Confirmation
from ngn.learner import Learner
from ngn.learner.boundaries import refuse_diverged
from ngn.learner.report import SizeReport
from ngn.methods.batch import benefits
from ngn.methods.ngn import CountGate

SPEED, HASTE = 4.0, 4.0
"""Largest change of log n_g, in units of the time before the commit, by evidence alone; see above."""
BLIND = 0.15
"""Fraction of the time before the commit in which no size parts: the first gradients say little about what stays."""
TRIED_FROM, MOVED = 0.85, 0.5
"""Fraction of the time before the commit from which roundings are tried; movement in components until tried again."""
UPDATES = 256
"""Largest number of changes of the sizes before the commit."""
CUTS = 8
"""Parts of the time before the commit at whose ends closed components are cut."""


class BudgetLearner(Learner):
    """Learn sizes under a budget by exchange on evidence; equations in :mod:`ngn.budget.allocation`.

    The optimiser does not decide the sizes, so boundaries need no learning rate and the loss no penalty. Gradients of
    the boundaries are read after each backward pass and cleared. Sizes are fixed at the gates' ``commit``, else at
    :data:`~ngn.budget.BUDGET_COMMIT`, so that no further component fits. The deployed model never exceeds the budget.

    Args:
        model: its axes have :class:`~ngn.methods.ngn.CountGate` capacities.
        budget: the limit.

    Attributes:
        reach: the costs that training can reach; print it before training.
        limit: the limit on the cost, float64 [*R].
        sizes: continuous counts n, float64 [*R, G].
        lead: a, log of the size relative to the even allocation, float64 [*R, G].
        strongest: the z of largest magnitude so far, float64 [*R, G].
        above: the fraction of training in which the model cost more than the budget, float64 [*R].

    Raises:
        ValueError: if the budget is below the smallest model (the message gives its cost). Also for axes without a
            preset K, with other capacities or different commits.
    """

    gates: list[CountGate]  # type: ignore[assignment]
    sizes: Tensor
    start: Tensor
    """e, the counts at progress 0."""
    lead: Tensor
    strongest: Tensor
    above: Tensor
    even: Tensor
    """The counts of the even allocation within the budget, from the commit or a start at k on, else 0: [*R, G]."""
    tried: Tensor
    tried_at: Tensor
    """Counts of few components that were tried on held-out data, else -1; the sizes then, else 0: float64 [*R, G]."""
    moved: Tensor
    """Progress at the last change of the sizes."""
    progress: Tensor

    def __init__(self, model: nn.Module, budget: Budget) -> None:
        super().__init__(model)
        self.budget, self.allowance = budget, (allowed := Allowance(self, budget))
        self.cost, self.reach, self.limit = allowed.cost, allowed.reach, allowed.limit
        self._costs: tuple[Tensor, tuple[Tensor, Tensor]] | None = None
        counts = self._given()
        none, never = torch.zeros_like(counts), torch.zeros((), dtype=torch.float64)
        made = {"sizes": counts, "start": counts, "tried": none - 1.0, "above": torch.zeros_like(self.limit)}
        made |= {"lead": none, "strongest": none, "even": none, "tried_at": none, "moved": never, "progress": never}
        for name, value in made.items():
            self.register_buffer(name, value.clone().to(self.gates[0].tau.device))
        self.evidence = BoundaryEvidence(counts.shape).to(self.gates[0].tau.device)
        self.confirmation = Confirmation(self.replicas).to(self.gates[0].tau.device)
        self.watch.by_optimizer = False
        self._cutting = self._held_out = False
        self._cost_slopes = torch.ones_like(counts)

    def _given(self) -> Tensor:
        """The counts at which the gates stand: float64 [*R, G]."""
        counts = torch.stack([g.size() + g.smallest_count for g in self.gates], -1)
        return torch.minimum(counts, self.allowance.most(counts.device))

    def costs(self) -> tuple[Tensor, Tensor]:
        """Cost of the soft model, C(t), float64 [*R], and its slopes dC/dt, [*R, G]."""
        at = self.sizes.minimum(self.allowance.most(self.sizes.device))
        counts, known = self._given() if self.gates[0].committed else at, self._costs
        if known is None or known[0].device != counts.device or not torch.equal(known[0], counts):
            self._costs = counts, self.cost(counts)
        return self._costs[1]  # type: ignore[index]

    def set_progress(self, progress: float) -> None:
        """Move the limit, and with it the sizes; fix them at the commit."""
        now = progress / (self.gates[0].commit or 1.0)
        if progress < float(self.progress) or progress == 0.0:  # a training begins
            self._begin()
        if bool(self.sizes.isfinite().all()) and now < 1.0 and (now - float(self.moved)) * UPDATES >= 1.0:
            if now >= BLIND and len(self.gates) > 1:
                z = self._evidence()
                self.strongest.copy_(torch.where(z.abs() > self.strongest.abs(), z, self.strongest))
                excess = (z.abs() - self.budget.significance).clamp(0.0, 1.0)
                self.lead += SPEED * (now - float(self.moved)) * z.sign() * excess
            fallen = now * (HASTE if bool(self.even.any()) else 1.0)
            self.sizes.copy_(self.scaled(self.allowance.limit_at(fallen, self.start), now=now))
            self.moved.fill_(now)
        self._cutting = int(CUTS * now) > int(CUTS * (float(self.progress) / (self.gates[0].commit or 1.0)))
        passed = max(0.0, progress - float(self.progress))
        self.progress.fill_(progress)
        if (commit := self.gates[0].commit) is not None and progress >= commit and not self.gates[0].committed:
            settled = torch.tensor(self.final_counts()).reshape(self.sizes.shape)
            for g, gate in enumerate(self.gates):
                gate.settle(settled[..., g])
        super().set_progress(progress)
        if not self.gates[0].committed:
            cost, slopes = self.costs()
            self._cost_slopes = slopes.clamp(min=1e-9 * self.cost.full)
            self.above += passed * (cost > self.limit.to(self.above.device))
            self.allowance.place(self.sizes, float(self.moved))

    def _begin(self) -> None:
        self.sizes.copy_(self._given())
        self.start.copy_(self.sizes)
        self.tried.fill_(-1.0)
        begun = (self.lead, self.strongest, self.above, self.moved, self.tried_at, self.even)
        for value in (*begun, *self.evidence.buffers(), *self.confirmation.buffers()):
            value.zero_()

    def _evidence(self) -> Tensor:
        """z, float64 [*R, G]: 0 where held-out data are given and confirm nothing."""
        judged = self._held_out or bool(self.confirmation.seen.any())
        z = self.evidence.standard_errors(held_out=judged)
        return torch.where(self.confirmation.confirms(self.budget.significance).unsqueeze(-1), z, 0.0) if judged else z

    def scaled(self, limit: Tensor, even: bool = False, now: float = 1.0) -> Tensor:
        """The counts f e_g exp(a_g) with cost ``limit``, [*R]: float64 [*R, G]; if ``even``, a = 0, as before cuts."""
        most = self.allowance.most(self.sizes.device, before_cuts=even)
        most = most.minimum(most.new_tensor([gate.ceiling(now * (gate.commit or 1.0)) for gate in self.gates]))
        return self.allowance.at_cost(limit, self.start, None if even else self.lead, most)

    def wanted_components(self) -> list[int] | None:
        """As in :class:`~ngn.learner.Learner`; on the way, the components whose gates are not closed."""
        if self.gates[0].committed or not self._cutting:
            return super().wanted_components()
        sizes = torch.maximum(self.sizes, self.scaled(self.limit.to(self.sizes.device)))  # growth has them before it
        step, reach = self.budget.round_to, sizes + OPEN * (WIDTH * sizes).clamp(min=1.0)
        most = (reach.reshape(-1, len(self.gates)).amax(0) / step).ceil().int().tolist()
        each = zip(self.axes, self.cost.size_of.tolist(), strict=True)
        return [min(axis.K, most[size] * step) for axis, size in each]

    def held_out_batch(self, step: int) -> int | None:
        self._held_out, progress, commit = True, float(self.progress), self.gates[0].commit or 1.0
        if self.allowance.scores(progress) is not None:
            return 0
        if self.gates[0].committed or progress < BLIND * commit:
            return None
        z, test = self.evidence.standard_errors(held_out=True).abs(), self.confirmation
        asked = test.asks(step, round(step * commit / progress), float(z.max()) / self.budget.significance)
        return int(test.seen.sum()) if asked or (asked is not None and self._untried() is not None) else None

    def _untried(self) -> Tensor | None:
        """The sizes at the limit, late on the way, if some of few components are yet to be tried there; else None."""
        now = float(self.progress) / (self.gates[0].commit or 1.0)
        if now < TRIED_FROM or len(self.gates) == 1:
            return None
        sizes = self.scaled(self.limit.to(self.sizes.device))
        far = ((sizes - self.tried).abs() >= 1.0) & ((sizes - self.tried_at).abs() >= MOVED)
        return sizes if bool(((self.tried >= 0.0) & far).any()) or not bool(self.tried_at.any()) else None

    def judge(self, loss: Callable[[int], Tensor], number: int) -> None:
        """Learn from held-out data whether training and capacity help (:mod:`ngn.budget.evidence`), and how to round.

        Call it with the model in eval mode; the weights' gradients stay. A batch has the same number again modulo 16.
        """
        if self.gates[0].committed:
            return
        if (scores := self.allowance.scores(float(self.progress))) is not None:
            even = self.allowance.within(self.scaled(self.limit.to(self.sizes.device), even=True))[0]
            if (counts := self.allowance.preferred(scores, even, loss)) is not None:
                self.tried_at.copy_(n := self.sizes.new_tensor(counts))
                self.tried.copy_(torch.where(n < COARSE, n, -1.0))
                self.even.copy_(n.new_tensor(even))
                self.lead.copy_((n.clamp(min=0.5) / self.start.clamp(min=0.5)).log())
            return self.allowance.place(self.sizes, float(self.moved))
        with torch.set_grad_enabled(again := bool(self.confirmation.seen[number % PARTS])):  # the first time, no gain
            value = loss(number)
        self.confirmation.add(number, value, self.allowance.gain(self.sizes, value) if again else None)
        if (sizes := self._untried()) is not None:
            self._try_roundings(sizes, loss)

    @torch.no_grad()
    def _try_roundings(self, sizes: Tensor, loss: Callable[[int], Tensor]) -> None:
        """Measure how sizes of few components are best rounded: the slope at a boundary does not know a whole head.

        None is tried where held-out data, given for long enough, confirm nothing.
        """
        confirmed = self.confirmation.confirms(self.budget.significance) | ~(self.confirmation.seen > 1).all()
        sizes = self.allowance.leaning(self.tried_at.copy_(sizes), self._evidence()).reshape(-1, len(self.gates))
        few = (sizes < COARSE) & confirmed.reshape(-1, 1)
        self.tried.fill_(-1.0)
        if bool(few.any()):
            best = self.allowance.best_roundings(sizes, few, loss)
            self.tried.copy_(torch.where(few, best, -1.0).reshape(self.tried.shape))
            self.allowance.place(self.sizes, float(self.moved))

    def after_backward(self, step: int) -> None:
        """Read and clear the slopes of the task loss in the boundaries: the optimiser does not move boundaries."""
        gradients = [gate.tau.grad for gate in self.gates]
        if self.gates[0].committed or all(gradient is None for gradient in gradients):
            return
        if float(self.progress) > 0.0:
            self.watch.gradients_read = True
            slopes = benefits(self.gates, gradients)
            finite = slopes.isfinite().all(-1).double()  # a loss scale for float16 may have been too large
            beta = torch.stack([gate.beta for gate in self.gates], -1).to(slopes).expand_as(slopes)
            self.evidence.add(slopes.nan_to_num(0.0, 0.0, 0.0), beta, self._cost_slopes, self.sizes, finite)
        for gate in self.gates:
            gate.tau.grad = None

    def final_counts(self) -> list[tuple[int, ...]]:
        """The counts to fix at the commit, for each model: their cost is at most its limit."""
        sizes = self.scaled(limit := self.limit.to(self.sizes.device))
        wanted = self.allowance.leaning(sizes, self._evidence()) if len(self.gates) > 1 else sizes
        wanted = torch.where(self.tried < 0.0, wanted, self.tried.clamp(min=0.5))
        counts = even = self.allowance.within(wanted)
        if bool(((self.lead != 0.0) | (wanted != sizes)).any()):
            even = self.allowance.within(self.scaled(limit, even=True), before_cuts=True)
        self.even.copy_(torch.tensor(even).reshape(self.even.shape))
        return counts

    def _groups(self) -> list[SizeReport]:
        groups = super()._groups()
        if not groups or not self.gates[0].committed:
            return groups
        even, z = (each[self.cost.size_of].tolist() for each in (self.even.int(), self.strongest))
        return [replace(group, even=n, evidence=value) for group, n, value in zip(groups, even, z, strict=True)]

    def deploy(self, replica: int | None = None, **settings: Any) -> nn.Module:  # type: ignore[override]
        """Deploy as :meth:`Learner.deploy <ngn.learner.Learner.deploy>`; a ValueError if the budget is exceeded."""
        refuse_diverged(self._sizes_of(replica))
        self.allowance.refuse_more(replica or 0)
        small = super().deploy(replica, **settings)
        self.allowance.refuse_changed(small, replica or 0)
        return small

    def standing(self) -> str:
        cost, limit = float(self.costs()[0].mean()), float(self.limit.mean())
        return f"{super().standing()}, {cost:,.4g} of {limit:,.4g} {self.budget.kind}"

    def _budget_used(self) -> str:
        return self.allowance.used(self.above.reshape(-1).tolist())
