"""A front: one training for all sizes of a model, each of which can be cut afterwards.

Every step trains one member: the model with a prefix of its ordered components. All members lie on one path through the
sizes (:mod:`ngn.front.path`), so small ones are parts of large ones. A block of as many steps as there are members
trains each of them once, in an order drawn from the seed and the number of the block.

Universally slimmable networks (Yu and Huang, arXiv 1903.05134) and MatFormer (Devvrit et al., arXiv 2310.07707) do this
for networks that are written for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ngn.budget import Front
from ngn.budget.allowance import Allowance
from ngn.budget.evidence import PARTS, prefers
from ngn.budget.rounding import REMOVALS, NestedCounts, order_by_scores, points, thinned
from ngn.checks import evaluating
from ngn.front.path import FINE, Members, Statistics, even_order, measure_again, member_with, place_of
from ngn.front.slices import Slices
from ngn.learner import Learner
from ngn.learner.importance import slopes_of
from ngn.losses import as_loss
from ngn.methods.fixed import Opened
from ngn.streams import generator

POINTS = 64
"""Points of a path, at least."""
GATHERED = 16
"""Steps of the whole model that give scores before held-out data are asked: the first ones, if there are such data."""
ASKED = (0.0, 0.1, 0.25, 0.5)
"""Progress at which they are asked whether sizes by scores are better, until they say so."""
FLOOR = 0.5
"""Part of the smallest member's even counts that stays in networks with running statistics: batch norm rescales what a
thin layer has lost, so that scores say too little of its last components."""
UNUSED = 0.01
"""Part of the whole cost by which a member can be below its limit before its counts are rounded as those of a budget:
one head can cost as much as many units."""
TESTED = 2
"""Members that are compared."""


class FrontLearner(Learner):
    """Train every size of a model at once; see :class:`~ngn.budget.Front`.

    Train as any learner; in a loop of your own, call :meth:`step` after each ``optimizer.step()``. In ``train()`` mode
    the model is the member that the step draws, and in ``eval()`` mode the whole model, unless :meth:`member` opens
    another. Members are slices of the full tensors for the time of a pass of the model (:mod:`ngn.front.slices`).

    Args:
        model: its axes have :class:`~ngn.methods.fixed.Opened` capacities.
        budget: the front.

    Attributes:
        cost: the cost of the model at any counts.
        path, costs: the counts of the P points, int64 [P, G], smallest first, and what they cost, float64 [P].
        places: the points that are members, [M].

    Raises:
        ValueError: if the smallest member is below the smallest model (the message gives its cost), or the cost cannot
            be measured.
    """

    gates: list[Opened]  # type: ignore[assignment]
    path: Tensor
    costs: Tensor
    worth: Tensor
    """Running means of the squares of dL/dc, of all components of all sizes: float64 [sum of K]."""
    seen: Tensor
    """Steps of the whole model that these have seen."""
    asked: Tensor
    """Times that held-out data were asked; beyond the last one, they have chosen the path by scores."""

    def __init__(self, model: nn.Module, budget: Front) -> None:
        super().__init__(model)
        if not all(isinstance(gate, Opened) for gate in self.gates):
            raise ValueError("a front opens and closes components itself: leave capacity= out")
        self.budget = budget
        allowance = self.allowance = Allowance(self, budget)
        self.cost, self.reach = allowance.cost, allowance.reach
        every = -(-(POINTS - 1) // (budget.members - 1))
        self.places = [every * number for number in range(budget.members)]
        self.allowed = [allowance.allowed(g) for g in range(len(self.gates))]
        fine = thinned(self.allowed, FINE)
        most = self.cost.measured(tuple(counts[-1] for counts in fine))
        first, last = min(float(allowance.limit), most), self.places[-1]
        self.limits = [first + (most - first) * n / last for n in range(last)] + [most]
        rows, costs = points(even_order(fine, self.cost.largest), fine, self.cost, self.limits)
        wasteful = [place for place in self.places[-2::-1] if self.limits[place] - costs[place] > UNUSED * most]
        if wasteful:
            through = [partial(allowance.even, self.limits[place]) for place in wasteful]
            rows, costs = points(even_order(fine, self.cost.largest, through), fine, self.cost, self.limits)
        self.register_buffer("path", torch.tensor(rows))
        self.register_buffer("costs", torch.tensor(costs, dtype=torch.float64))
        for name, shape in {"worth": (sum(self.cost.largest),), "seen": (), "asked": ()}.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))
        self._held, self._progress = False, 0.0
        self._known: tuple[Any, tuple[list[NestedCounts], list[float], int, int]] | None = None
        self.statistics = Statistics(model, budget.members - 1)
        self.slices = Slices(model, self.axes, self.statistics)
        self.watch.by_optimizer = False
        self.slices.choose(*self._chosen(self.places[-1]))

    def __getstate__(self) -> dict[str, Any]:
        self.slices.close()
        return super().__getstate__()

    def points(self) -> tuple[list[NestedCounts], list[float]]:
        """The counts and the costs of all points, on the host."""
        return self._on_host()[:2]

    def _on_host(self) -> tuple[list[NestedCounts], list[float], int, int]:
        """Counts and costs of all points, steps seen and times asked, copied from the device when they change."""
        state = (self.path, self.costs, self.seen, self.asked)
        at = [(id(value), value._version) for value in state]
        if self._known is None or self._known[0] != at:
            self._known = at, ([*map(tuple, self.path.tolist())], self.costs.tolist(), int(state[2]), int(state[3]))
        return self._known[1]

    def _chosen(self, point: int) -> tuple[tuple[int, ...], int | None]:
        """The components of each axis at a point, and whose running statistics it has: the next larger member's."""
        rows = self.points()[0]
        member = member_with(point, rows, self.places)
        return self._by_axis(rows[point]), None if member == len(self.places) - 1 else member

    def _by_axis(self, counts: NestedCounts) -> tuple[int, ...]:
        return tuple(counts[size] for size in self.cost.size_of.tolist())

    def drawn(self, step: int) -> int:
        """The number of the member that a step trains; in step 0 the largest, as before the first :meth:`step`."""
        members = len(self.places)
        block = [*range(members), *[0, members - 1] * self.budget.ends]
        number, at = divmod(step - 1, len(block))
        order = torch.randperm(len(block), generator=generator(self.budget.seed, "front", number))
        return block[int(order[at])] if step else members - 1

    def set_progress(self, progress: float) -> None:
        super().set_progress(progress)
        self._progress = progress

    def before_step(self, step: int | None) -> None:
        super().before_step(step)
        seen, asked = self._on_host()[2:]
        gathering = asked == 0 < seen < GATHERED
        self.slices.choose(*self._chosen(self.places[-1 if step is None or gathering else self.drawn(step)]))

    def held_out_batch(self, step: int) -> int | None:
        seen, asked = self._on_host()[2:]
        self._held = asked < len(ASKED) and self.budget.significance < math.inf
        return 0 if self._held and seen >= GATHERED and self._progress >= ASKED[asked] else None

    def after_backward(self, step: int) -> None:
        """Gather the scores of components from the gradients of the whole model, where held-out data will ask."""
        held, self._held = self._held, False  # once a step
        whole, _ = self._chosen(self.places[-1])
        slopes = [slopes_of(axis) for axis in self.axes] if held and self.slices.counts == whole else [None]
        if any(each is None for each in slopes):
            return
        sizes = [torch.zeros(K, dtype=torch.float64, device=self.worth.device) for K in self.cost.largest]
        for size, each in zip(self.cost.size_of.tolist(), slopes, strict=True):
            sizes[size] += each.to(self.worth.device)  # type: ignore[union-attr]
        if bool((new := torch.cat(sizes).square()).isfinite().all()):
            self.seen += 1
            self.worth.lerp_(new, 1.0 / min(GATHERED, float(self.seen)))

    def judge(self, loss: Callable[[int], Tensor], number: int) -> None:
        """Take the path by scores if held-out data prefer its members (:func:`~ngn.budget.evidence.prefers`)."""
        late = sum(self._progress >= progress for progress in ASKED)
        least = [FLOOR * n if self.statistics.names else 0.0 for n in self.points()[0][0]]
        kept = [[n for n in counts if n >= low] for counts, low in zip(self.allowed, least, strict=True)]
        coarse = thinned(kept, REMOVALS)
        order = order_by_scores(coarse, self.worth.cpu().split([*self.cost.largest]), self.cost)
        rows, costs = points(order, coarse, self.cost, self.limits)
        models, tested = [*self.points()[0], *rows], self.places[: -1 : -(-(len(self.places) - 1) // TESTED)]

        def loss_at(model: int, part: int) -> Tensor:
            with self.slices.opened(self._by_axis(models[model])):
                return loss(part)

        scored = [place + len(rows) for place in tested]
        better = prefers(self.model, tested, scored, len(rows) - 1, loss_at, self.budget.significance)
        self.asked.fill_(len(ASKED) if better else max(late, int(self.asked) + 1))
        if better:
            self.path.copy_(torch.tensor(rows))
            self.costs.copy_(torch.tensor(costs, dtype=torch.float64))

    def allocate(self, calibration: Iterable[Any], held_out: Iterable[Any], loss: Callable[..., Any] | None) -> bool:
        """Before the training of a trained network, let data choose the path; for loops without held-out data.

        Args:
            calibration: batches of training data, which score the components; the first 16 are read.
            held_out: other batches, which decide; likewise.
            loss: how to use a batch, as for ``ngn.fit``.

        Returns:
            Whether members follow the scores. If not, they stay even.
        """
        parts = [*islice(held_out, PARTS)]
        of_batch = as_loss(loss, self.model, lambda: parts[0])
        with evaluating(self.model), self.slices.opened(*self._chosen(self.places[-1])):
            for batch in islice(calibration, GATHERED):
                self.zero_grad()
                of_batch(self.model, batch).backward()
                self._held = True
                self.after_backward(0)
            self.zero_grad()
            self.judge(lambda part: of_batch(self.model, parts[part % len(parts)]), 0)
        return self._on_host()[3] == len(ASKED)

    @contextmanager
    def member(self, budget: str | float = "100%") -> Iterator[None]:
        """Let the model be the largest member within ``budget`` in the context, in ``eval()`` mode, too.

        It is a ValueError if no member has such a cost.
        """
        point = place_of(budget, self.points()[1], self.budget.kind)
        with self.slices.opened(*self._chosen(point)):
            yield

    def front(self, score: Callable[[nn.Module], Any] | None = None) -> Members:
        """The members that training draws from: what each costs, its ``score``, and its sizes.

        Args:
            score: a function of the model, such as its loss on held-out data. It is called in eval mode for each
                member, without cutting.

        Returns:
            A table: print it, read its ``rows``, or ``save("front.svg")`` a picture.
        """
        counts, costs = self.points()
        of, rows = self.cost.size_of.tolist(), []
        sizes = [self.names[of.index(g)] for g in range(len(self.gates))]
        with evaluating(self.model), torch.no_grad():
            for place in self.places:
                with self.slices.opened(*self._chosen(place)):
                    scored = {} if score is None else {"score": score(self.model)}
                cost: dict[str, Any] = {self.budget.kind: costs[place], "share": costs[place] / costs[-1]}
                rows.append(cost | scored | {"sizes": dict(zip(sizes, counts[place], strict=True))})
        return Members(self.budget.kind, rows)

    def deploy(self, budget: str | float | None = None, calibration: Any = None, **settings: Any) -> nn.Module:  # type: ignore[override]
        """Return the largest model of the front within ``budget``, a plain module.

        Args:
            budget: a cost, or a share of the whole model such as "40%"; None for the whole model.
            calibration: batches of inputs, from which running statistics of normalisations are measured anew; the
                first 20 are read. Of a batch that is a list, as a ``DataLoader`` makes of pairs, the first entry is
                the input. None: those of the next larger member that was trained.
            settings: ``example``, ``share_frozen``, ``unsettled``, ``verbose``; see :meth:`Learner.deploy`.

        Raises:
            TypeError, ValueError: as :meth:`Learner.deploy`, and if no member has such a cost.
        """
        point = place_of("100%" if budget is None else budget, self.points()[1], self.budget.kind)
        with self.slices.opened(*self._chosen(point)), self.slices.with_statistics():
            small = super().deploy(**settings)
        return small if calibration is None else measure_again(small, calibration)

    def whole(self) -> nn.Module:
        """A plain copy of the model with all components, also with those that no member has; see :meth:`cut`."""
        with self.slices.opened([axis.K for axis in self.axes]):
            return self.cut(share_frozen=True)

    def _budget_used(self) -> str:
        return f"{self.standing()}; learner.front(score) shows each"

    def standing(self) -> str:
        costs = self.points()[1]
        return f"{len(self.places)} members from {costs[0] / costs[-1]:.0%} of {costs[-1]:,.4g} {self.budget.kind}"
