"""The parts of a figure: panels with points, curves and lines that name their runs.

A figure is a :class:`Spec`. Its :meth:`Spec.data` reads records and does not use matplotlib.
:mod:`experiments.report` draws this data for the paper and for its page by the same rules: one caption fits both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from experiments.analysis.collect import DIFFER, AlternativeReader, Reader
from experiments.analysis.statistics import Array
from experiments.core.plugins import LAST

Key = TypeVar("Key", bound=Hashable)

EACH = "each run"
"""Series name of single runs next to their means: alone, or in brackets after the name of the mean."""


def sentence(text: str) -> str:
    """Return ``text`` with a capital first letter and a full stop; empty text stays empty."""
    return f"{text[0].upper()}{text[1:]}." if text else ""


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        xlog, ylog: whether the axis is logarithmic.
        lanes: x is a count. Faint lines separate counts, and means show their number of runs.
        labels: x is a place among these, from 0 on, and not a number.
        series: names in the legend, in this order, even without a point.
    """

    xlabel: str
    ylabel: str
    title: str = ""
    xlog: bool = False
    ylog: bool = False
    lanes: bool = False
    labels: tuple[str, ...] = ()
    series: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A marker, and the ids of the ``runs`` behind it.

    Attributes:
        low, high: ends of its bar.
        shift: horizontal offset from x, so that markers of one x do not overlap.
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
        """Whether it is a single run next to a mean."""
        return self.series.endswith((EACH, f"({EACH})"))


@dataclass(frozen=True)
class Curve:
    """A quantity over the training of one run; ``x`` and ``y`` have shape [points]. Without ``strong`` it is faint."""

    series: str
    run: str
    seed: int
    x: Array
    y: Array
    panel: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Line:
    """A line that is not one run's: dashed or solid for a statistic of ``runs``, dotted for a reference.

    Attributes:
        x, y: of shape [points].
        label: text above its middle.
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
        runs: ids of all runs of the figure, with or without records.
        found: number of runs drawn.
        notes: printed below: whether it is partial, its stand-ins, how to read it.
        titles: panel → addition to its title from the records.
        without_curves: panels whose runs have no curves.
    """

    points: tuple[Point, ...] = ()
    curves: tuple[Curve, ...] = ()
    lines: tuple[Line, ...] = ()
    runs: tuple[str, ...] = ()
    found: int = 0
    notes: tuple[str, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    without_curves: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return self.found == 0

    @property
    def caption(self) -> str:
        """The notes as one sentence."""
        return sentence("; ".join(self.notes))

    def of(self, panel: str, series: str | None = None) -> list[Point]:
        """Return the points of a panel, or of one series in it."""
        return [p for p in self.points if p.panel == panel and series in (None, p.series)]

    def fewest(self, key: str, panel: Panel) -> int | None:
        """Return the largest number of runs that is printed at a mean, or None to print none.

        With ``lanes`` every mean shows its number; otherwise only means of fewer runs than others do."""
        runs = [len(point.runs) for point in self.of(key) if not point.faint]
        most = max(runs, default=0)
        if panel.lanes:
            return most if most > 1 else None
        return most - 1 if min(runs, default=0) < most else None

    def curves_of(self, panel: str) -> list[Curve]:
        """Return the curves of a panel."""
        return [curve for curve in self.curves if curve.panel == panel]

    def lack(self, panel: str) -> str:
        """Return why a panel has nothing to show."""
        return "curves not kept" if panel in self.without_curves else "not run"

    def title(self, key: str, panel: Panel) -> str:
        """Return the panel's title with the addition from the records and its number of runs."""
        runs = {run for point in self.of(key) for run in point.runs} | {curve.run for curve in self.curves_of(key)}
        n = f"n = {len(runs)} run{'' if len(runs) == 1 else 's'}" if runs else self.lack(key)
        return "\n".join(filter(None, [panel.title, self.titles.get(key, ""), n]))

    def looks(self, panels: Mapping[str, Panel]) -> dict[str, int]:
        """Map series to their colour and marker, the same in all panels; single runs look like their mean."""
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
        name: name of its file.
        panels: key → axes. Points, curves and lines refer to the key.
        make: records → what is shown.
        height: in inches.
        columns: number of panels per row.
        section: key of its section in the report (``experiments/report/sections.yaml``).
        rank: its place among the other figures.
    """

    name: str
    title: str
    panels: Mapping[str, Panel]
    make: Callable[[Reader], Data]
    height: float = 2.9
    columns: int = 1
    section: str = "own"
    rank: int = LAST

    def data(self, reader: Reader, overrides: Mapping[str, Any] | None = None) -> Data:
        """Read the figure's data from records.

        Args:
            overrides: dotted key → value. Runs with these values stand in for the figure's own, and a note says so.
                A study keeps what it varies.

        Raises:
            experiments.core.blocks.ConfigError: if a run of the figure does not accept these overrides.
        """
        if overrides:
            reader = AlternativeReader(reader, lambda own: own.with_overrides({**overrides, **dict(own.overrides)}))
        data = self.make(reader)
        shown = dict.fromkeys(chain(*(point.runs for point in data.points), (curve.run for curve in data.curves)))
        notes = list(data.notes)
        panels = [(data.fewest(key, panel), panel.lanes) for key, panel in self.panels.items()]
        if any(least is not None and lanes for least, lanes in panels):
            notes.append("numbers: runs behind a point")
        elif any(least is not None for least, _ in panels):
            notes.append("numbers: runs behind a point, where fewer than behind others")
        if overrides:
            notes.append("stand-in: " + ", ".join(f"{k}={v}" for k, v in overrides.items()))
        if names := dict.fromkeys(chain(*reader.data_differences(shown).values())):
            notes.append(f"{DIFFER}{', '.join(names)} (how: docs/results.md)")
        return replace(data, notes=tuple(notes))
