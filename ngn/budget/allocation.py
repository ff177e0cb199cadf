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

In few steps there is little evidence, but a trained network is known. So where units were sorted by Taylor scores and
held-out data are given, these decide before the first step between k and even sizes, both cut to the limit by masks.
If k is better, the limit is reached HASTE times as fast.

Shrinking first and widening by one factor is MorphNet's way (Gordon et al., arXiv 1711.06798). Differentiable sparsity
allocation (Ning et al., arXiv 2004.02164) exchanges sizes by their gradients at a constant budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ngn.budget import Budget
from ngn.budget.allowance import Allowance
from ngn.budget.evidence import PARTS, BoundaryEvidence, Confirmation, prefers
from ngn.budget.placing import COARSE, gain_of, leaning, losses_at, place_counts, place_sharply, reach
from ngn.budget.rounding import REMOVALS, order_by_scores, points, thinned
from ngn.learner import Learner
from ngn.learner.report import SizeReport
from ngn.learner.watching import refuse_diverged
from ngn.methods.batch import benefits
from ngn.methods.ngn import CountGate

SPEED = 4.0
"""Largest change of log n_g, in units of the time before the commit, by evidence alone."""
JUDGED, NEAR = 2, 0.7
"""Steps from one held-out batch to the next; fraction of ``significance`` that some |z| must reach before the first."""
IN_TIME = 0.75
"""Part of the steps to the commit within which held-out data must be able to confirm; else they are not asked."""
JUDGINGS = 64
"""Largest number of held-out batches after each part was seen twice, about: in long trainings they come less often."""
BEGINNING = 6
"""Parts of the held-out data by which sizes by scores and even ones are compared."""
HASTE = 4.0
"""How much faster the limit is reached from sizes by scores."""
BLIND = 0.15
"""Fraction of the time before the commit in which no size parts: the first gradients say little about what stays."""
TRIED_FROM, MOVED = 0.85, 0.5
"""Fraction of the time before the commit from which roundings are tried; components by which a size moves before it is
tried again, if its count is no neighbour any more."""
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
        ValueError: if the budget is below the smallest model (the message gives its cost). Also for a share without a
            preset K, and for axes with other capacities or different commits.
    """

    gates: list[CountGate]  # type: ignore[assignment]
    sizes: Tensor
    start: Tensor
    """e, the counts at progress 0."""
    lead: Tensor
    strongest: Tensor
    above: Tensor
    even: Tensor
    """The counts of the even allocation within the budget, float64 [*R, G]: from the commit on, or from the start if
    held-out data preferred sizes by scores; else 0."""
    tried: Tensor
    tried_at: Tensor
    """Counts of few components that were tried on held-out data, else -1; the sizes then, else 0: float64 [*R, G]."""
    moved: Tensor
    """Progress at the last change of the sizes."""
    progress: Tensor

    def __init__(self, model: nn.Module, budget: Budget) -> None:
        super().__init__(model)
        self.budget, self.allowance = budget, (allowed := Allowance(self, budget))
        self.cost, self.reach, self.growing, self.limit = allowed.cost, allowed.reach, allowed.growing, allowed.limit
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
        self._read = self._cutting = self._held_out = False
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
            self._exchange(now - float(self.moved), now)
            falling = now * (HASTE if bool(self.even.any()) else 1.0)
            self.sizes.copy_(self.scaled(self.allowance.limit_at(falling, self.start), now=now))
            self.moved.fill_(now)
        before = float(self.progress) / (self.gates[0].commit or 1.0)
        self._cutting = int(CUTS * now) > int(CUTS * before)
        passed, self._read = max(0.0, progress - float(self.progress)), False
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
            place_counts(self.allowance, self.sizes, float(self.moved))

    def _begin(self) -> None:
        self.sizes.copy_(self._given())
        self.start.copy_(self.sizes)
        self.tried.fill_(-1.0)
        begun = (self.lead, self.strongest, self.above, self.moved, self.tried_at, self.even)
        for value in (*begun, *self.evidence.buffers(), *self.confirmation.buffers()):
            value.zero_()

    def _exchange(self, passed: float, now: float) -> None:
        """Move the leads by the evidence since sizes parted last."""
        if now < BLIND or len(self.gates) == 1:
            return
        z = self._evidence()
        self.strongest.copy_(torch.where(z.abs() > self.strongest.abs(), z, self.strongest))
        excess = (z.abs() - self.budget.significance).clamp(0.0, 1.0)
        self.lead += SPEED * passed * z.sign() * excess

    def _evidence(self) -> Tensor:
        """z, float64 [*R, G]: 0 where held-out data are given and confirm nothing."""
        judged = self._held_out or bool(self.confirmation.given)
        z = self.evidence.standard_errors(held_out=judged)
        return torch.where(self.confirmation.confirms(self.budget.significance).unsqueeze(-1), z, 0.0) if judged else z

    def scaled(self, limit: Tensor, even: bool = False, now: float = 1.0) -> Tensor:
        """The counts f e_g exp(a_g) with cost ``limit``, [*R]: float64 [*R, G]; if ``even``, a = 0, as before cuts."""
        most = self.allowance.most(self.sizes.device, before_cuts=even)
        most = most.minimum(most.new_tensor([gate.ceiling(now * (gate.commit or 1.0)) for gate in self.gates]))
        return self.allowance.at_cost(limit, self.start, None if even else self.lead, most)

    def wanted_components(self) -> list[int] | None:
        """As in :class:`~ngn.learner.Learner`; on the way, the components whose gates are not closed."""
        if self.gates[0].committed or not self._cutting or self.growing:
            return super().wanted_components()
        sizes = torch.maximum(self.sizes, self.scaled(self.limit.to(self.sizes.device)))  # growth has them before it
        step = self.budget.round_to
        most = (reach(sizes).reshape(-1, len(self.gates)).amax(0) / step).ceil().int().tolist()
        each = zip(self.axes, self.cost.size_of.tolist(), strict=True)
        return [min(axis.K, most[size] * step) for axis, size in each]

    def penalty(self) -> Tensor:
        """0, [*R]: the budget takes the place of a price."""
        return torch.zeros_like(self.limit)

    def _scores(self) -> list[Tensor] | None:
        """Squared Taylor scores of the components of each size, before the first step; None if one has none."""
        of, known = self.cost.size_of.tolist(), [getattr(axis, "worth", None) for axis in self.axes]
        begun = float(self.progress) > 0.0 or self.growing or self.replicas is not None or len(self.gates) == 1
        if begun or self.budget.significance == math.inf or any(each is None for each in known):
            return None
        each = [(size, worth.cpu()) for size, worth in zip(of, known, strict=True)]  # type: ignore[union-attr]
        return [sum(worth for size, worth in each if size == g) for g in range(len(self.gates))]

    @torch.no_grad()
    def _start_from(self, scores: list[Tensor], loss: Callable[[int], Tensor]) -> None:
        """Let sizes shrink towards the knapsack of ``scores`` if held-out data prefer it to even sizes."""
        allowed = thinned([self.allowance.allowed(g) for g in range(len(self.gates))], REMOVALS // 4)
        order, limit = order_by_scores(allowed, scores, self.cost), self.limit.to(self.sizes.device)
        counts = points(order, allowed, self.cost, [float(limit)])[0][0]
        even = self.allowance.within(self.scaled(limit, even=True))[0]
        models = self.sizes.new_tensor([self.cost.largest, even, counts])
        before = [(gate.tau.clone(), gate.beta) for gate in self.gates]

        def loss_at(model: int, part: int) -> Tensor:
            place_sharply(self.allowance, models[model])
            return loss(part)

        better = counts != even and prefers(self.model, [1], [2], 0, loss_at, self.budget.significance, BEGINNING)
        for gate, (tau, beta) in zip(self.gates, before, strict=True):
            gate.tau.copy_(tau)
            gate.beta = beta
        if better:
            self.lead.copy_((models[2].clamp(min=0.5) / self.start.clamp(min=0.5)).log())
            self.even.copy_(models[1])
            self.tried_at.copy_(models[2])
            self.tried.copy_(torch.where(models[2] < COARSE, models[2], -1.0))

    def held_out_batch(self, step: int) -> int | None:
        self._held_out = True
        if self._scores() is not None:
            return 0
        progress, commit = float(self.progress), self.gates[0].commit or 1.0
        if self.gates[0].committed or progress < BLIND * commit or progress == 0.0:
            return None
        seen, steps = self.confirmation.seen, round(step * commit / progress)
        every = max(JUDGED, steps // JUDGINGS * int(seen.min() > 1))
        if step % every:
            return None
        enough = every * float((2.0 - seen).clamp(min=0.0).sum()) <= IN_TIME * (steps - step)  # else confirmed too late
        near = self.evidence.standard_errors(held_out=True).abs() >= NEAR * self.budget.significance
        asked = enough and bool(seen.any() or near.any())
        return int(seen.sum()) if asked or self._untried() is not None else None

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

        Call it every few steps before the commit, with the model in eval mode. The weights' gradients stay as they are.

        Args:
            loss: number of a held-out batch → its mean loss, [*R]; a batch has the same number again modulo 16.
            number: that of the batch to judge by.
        """
        if self.gates[0].committed:
            return
        if (scores := self._scores()) is not None:
            self._start_from(scores, loss)
            return
        again = bool(self.confirmation.seen[number % PARTS])  # what capacity would gain is asked from then on
        with torch.set_grad_enabled(again):
            value = loss(number)
        self.confirmation.add(number, value, gain_of(self.gates, self.sizes, value) if again else None)
        if (sizes := self._untried()) is not None:
            self._try_roundings(sizes, loss)

    @torch.no_grad()
    def _try_roundings(self, sizes: Tensor, loss: Callable[[int], Tensor]) -> None:
        """Measure how sizes of few components are best rounded: the slope at a boundary does not know a whole head.

        None is tried where held-out data, given for long enough, confirm nothing.
        """
        confirmed = self.confirmation.confirms(self.budget.significance) | ~(self.confirmation.seen > 1).all()
        sizes = leaning(self.tried_at.copy_(sizes), self._evidence(), self.budget).reshape(-1, len(self.gates))
        few = (sizes < COARSE) & confirmed.reshape(-1, 1)
        shape = self.tried.fill_(-1.0).shape
        if not bool(few.any()):
            return
        losses = partial(losses_at, self.allowance, loss, shape)
        best = self.allowance.best_roundings(sizes, few, losses)
        self.tried.copy_(torch.where(few, best, -1.0).reshape(self.tried.shape))
        place_counts(self.allowance, self.sizes, float(self.moved))

    def after_backward(self, step: int) -> None:
        """Read and clear the slopes of the task loss in the boundaries: the optimiser does not move boundaries."""
        gradients = [gate.tau.grad for gate in self.gates]
        if self._read or self.gates[0].committed or all(gradient is None for gradient in gradients):
            return
        if float(self.progress) > 0.0:
            self._read = self.watch.gradients_read = True
            slopes = benefits(self.gates, gradients)
            finite = slopes.isfinite().all(-1).double()  # a loss scale for float16 may have been too large
            beta = torch.stack([gate.beta for gate in self.gates], -1).to(slopes).expand_as(slopes)
            self.evidence.add(slopes.nan_to_num(0.0, 0.0, 0.0), beta, self._cost_slopes, self.sizes, finite)
        for gate in self.gates:
            gate.tau.grad = None

    def after_step(self, step: int) -> None:
        self.after_backward(step)

    def final_counts(self) -> list[tuple[int, ...]]:
        """The counts to fix at the commit, for each model: their cost is at most its limit."""
        sizes = self.scaled(limit := self.limit.to(self.sizes.device))
        wanted = leaning(sizes, self._evidence(), self.budget) if len(self.gates) > 1 else sizes
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
        """Deploy as :meth:`Learner.deploy <ngn.learner.Learner.deploy>` does.

        Raises:
            ValueError: if the model exceeds the budget. Its sizes are not fixed yet, or were fixed under another,
                or the model has changed since (a new head, say).
        """
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
