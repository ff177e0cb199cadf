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
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ngn.budget import share
from ngn.budget.rounding import Allowed, NestedCounts
from ngn.tracing.found import aligned

FINE = 8192
"""Largest number of removals on an even path."""
Within = Callable[[Allowed], NestedCounts]


def even_order(allowed: Allowed, whole: Sequence[int], through: Sequence[Within] = ()) -> list[int]:
    """The sizes in the order in which one factor for all takes their components; ``whole``: K of each.

    Args:
        through: largest first: allowed counts → those of them that the path leads through.

    >>> even_order([[1, 2, 3, 4], [1, 2]], [4, 2])
    [0, 1, 0, 0]
    >>> even_order([[1, 2, 3, 4], [1, 2]], [4, 2], [lambda allowed: (2, 2)])
    [0, 0, 1, 0]
    """
    order: list[int] = []
    for counts in (*through, lambda allowed: tuple(n[0] for n in allowed)):
        low = counts(allowed)
        taken = [(n[bisect_left(n, least) :], K) for n, least, K in zip(allowed, low, whole, strict=True)]
        steps = [((a + b) / (2 * K), g) for g, (n, K) in enumerate(taken) for a, b in pairwise(n)]
        order += [g for _, g in sorted(steps, reverse=True)]
        allowed = [n[: bisect_right(n, least)] for n, least in zip(allowed, low, strict=True)]
    return order


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
