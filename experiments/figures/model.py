"""What a figure is made of: points and curves that name their runs, and how they are gathered from records.

A figure is a :class:`Spec`. Its :meth:`Spec.data` reads records and knows nothing of matplotlib; its :meth:`Spec.draw`
sees that data alone. So whatever else shows a figure (a page, a file of provenance) has exactly what was drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from experiments.analysis.collect import Collected, Problem, Reader, Run, same_data
from experiments.analysis.reduce import sample
from experiments.analysis.selection import Selection, configurations
from experiments.analysis.statistics import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Panel:
    """One pair of axes: plain-text labels, and which axes are logarithmic."""

    xlabel: str
    ylabel: str
    title: str = ""
    xlog: bool = False
    ylog: bool = False


@dataclass(frozen=True)
class Point:
    """A marker, and the ids of the ``runs`` behind it. ``low`` and ``high`` are the ends of its bar."""

    series: str
    x: float
    y: float
    runs: tuple[str, ...]
    panel: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """A course over the training of one run; ``x`` and ``y`` of shape [points]."""

    series: str
    run: str
    seed: int
    x: Array
    y: Array
    panel: str = ""


@dataclass(frozen=True)
class Data:
    """Everything that a figure shows.

    Attributes:
        runs: the ids of all runs that belong to the figure, whether they have records or not.
        found: how many of them are drawn.
        notes: what is printed below: that it is partial, which stand-ins it shows, how to read it.
    """

    points: tuple[Point, ...] = ()
    curves: tuple[Curve, ...] = ()
    runs: tuple[str, ...] = ()
    found: int = 0
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return self.found == 0

    def of(self, panel: str, series: str | None = None) -> list[Point]:
        """The points of a panel, or of one series in it."""
        return [p for p in self.points if p.panel == panel and series in (None, p.series)]

    def curves_of(self, panel: str, series: str | None = None) -> list[Curve]:
        """The curves of a panel, or of one series in it."""
        return [c for c in self.curves if c.panel == panel and series in (None, c.series)]


@dataclass(frozen=True)
class Spec:
    """A figure.

    Attributes:
        name: of its files.
        panels: key → axes; points and curves name theirs by the key.
        make: records and stand-in overrides → what is shown.
        paint: draws that onto an empty matplotlib figure.
        height: inches.
    """

    name: str
    title: str
    panels: Mapping[str, Panel]
    make: Callable[[Reader, Mapping[str, Any]], Data]
    paint: Callable[[Figure, Data], None]
    height: float = 2.6

    def data(self, reader: Reader, overrides: Mapping[str, Any] | None = None) -> Data:
        """What the records give.

        Args:
            overrides: dotted key → value: runs that differ in these keys stand in for the figure's own; it says so.

        Raises:
            experiments.blocks.ConfigError: if a run of the figure cannot have these overrides.
        """
        found = self.make(reader, overrides or {})
        if not overrides:
            return found
        return replace(found, notes=(*found.notes, "stand-in: " + ", ".join(f"{k}={v}" for k, v in overrides.items())))

    def draw(self, data: Data) -> Figure:
        """The picture of that data; where there is none, one that says "not run"."""
        from experiments.figures import style

        return style.not_run(self.title) if data.empty else style.drawn(self, data)


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

    def data(self, points: Iterable[Point] = (), curves: Iterable[Curve] = (), notes: Iterable[str] = ()) -> Data:
        """The figure's data; a note says how much of it is there."""
        return Data(tuple(points), tuple(curves), self.runs, self.found, (*self._partial(), *notes))

    def _partial(self) -> list[str]:
        if self.found == len(self.runs):
            return []
        kinds = Counter("refused" if problem.refused else problem.kind for problem in self.problems)
        words = {"missing": "not run", "diverged": "diverged", "refused": "refused"}
        lacking = ", ".join(f"{kinds[kind]} {word}" for kind, word in words.items() if kinds[kind])
        return [f"partial: {self.found} of {len(self.runs)} {self.unit} ({lacking})"]


def boundaries(reader: Reader, group: Group, panel: str) -> list[Curve]:
    """The boundary over training of each run of a group, of those that have curves."""
    found = ((run, reader.store.curves(run.run_id)) for run in group.runs)
    return [
        Curve("t", run.run_id, run.seed, stored["grown.step"], stored["grown.t"][:, 0], panel)
        for run, stored in found
        if stored is not None
    ]


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
