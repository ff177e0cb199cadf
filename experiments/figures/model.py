"""What a figure is made of: points, curves and lines that name their runs, and how they are gathered from records.

A figure is a :class:`Spec`. Its :meth:`Spec.data` reads records and knows nothing of matplotlib; :mod:`style` and the
report's page draw that data and nothing else, by the same rules, so that one caption holds for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from experiments.analysis.collect import Collected, Problem, Reader, Run, same_data
from experiments.analysis.reduce import sample
from experiments.analysis.selection import Selection, configurations
from experiments.analysis.statistics import Array

Key = TypeVar("Key", bound=Hashable)


EACH = "each run"
"""The series of single runs beside their means: alone, or in brackets behind the name of the mean."""


def sentence(text: str) -> str:
    """``text`` with a capital first letter and a full stop; empty text stays so."""
    return f"{text[0].upper()}{text[1:]}." if text else ""


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        xlog, ylog: which axes are logarithmic.
        lanes: x is a count; a faint line separates neighbouring counts, and means say of how many runs they are.
        series: names that stand in the legend even where no point has them, in this order.
    """

    xlabel: str
    ylabel: str
    title: str = ""
    xlog: bool = False
    ylog: bool = False
    lanes: bool = False
    series: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A marker, and the ids of the ``runs`` behind it.

    Attributes:
        low, high: the ends of its bar.
        shift: how far from x it is drawn, so that markers of one x do not cover each other.
    """

    series: str
    x: float
    y: float
    runs: tuple[str, ...]
    panel: str = ""
    low: float | None = None
    high: float | None = None
    shift: float = 0.0

    @property
    def faint(self) -> bool:
        """Whether it is a single run beside the mean of several."""
        return self.series.endswith((EACH, f"({EACH})"))


@dataclass(frozen=True)
class Curve:
    """A quantity over the training of one run; ``x`` and ``y`` of shape [points]. All but ``strong`` ones are faint."""

    series: str
    run: str
    seed: int
    x: Array
    y: Array
    panel: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Line:
    """A line that is no single run's: dashed, or solid from one point to another, for a statistic of ``runs``; dotted
    where nothing was measured.

    Attributes:
        x, y: of shape [points].
        label: printed above its middle.
    """

    series: str
    x: Array
    y: Array
    panel: str = ""
    runs: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Data:
    """Everything that a figure shows.

    Attributes:
        runs: the ids of all runs that belong to the figure, whether they have records or not.
        found: how many of them are drawn.
        notes: what is printed below: that it is partial, which stand-ins it shows, how to read it.
        titles: panel → what the records add to its title.
    """

    points: tuple[Point, ...] = ()
    curves: tuple[Curve, ...] = ()
    lines: tuple[Line, ...] = ()
    runs: tuple[str, ...] = ()
    found: int = 0
    notes: tuple[str, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return self.found == 0

    @property
    def caption(self) -> str:
        """The notes as one sentence."""
        return sentence("; ".join(self.notes))

    def of(self, panel: str, series: str | None = None) -> list[Point]:
        """The points of a panel, or of one series in it."""
        return [p for p in self.points if p.panel == panel and series in (None, p.series)]

    def curves_of(self, panel: str, series: str | None = None) -> list[Curve]:
        """The curves of a panel, or of one series in it."""
        return [c for c in self.curves if c.panel == panel and series in (None, c.series)]

    def lines_of(self, panel: str) -> list[Line]:
        """The lines of a panel."""
        return [line for line in self.lines if line.panel == panel]

    def title(self, key: str, panel: Panel) -> str:
        """The panel's title with what the records add to it, and how many runs it shows."""
        runs = {run for point in self.of(key) for run in point.runs} | {curve.run for curve in self.curves_of(key)}
        n = f"n = {len(runs)} run{'' if len(runs) == 1 else 's'}" if runs else "not run"
        return "\n".join(filter(None, [panel.title, self.titles.get(key, ""), n]))

    def looks(self, panels: Mapping[str, Panel]) -> dict[str, int]:
        """Series → the number of its colour and sign, one for all panels; single runs have that of their mean."""
        named = [name for panel in panels.values() for name in panel.series]
        named += [curve.series for curve in self.curves] + [point.series for point in self.points if not point.faint]
        looks = {name: at for at, name in enumerate(dict.fromkeys(named))}
        for point in self.points:
            looks.setdefault(point.series, looks.get(point.series.removesuffix(f" ({EACH})"), 0))
        return looks


