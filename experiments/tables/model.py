"""The parts that a table is described with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from experiments.analysis.selection import Selection

PM = r"\,$\pm$\,"


def mean_sd(mean: str, sd: str) -> str:
    """The format ``mean ± sd`` of two number specs."""
    return f"<mean:{mean}>{PM}<sd:{sd}>"


MEAN_T = mean_sd(".2f", ".2f")
MEAN_MSE = mean_sd(".2e", ".1e")
MEDIAN_MSE = "<median:.2e>"


@dataclass(frozen=True)
class Column:
    """A column of numbers: what is measured, and its formats (the first is what this project prints)."""

    key: str
    title: str
    quantity: str
    formats: tuple[str, ...]


def column(key: str, title: str, quantity: str, *formats: str) -> Column:
    """A :class:`Column`."""
    return Column(key, title, quantity, formats)


@dataclass(frozen=True)
class StandIn:
    """Runs that come near a row's own ones and never enter the paper's file: a name, and what they change."""

    name: str
    overrides: Mapping[str, Any]
    choices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A row: its printed labels, its runs, and the seeds that the published row has.

    Attributes:
        key: what the row is called in ``--explain`` and in the published values; no dots.
        seeds: seeds behind the published numbers; 1 is a single run.
        runs: None while no study of it exists; then every number prints as ``--``.
        dashes: columns that hold no number by design.
        formats, quantities: column → what differs from the column's own.
        calibrated: columns by whose published values settings of the runs were chosen, or of runs that share them.
        name: what the row is called outside its table; its labels where that is empty.
    """

    key: str
    labels: tuple[str, ...]
    seeds: int
    runs: Selection | None = None
    dashes: frozenset[str] = frozenset()
    formats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quantities: Mapping[str, str] = field(default_factory=dict)
    stand_ins: tuple[StandIn, ...] = ()
    calibrated: frozenset[str] = frozenset()
    name: str = ""

    @property
    def title(self) -> str:
        """What the row is called, in TeX."""
        return self.name or ", ".join(self.labels)


def row(key: str, *labels: str, seeds: int, dashes: Iterable[str] = (), **rest: Any) -> Row:
    """A :class:`Row`."""
    return Row(key, labels, seeds, dashes=frozenset(dashes), **rest)


Part = TypeVar("Part", Row, Column)


@dataclass(frozen=True)
class Table:
    """One macro of the paper's file: a table body, or (``inline``) one number.

    ``lines`` are rows, and TeX lines that are printed as they stand. ``note`` is what a reader has to know of it.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    lines: tuple[Row | str, ...]
    inline: bool = False
    note: str = ""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows, in order."""
        return tuple(line for line in self.lines if isinstance(line, Row))

    @property
    def runs(self) -> dict[str, Selection]:
        """Row key → its runs, of the rows of which there is a study."""
        return {row.key: row.runs for row in self.rows if row.runs is not None}

    def row(self, key: str) -> Row:
        """The row of that key.

        Raises:
            KeyError: if there is none; the message lists the keys.
        """
        return self._named("row", key, self.rows)

    def column(self, key: str) -> Column:
        """The column of that key.

        Raises:
            KeyError: if there is none; the message lists the keys.
        """
        return self._named("column", key, self.columns)

    def _named(self, kind: str, key: str, parts: Sequence[Part]) -> Part:
        for part in parts:
            if part.key == key:
                return part
        raise KeyError(f"{self.name} has no {kind} '{key}'; its {kind}s are: {', '.join(part.key for part in parts)}")

    def formats(self, of: Row, key: str) -> tuple[str, ...]:
        """The formats of a cell."""
        return of.formats.get(key, self.column(key).formats)

    def quantity(self, of: Row, key: str) -> str:
        """What a cell measures."""
        return of.quantities.get(key, self.column(key).quantity)


def number(name: str, title: str, of: Row, quantity: str, *formats: str) -> Table:
    """A macro that holds one number."""
    return Table(name, title, (Column("value", title, quantity, formats),), (of,), inline=True)
