"""A front: one training for all sizes of a model, each of which can be cut afterwards.

Every step trains one member: the model with a prefix of its ordered components. All members lie on one path
(:mod:`ngn.path`), so small ones are parts of large ones. A block of as many steps as there are members trains each of
them once, in an order drawn from the seed and the number of the block.

Universally slimmable networks (Yu and Huang, arXiv 1903.05134) and MatFormer (Devvrit et al., arXiv 2310.07707) do this
for networks that are written for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ngn.allowance import Allowance
from ngn.budget import Limits
from ngn.checks import evaluating
from ngn.learner import Averages, Learner, Optimizers
from ngn.methods.fixed import Opened
from ngn.path import FINE, Counted, Members, cost_of, even_order, place_of, points, thinned
from ngn.running import Statistics, measure_again
from ngn.slices import Slices
from ngn.streams import generator

POINTS = 64
"""Points of a path, at least."""


@dataclass(frozen=True)
class Front(Limits):
    """Train all sizes of a model at once: give the cost of the smallest one in place of a budget.

    Attributes:
        parameters, macs, milliseconds: the cost of the smallest member; one of them, as for :class:`~ngn.Budget`. The
            largest member is the whole model.
        example, round_to: see :class:`~ngn.Budget`.
        significance: standard errors by which held-out data must prefer sizes by scores to even ones;
            ``math.inf`` keeps them even.
        members: how many sizes training draws from, with evenly spaced costs. Sizes between them can be cut, too.
        ends: how often more than the others the smallest and the largest are drawn; 1 is twice as often.
        seed: of the order in which members are drawn.

    Raises:
        ValueError: if there is not exactly one cost, or a number is out of range.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    >>> x = torch.randn(64, 2)
    >>> learner = ngn.learn_sizes(model, example=x, budget=ngn.Front(parameters="25%", members=4))
    >>> plan = ngn.TrainPlan(steps=40)
    >>> _ = ngn.fit(learner, x, x.prod(1, keepdim=True), torch.nn.functional.mse_loss, plan, progress="never")
    >>> print(learner.front())
    parameters   share   0
            13   20.0%   3
            29   44.6%   7
            45   69.2%  11
            65  100.0%  16
    >>> learner.deploy(budget="50%")[0]
    Linear(in_features=2, out_features=7, bias=True)
    """

    members: int = 8
    ends: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 2 or self.ends < 0:
            raise ValueError(f"a front needs 2 members or more, and ends of 0 or more, not {self.members}, {self.ends}")


class FrontLearner(Learner):
    """Train every size of a model at once; see :class:`Front`.

    Train as any learner; in a loop of your own, call :meth:`step` after each ``optimizer.step()``. In ``train()`` mode
    the model is the member that the step draws, and in ``eval()`` mode the whole model, unless :meth:`member` opens
    another. Members are slices of the full tensors for the time of a pass of the model (:mod:`ngn.slices`).

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
        order = even_order(fine, self.cost.largest)
        largest = cost_of(tuple(counts[-1] for counts in fine), self.cost)
        smallest = min(float(allowance.limit), largest)
        rows = points(order, fine, self.cost, torch.linspace(smallest, largest, self.places[-1] + 1).tolist())
        self.register_buffer("path", torch.tensor(rows))
        self.register_buffer("costs", torch.tensor([cost_of(row, self.cost) for row in rows], dtype=torch.float64))
        self._known: tuple[Any, list[Counted], list[float]] | None = None
        self.statistics = Statistics(model, budget.members - 1)
        self.slices = Slices(model, self.axes, self.statistics)
        self.watch.by_optimizer = False
        self._open(self.places[-1])

    def __getstate__(self) -> dict[str, Any]:
        self.slices.close()
        return super().__getstate__()

    def points(self) -> tuple[list[Counted], list[float]]:
        """The counts and the costs of all points, on the host."""
        at = [(id(value), value._version) for value in (self.path, self.costs)]
        if self._known is None or self._known[0] != at:
            self._known = at, [tuple(row) for row in self.path.tolist()], self.costs.tolist()
        return self._known[1:]

    def _open(self, point: int, forced: bool = False) -> None:
        """Let passes compute point number ``point``, with the running statistics of the next larger member."""
        row = self.points()[0][point]
        member = next(number for number, place in enumerate(self.places) if place >= point)
        own = None if member == len(self.places) - 1 else member
        self.slices.choose([row[size] for size in self.cost.size_of.tolist()], own, forced)

    def drawn(self, step: int) -> int:
        """The number of the member that a step trains; in step 0 the largest, as before the first :meth:`step`."""
        members = len(self.places)
        block = [*range(members), *[0, members - 1] * self.budget.ends]
        number, at = divmod(step - 1, len(block))
        order = torch.randperm(len(block), generator=generator(self.budget.seed, "front", number))
        return block[int(order[at])] if step else members - 1

    def before_step(self, step: int | None) -> None:
        super().before_step(step)
        self._open(self.places[-1 if step is None else self.drawn(step)])

    @contextmanager
    def member(self, budget: str | float = "100%") -> Iterator[None]:
        """Let the model be the largest member within ``budget`` in the context, in ``eval()`` mode, too.

        Raises:
            TypeError, ValueError: if no member has such a cost.
        """
        with self._opened(place_of(budget, self.points()[1], self.budget.kind)):
            yield

    @contextmanager
    def _opened(self, point: int) -> Iterator[None]:
        before = self.slices.counts, self.slices.member, self.slices.forced
        self._open(point, forced=True)
        try:
            yield
        finally:
            self.slices.choose(*before)

    def front(self, score: Callable[[nn.Module], Any] | None = None) -> Members:
        """The members that training draws from: what each costs, its ``score``, and its sizes.

        Args:
            score: a function of the model, such as its loss on held-out data. It is called in eval mode for each
                member, without cutting.

        Returns:
            A table: print it, read its ``rows``, or ``save("front.svg")`` a picture.
        """
        counts, costs = self.points()
        sizes = [self.names[self.cost.size_of.tolist().index(g)] for g in range(len(self.gates))]
        rows = []
        with evaluating(self.model), torch.no_grad():
            for place in self.places:
                with self._opened(place):
                    scored = {} if score is None else {"score": score(self.model)}
                cost: dict[str, Any] = {self.budget.kind: costs[place], "share": costs[place] / costs[-1]}
                rows.append(cost | scored | {"sizes": dict(zip(sizes, counts[place], strict=True))})
        return Members(self.budget.kind, rows)

    def deploy(  # type: ignore[override]
        self,
        budget: str | float | None = None,
        calibration: Any = None,
        example: Any = None,
        share_frozen: bool = False,
        unsettled: Literal["warn", "allow"] = "warn",
        verbose: bool = False,
    ) -> nn.Module:
        """Return the largest model of the front within ``budget``, a plain module.

        Args:
            budget: a cost, or a share of the whole model such as "40%"; None for the whole model.
            calibration: batches of inputs, from which running statistics of normalisations are measured anew; the
                first 20 are read. Of a batch that is a list, as a ``DataLoader`` makes of pairs, the first entry is
                the input. None: those of the next larger member that was trained.
            example, share_frozen, unsettled, verbose: see :meth:`Learner.deploy`.

        Raises:
            TypeError, ValueError: as :meth:`Learner.deploy`, and if no member has such a cost.
        """
        point = place_of("100%" if budget is None else budget, self.points()[1], self.budget.kind)
        with self._opened(point), self.slices.with_statistics():
            small = super().deploy(None, example, share_frozen, unsettled, verbose)
        if calibration is not None:
            measure_again(small, calibration)
        return small

    def whole(self) -> nn.Module:
        """A plain copy of the model with all components, also with those that no member has; see :meth:`cut`."""
        before = self.slices.counts, self.slices.member, self.slices.forced
        self.slices.choose([axis.K for axis in self.axes], None, forced=True)
        try:
            return self.cut(share_frozen=True)
        finally:
            self.slices.choose(*before)

    def check_cuts(self, optimizer: Optimizers, averages: Averages = ()) -> None:
        """Do nothing: a front is cut after its training alone."""

    def penalty(self) -> Tensor:
        """0: a front has no price."""
        return torch.zeros((), dtype=torch.float64, device=self.path.device)

    def standing(self) -> str:
        costs = self.points()[1]
        return f"{len(self.places)} members from {costs[0] / costs[-1]:.0%} of {costs[-1]:,.4g} {self.budget.kind}"
