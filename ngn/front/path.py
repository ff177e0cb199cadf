"""A path through the sizes of a model: nested counts, from the smallest member of a front to the whole model.

A path is an order in which components are removed, so each of its points has the components of all smaller ones. Two
orders exist:

    even     one factor f for all sizes, n_g = f K_g: a count falls from a to the next allowed b where f passes
             (a + b) / 2 K_g; of several at once, the last size gives way first
    scores   the component of least score per cost goes next, of those that are last in their size

Points are taken where the cost comes just within evenly spaced limits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from ngn.budget import share
from ngn.budget.cost import Cost
from ngn.budget.evidence import FALL, PARTS
from ngn.tracing.found import aligned

FINE, REMOVALS = 8192, 512
"""Largest numbers of removals on an even path, and on one by scores, where each takes a slope of the cost."""
FEWEST = 4
"""Parts of the held-out data without which nothing is concluded."""
Allowed = Sequence[Sequence[int]]
"""The counts that each size may have, ascending."""
NestedCounts = tuple[int, ...]


def thinned(allowed: Allowed, total: int) -> list[list[int]]:
    """Leave out counts between, so that there are at most ``total`` steps, or one for each size.

    >>> thinned([range(1, 10), [1, 2]], 5)
    [[1, 3, 5, 7, 9], [1, 2]]
    """
    steps = [len(counts) - 1 for counts in allowed]
    fitting = bisect_right(range(1, max(steps) + 1), total, key=lambda most: sum(min(most, s) for s in steps))
    most = max(1, fitting)
    return [
        [counts[round(i * s / min(s, most))] for i in range(min(s, most) + 1)] if s else [*counts]
        for counts, s in zip(allowed, steps, strict=True)
    ]


def even_order(allowed: Allowed, whole: Sequence[int]) -> list[int]:
    """The sizes in the order in which one factor for all takes their components; ``whole``: K of each.

    >>> even_order([[1, 2, 3, 4], [1, 2]], [4, 2])
    [0, 1, 0, 0]
    """
    steps = [
        ((a + b) / (2 * K), g) for g, (n, K) in enumerate(zip(allowed, whole, strict=True)) for a, b in pairwise(n)
    ]
    return [g for _, g in sorted(steps, reverse=True)]


def order_by_scores(allowed: Allowed, scores: Sequence[Tensor], cost: Cost) -> list[int]:
    """The sizes in the order in which the least score per cost goes; ``scores``: those of all components, [K] each."""
    sums = [torch.cat([s.new_zeros(1), s.cumsum(0)]).tolist() for s in scores]
    at = [len(counts) - 1 for counts in allowed]
    order: list[int] = []
    while able := [g for g, i in enumerate(at) if i]:
        now = [counts[i] for counts, i in zip(allowed, at, strict=True)]
        slopes = cost(torch.tensor(now, dtype=torch.float64))[1].clamp(min=1e-9 * cost.full).tolist()

        def worth(g: int, now: Sequence[int] = now, slopes: Sequence[float] = slopes) -> float:
            left = allowed[g][at[g] - 1]
            return (sums[g][now[g]] - sums[g][left]) / (slopes[g] * (now[g] - left))

        order.append(least := min(able, key=worth))
        at[least] -= 1
    return order


def points(
    order: Sequence[int], allowed: Allowed, cost: Cost, limits: Sequence[float]
) -> tuple[list[NestedCounts], list[float]]:
    """The largest counts on the way whose cost is within each of ``limits``, else the smallest, and their costs.

    The formula gives milliseconds, as of many measurements a lucky one would win. It gives all costs if it agrees with
    those that are counted in three places.
    """
    at = [len(counts) - 1 for counts in allowed]
    way = [tuple(counts[-1] for counts in allowed)]
    for g in order:
        at[g] -= 1
        way.append(tuple(counts[i] for counts, i in zip(allowed, at, strict=True)))
    tried = (way[0], way[len(way) // 2], way[-1])
    exact = cost.kind == "milliseconds" or all(cost.estimate(counts) == cost.measured(counts) for counts in tried)
    cost_of = cost.estimate if exact else cost.measured
    found = []
    for limit in limits:
        first = bisect_left(way, -limit, key=lambda counts: -cost.estimate(counts))
        found.append(next((counts for counts in way[first:] if cost_of(counts) <= limit), way[-1]))
    return found, [cost_of(counts) for counts in found]


@torch.no_grad()
def prefers(
    even: Sequence[int],
    scored: Sequence[int],
    whole: int,
    loss_at: Callable[[int, int], Tensor],
    mismatched: Callable[[], AbstractContextManager[None]],
    significance: float,
) -> bool:
    """Whether held-out data prefer members by scores to even ones of the same costs.

    The whole model must know the targets, too: with those of other samples its loss must be larger, by a part of it.
    A trained network under other targets is better, the closer a member is to it or to a constant, which says nothing.

    Args:
        even, scored, whole: numbers of models.
        loss_at: the loss of a model on a part of the held-out data.
        mismatched: a context in which outputs meet the targets of other samples.
        significance: standard errors over the parts by which both must hold.
    """
    found: list[Tensor] = []
    for part in range(PARTS):
        each = [loss_at(model, part) for model in (whole, *even, *scored)]
        with mismatched():
            each.append(loss_at(whole, part))
        new = torch.stack([value.detach().double().mean() for value in each])
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(new)
            new /= distributed.get_world_size()
        if found and torch.equal(new, found[0]):  # the data start again
            break
        found.append(new)
    if len(found) < FEWEST:
        return False
    best, evens, others, mixed = torch.stack(found).split([1, len(even), len(scored), 1], 1)
    knows, gain = (mixed - best)[:, 0], evens.mean(1) - others.mean(1)
    clear = [d.mean() > significance * d.std() / len(found) ** 0.5 for d in (knows, gain)]
    return bool(knows.mean() > FALL * best.mean().abs()) and all(map(bool, clear))


def member_with(point: int, counts: Sequence[Sequence[int]], places: Sequence[int]) -> int:
    """The number of the smallest member, of those at ``places``, that has all components of a point."""
    return next(number for number, place in enumerate(places) if place >= point or counts[place] == counts[point])


def place_of(budget: str | float, costs: Sequence[float], kind: str) -> int:
    """The number of the largest point within a budget.

    Args:
        budget: a cost, or a share of the largest, such as "40%".
        costs: those of all points, ascending.

    Raises:
        TypeError, ValueError: if it is neither, or no point has such a cost.
    """
    if isinstance(budget, bool) or not isinstance(budget, (str, int, float)):
        raise TypeError(f"budget= is a number of {kind}, or a share of the whole model as in '40%', not {budget!r}")
    limit = share(budget, "the whole model") * costs[-1] if isinstance(budget, str) else float(budget)
    if not costs[0] * (1 - 1e-9) <= limit <= costs[-1] * (1 + 1e-9):
        digits = 3 if kind == "milliseconds" else 0
        raise ValueError(
            f"a budget of {limit:,.{digits}f} {kind} is outside of the front: it goes from {costs[0]:,.{digits}f} "
            f"({costs[0] / costs[-1]:.1%}) to {costs[-1]:,.{digits}f}"
        )
    return max(n for n, cost in enumerate(costs) if cost <= limit * (1 + 1e-9) or not n)


@dataclass(frozen=True)
class Members:
    """The members of a front, smallest first; ``print`` shows a table.

    Attributes:
        kind: the name of the cost.
        rows: of each member its cost under the name of ``kind``, its "share" of the whole model's, its "score" if one
            was asked for, and its "sizes" by name.
    """

    kind: str
    rows: list[dict[str, Any]]

    def __str__(self) -> str:
        digits, rows = 3 if self.kind == "milliseconds" else 0, []
        for row in self.rows:
            score = [_short(row["score"])] if "score" in row else []
            rows.append(
                [f"{row[self.kind]:,.{digits}f}", f"{row['share']:.1%}", *score, *map(str, row["sizes"].values())]
            )
        titles = [self.kind, "share", *["score"] * ("score" in self.rows[0]), *self.rows[0]["sizes"]]
        return "\n".join(aligned([titles, *rows]))

    def save(self, path: str | Path) -> None:
        """Draw the scores above the costs; the ending of ``path`` says the format.

        Raises:
            ValueError: without scores, of one number each.
            ImportError: if matplotlib is not installed.
        """
        if "score" not in self.rows[0]:
            raise ValueError("a picture shows scores: call learner.front(score) with a function of a model")
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.plot([row[self.kind] for row in self.rows], [float(row["score"]) for row in self.rows], marker="o")
        axes.set(xlabel=self.kind, ylabel="score")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path)


def _short(score: Any) -> str:
    try:
        return f"{float(score):.4g}"
    except (TypeError, ValueError):
        return str(score)
