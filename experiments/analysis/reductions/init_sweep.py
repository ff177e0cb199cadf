"""Grow/prune stability (figure 5): where the boundary ends, by where it starts, in three panels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.reduce import sample
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import statistic
from experiments.tables.one_d import BASELINE

SEEDS = range(50)


@dataclass(frozen=True)
class Panel:
    """One panel of the figure; ``selection`` is its configuration at the usual start."""

    key: str
    title: str
    selection: Selection

    def start(self, t_init: int) -> Selection:
        """Its runs that start at ``t_init``. t = softplus(tau) is never zero: the usual start 1e-4 stands for 0."""
        return self.selection if t_init == 0 else self.selection.with_overrides({"gate.t0": float(t_init)})


PANELS = (
    Panel("standard", "r = ½, delayed α", BASELINE),
    Panel("uniform", "r = 1, delayed α", BASELINE.with_overrides({"gate.r": 1.0})),
    Panel("alpha_const", "r = ½, constant α", Selection.of({**dict(BASELINE.choices), "schedule": "alpha_const"})),
)
STARTS = tuple(range(17))


def sweep(seeds: Iterable[int]) -> list[Selection]:
    """The runs of every panel and start with these seeds."""
    own = tuple(seeds)
    return [panel.start(t_init).with_seeds(own) for panel in PANELS for t_init in STARTS]


@dataclass(frozen=True)
class InitPoint:
    """The seeds of one panel that started at ``t_init``: final boundaries and counts, in the order of ``runs``."""

    panel: str
    t_init: int
    finals: tuple[float, ...]
    counts: tuple[int, ...]
    runs: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.finals)

    @property
    def mean(self) -> float:
        """Mean of the final boundary."""
        return float(statistic("mean", np.asarray(self.finals)))

    @property
    def sd(self) -> float:
        """Population standard deviation of the final boundary, as in the paper's tables."""
        return float(statistic("sd", np.asarray(self.finals)))


def summary(
    reader: Reader, overrides: Mapping[str, Any] | None = None, seeds: Iterable[int] = SEEDS
) -> tuple[InitPoint, ...]:
    """A point for every panel and start with at least one usable record."""
    quantities = ["grown.t", "grown.count"]
    own = tuple(seeds)
    points: list[InitPoint] = []
    for panel in PANELS:
        for t_init in STARTS:
            selection = panel.start(t_init).with_seeds(own).with_overrides(overrides or {})
            numbers, used, _ = sample(reader.collect(selection), quantities, frozenset(quantities))
            if used:
                t, count = (numbers[name][0] for name in quantities)
                counts = tuple(int(value) for value in count)
                points.append(InitPoint(panel.key, t_init, tuple(map(float, t)), counts, used))
    return tuple(points)
