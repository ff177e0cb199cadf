"""Gather the points and curves of a figure from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Generic, TypeVar

import numpy as np

from experiments.analysis.collect import Problem, Reader, alike
from experiments.analysis.figures import Curve, Data, Line, Point
from experiments.analysis.reduce import RunSample, sample
from experiments.analysis.selection import Selection, selected_runs
from experiments.store.records import NO_CURVES

Key = TypeVar("Key", bound=Hashable)


def points_of(group: RunSample, series: str, x: str, y: str, panel: str = "") -> list[Point]:
    """Return a point for each run, at two of its quantities."""
    numbers = zip(group.run_ids, group.of(x), group.of(y), strict=True)
    return [Point(series, float(at), float(value), (run,), panel) for run, at, value in numbers]


@dataclass(frozen=True)
class Gathered(Generic[Key]):
    """The groups of a figure by key, all its run ids, and the problems of runs that are left out."""

    groups: Mapping[Key, RunSample]
    runs: tuple[str, ...]
    problems: tuple[Problem, ...]
    unit: str

    @property
    def found(self) -> int:
        """The number of usable runs."""
        return len({name for group in self.groups.values() for name in group.run_ids})

    def data(
        self,
        points: Iterable[Point] = (),
        curves: Iterable[Curve] = (),
        lines: Iterable[Line] = (),
        notes: Iterable[str] = (),
        titles: Mapping[str, str] | None = None,
        courses: Mapping[str, Key] | None = None,
    ) -> Data:
        """Return the figure's data, with a note if it is partial or if runs have no curves.

        Args:
            courses: panel → the group whose curves it draws.
        """
        curves = tuple(curves)
        drawn = {curve.panel for curve in curves}
        lacking = frozenset(k for k, group in (courses or {}).items() if self.groups[group].runs and k not in drawn)
        notes = (*self._partial(), *notes, *((NO_CURVES,) if lacking else ()))
        return Data(tuple(points), curves, tuple(lines), self.runs, self.found, notes, titles or {}, lacking)

    def _partial(self) -> list[str]:
        if self.found == len(self.runs):
            return []
        kinds = Counter("refused" if problem.refused else problem.kind for problem in self.problems)
        words = {"missing": "not run", "diverged": "diverged", "refused": "refused"}
        lacking = ", ".join(f"{kinds[kind]} {word}" for kind, word in words.items() if kinds[kind])
        return [f"partial: {self.found} of {len(self.runs)} {self.unit} ({lacking})"]


def boundaries(reader: Reader, group: RunSample, panel: str) -> tuple[list[Curve], list[Line]]:
    """Return the boundary over training of each run with curves, and the median over runs of equal steps."""
    found = ((run, reader.store.curves(run.run_id)) for run in group.runs)
    curves = [
        Curve("t of each seed", run.run_id, run.seed, stored["grown.step"], stored["grown.t"][:, 0], panel)
        for run, stored in found
        if stored is not None
    ]
    if not curves or not all(np.array_equal(curve.x, curves[0].x) for curve in curves):
        return curves, []
    middle = np.median([curve.y for curve in curves], axis=0)
    runs = tuple(curve.run for curve in curves)
    return curves, [Line("median over the seeds", curves[0].x, middle, panel, runs)]


def spread(points: Iterable[Point], width: float, at: float = 0.0) -> Iterator[Point]:
    """Spread points of one panel with the same x evenly over ``width``, centred at an offset of ``at``."""
    places: dict[tuple[str, float], list[Point]] = {}
    for point in points:
        places.setdefault((point.panel, point.x), []).append(point)
    for same in places.values():
        for n, point in enumerate(same):
            yield replace(point, shift=at + (width * (n / (len(same) - 1) - 0.5) if len(same) > 1 else 0.0))


def gather(
    reader: Reader,
    selections: Mapping[Key, Selection],
    quantities: Sequence[str] | Mapping[Key, Sequence[str]],
    unit: str = "runs",
    own_data: bool = False,
) -> Gathered[Key]:
    """Gather the runs of each selection that have all ``quantities`` (one number each) and the same data.

    Args:
        quantities: for all selections, or for each.
        unit: the word for a run in the note of a partial figure.
        own_data: whether each selection has its own data, on which only its own runs must agree.
    """
    wanted = dict.fromkeys(run.id for own in selections.values() for run in selected_runs(reader.chosen(own)))
    collected = {key: reader.collect(selection) for key, selection in selections.items()}
    sets = [one.runs for one in collected.values()]
    odd = [problem for runs in (sets if own_data else [chain(*sets)]) for problem in alike([*runs], "data")[1]]
    strangers = {problem.where: problem for problem in odd}
    groups: dict[Key, RunSample] = {}
    for key, one in collected.items():
        own = tuple(run for run in one.runs if run.run_id not in strangers)
        groups[key] = sample(replace(one, runs=own), quantities[key] if isinstance(quantities, Mapping) else quantities)
    problems = strangers | {lack.where: lack for group in groups.values() for lack in group.problems}
    return Gathered(groups, tuple(wanted), tuple(problems.values()), unit)
