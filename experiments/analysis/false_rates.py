"""How often the rule of verdicts is wrong, by simulation: see docs/verdicts.md.

Both samples are drawn from distributions whose equality or difference is known, and judged as cells are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.analysis.formats import parse_format
from experiments.analysis.reduce import Cell
from experiments.analysis.statistics import Array
from experiments.analysis.verdict import DISAGREES, judge_cell

Draw = Callable[[np.random.Generator, tuple[int, int]], Array]


def _one_in_ten(draw: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.where(draw.random(shape) < 0.1, 99.0, 1.0) * draw.lognormal(0, 0.3, shape)


def _bimodal(draw: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.where(draw.random(shape) < 0.5, 1.0, 10.0) * draw.lognormal(0, 0.1, shape)


SHAPES: dict[str, Draw] = {
    "normal": lambda draw, shape: draw.normal(6, 1, shape),
    "log-normal": lambda draw, shape: draw.lognormal(0, 1.5, shape),
    "two modes": _bimodal,
    "one bad in ten": _one_in_ten,
}
"""Distributions of a number over seeds, as sizes and errors have them; the normal one has deviation 1."""

SIZES = {
    "mean": ((10, 10), (20, 10), (50, 10), (10, 50), (50, 50), (39, 3)),
    "median": ((10, 10), (20, 10), (50, 10), (10, 50), (50, 50), (39, 3)),
    "value": ((10, 1), (39, 1), (50, 1)),
}
"""What the paper prints → (our seeds, published seeds)."""

_FORMS = {"mean": "<mean:.9e> <sd:.9e>", "median": "<median:.9e>", "value": "<value:.9e>"}


def _printed(statistic: str, runs: Array) -> dict[str, float]:
    found = {
        "mean": {"mean": float(runs.mean()), "sd": float(runs.std())},
        "median": {"median": float(np.median(runs))},
        "value": {"value": float(runs[0])},
    }
    return found[statistic]


def words(
    statistic: str, sizes: tuple[int, int], draw: Draw, trials: int, change: Callable[[Array], Array] = lambda x: x
) -> list[str]:
    """Return the verdicts on ``trials`` pairs of samples.

    Args:
        statistic: what is published: mean (with deviation), median, or value of a single run.
        sizes: number of our runs, and of published ones.
        change: applied to the published runs, which are else of the same distribution.
    """
    ours, published = sizes
    generator = np.random.default_rng([ours, published])
    first = draw(generator, (trials, ours))
    second = change(draw(generator, (trials, published)))
    form = parse_format(_FORMS[statistic])
    found = []
    for mine, theirs in zip(first, second, strict=True):
        cell = Cell({}, "", ours, ours, {"t": mine[None]}, (), ())
        found.append(judge_cell(cell, (form, _printed(statistic, theirs)), "t", published).word)
    return found


@dataclass(frozen=True)
class Rates:
    """False rates of one statistic at two sample sizes.

    Attributes:
        rejected: shape → share of pairs of one distribution that are said to disagree.
        missed: difference → share of pairs with that difference that are not.
    """

    statistic: str
    sizes: tuple[int, int]
    rejected: dict[str, float]
    missed: dict[str, float]


def rates(statistic: str, sizes: tuple[int, int], trials: int) -> Rates:
    """Simulate the false rates."""

    def rejected(draw: Draw, change: Callable[[Array], Array] = lambda x: x) -> float:
        return words(statistic, sizes, draw, trials, change).count(DISAGREES) / trials

    normal, errors = SHAPES["normal"], SHAPES["log-normal"]
    return Rates(
        statistic,
        sizes,
        {name: rejected(draw) for name, draw in SHAPES.items()},
        {
            "1 sd": 1 - rejected(normal, lambda x: x + 1),
            "2 sd": 1 - rejected(normal, lambda x: x + 2),
            "factor 10": 1 - rejected(errors, lambda x: 10 * x),
        },
    )