@dataclass(frozen=True)
class Spec:
    """A figure.

    Attributes:
        name: of its files.
        panels: key → axes; points, curves and lines name theirs by the key.
        make: records and stand-in overrides → what is shown.
        height: inches.
        columns: panels beside each other.
    """

    name: str
    title: str
    panels: Mapping[str, Panel]
    make: Callable[[Reader, Mapping[str, Any]], Data]
    height: float = 2.9
    columns: int = 1

    def data(self, reader: Reader, overrides: Mapping[str, Any] | None = None) -> Data:
        """What the records give.

        Args:
            overrides: dotted key → value: runs that differ in these keys stand in for the figure's own; it says so.

        Raises:
            experiments.blocks.ConfigError: if a run of the figure cannot have these overrides.
        """
        found = self.make(reader, overrides or {})
        shown = dict.fromkeys(chain(*(point.runs for point in found.points), (curve.run for curve in found.curves)))
        notes = list(found.notes)
        if any(self.panels[point.panel].lanes and len(point.runs) > 1 for point in found.points):
            notes.append("numbers: runs behind a point")
        if overrides:
            notes.append("stand-in: " + ", ".join(f"{k}={v}" for k, v in overrides.items()))
        return replace(found, notes=(*notes, *reader.data_notes(shown)))


@dataclass(frozen=True)
class Group:
    """The usable runs of one selection, and their numbers: quantity → array of shape [runs]."""

    runs: tuple[Run, ...] = ()
    values: Mapping[str, Array] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        """The run ids, in the order of the values."""
        return tuple(run.run_id for run in self.runs)


@dataclass(frozen=True)
class Gathered(Generic[Key]):
    """The groups of a figure by key, every run id that belongs to it, and why runs are left out."""

    groups: Mapping[Key, Group]
    runs: tuple[str, ...]
    problems: tuple[Problem, ...]
    unit: str

    @property
    def found(self) -> int:
        """How many runs are usable."""
        return len({name for group in self.groups.values() for name in group.ids})

    def data(
        self,
        points: Iterable[Point] = (),
        curves: Iterable[Curve] = (),
        lines: Iterable[Line] = (),
        notes: Iterable[str] = (),
        titles: Mapping[str, str] | None = None,
    ) -> Data:
        """The figure's data; a note says how much of it is there."""
        notes = (*self._partial(), *notes)
        return Data(tuple(points), tuple(curves), tuple(lines), self.runs, self.found, notes, titles or {})

    def _partial(self) -> list[str]:
        if self.found == len(self.runs):
            return []
        kinds = Counter("refused" if problem.refused else problem.kind for problem in self.problems)
        words = {"missing": "not run", "diverged": "diverged", "refused": "refused"}
        lacking = ", ".join(f"{kinds[kind]} {word}" for kind, word in words.items() if kinds[kind])
        return [f"partial: {self.found} of {len(self.runs)} {self.unit} ({lacking})"]


def boundaries(reader: Reader, group: Group, panel: str) -> tuple[list[Curve], list[Line]]:
    """The boundary over training of each run of a group that has curves, and the median of those of equal steps."""
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
    """The points, those of one panel and x drawn evenly over ``width`` about ``at`` beside it."""
    places: dict[tuple[str, float], list[Point]] = {}
    for point in points:
        places.setdefault((point.panel, point.x), []).append(point)
    for same in places.values():
        for n, point in enumerate(same):
            yield replace(point, shift=at + (width * (n / (len(same) - 1) - 0.5) if len(same) > 1 else 0.0))


def stand_in(selection: Selection, overrides: Mapping[str, Any]) -> Selection:
    """The selection with overrides below its own, so that what a study varies stays varied."""
    return selection.with_overrides({**overrides, **dict(selection.overrides)})


def gather(
    reader: Reader,
    selections: Mapping[Key, Selection],
    quantities: Sequence[str] | Mapping[Key, Sequence[str]],
    overrides: Mapping[str, Any],
    unit: str = "runs",
    own_data: bool = False,
) -> Gathered[Key]:
    """The runs of each selection that have all ``quantities`` (one number each); all must have seen the same data.

    Args:
        quantities: for all selections, or for each.
        unit: what a run is called in the note of a partial figure.
        own_data: every selection is of data of its own, and only its own runs must agree.
    """
    wanted: dict[str, None] = {}
    collected: dict[Key, Collected] = {}
    for key, selection in selections.items():
        chosen = stand_in(selection, overrides)
        wanted.update(dict.fromkeys(name for _, _, name in configurations(chosen)))
        collected[key] = reader.collect(chosen)
    sets = [list(one.runs) for one in collected.values()]
    odd = [p for runs in (sets if own_data else [list(chain(*sets))]) for p in same_data(runs)[1]]
    strangers = {problem.where for problem in odd}
    groups: dict[Key, Group] = {}
    problems: dict[str, Problem] = {problem.where: problem for problem in odd}
    for key, one in collected.items():
        alike = tuple(run for run in one.runs if run.run_id not in strangers)
        names = list(quantities[key] if isinstance(quantities, Mapping) else quantities)
        samples, used, lacks = sample(replace(one, runs=alike), names, frozenset(names))
        problems.update({lack.where: lack for lack in lacks})
        by_id = {run.run_id: run for run in alike}
        groups[key] = Group(tuple(by_id[name] for name in used), {name: row[0] for name, row in samples.items()})
    return Gathered(groups, tuple(wanted), tuple(problems.values()), unit)
