"""The parts of a table's description: columns, rows and stand-ins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from experiments.analysis.selection import Selection
from experiments.core.plugins import LAST

PM = r"\,$\pm$\,"


def mean_sd(mean: str, sd: str) -> str:
    """Return the format ``mean ± sd`` for two number specs."""
    return f"<mean:{mean}>{PM}<sd:{sd}>"


MEAN_T = mean_sd(".2f", ".2f")
MEAN_MSE = mean_sd(".2e", ".1e")
MEDIAN_MSE = "<median:.2e>"


@dataclass(frozen=True)
class Column:
    """A column of numbers: the quantity and its formats. This project prints the first format."""

    key: str
    title: str
    quantity: str
    formats: tuple[str, ...]


def column(key: str, title: str, quantity: str, *formats: str) -> Column:
    """Make a :class:`Column`."""
    return Column(key, title, quantity, formats)


@dataclass(frozen=True)
class StandIn:
    """Runs that approximate a row's own and never enter the paper's file: a name and their overrides."""

    name: str
    overrides: Mapping[str, Any]
    choices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A row: its printed labels, its runs, and the number of published seeds.

    Attributes:
        key: name of the row in ``--explain`` and in the published values; no dots.
        seeds: number of seeds behind the published numbers; 1 is a single run.
        runs: None until a study exists; then every number prints as ``--``.
        dashes: columns without a number by design.
        formats, quantities: column → what this row has instead of the column's own.
        calibrated: columns whose published values were used to choose settings of these runs or of runs with the same
            settings.
        name: name of the row outside its table; if empty, its labels.
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
        """The name of the row, in TeX."""
        return self.name or ", ".join(self.labels)


def row(key: str, *labels: str, seeds: int, dashes: Iterable[str] = (), **rest: Any) -> Row:
    """Make a :class:`Row`."""
    return Row(key, labels, seeds, dashes=frozenset(dashes), **rest)


Part = TypeVar("Part", Row, Column)


@dataclass(frozen=True)
class Table:
    """A table body, or (``inline``) one number.

    ``lines`` are rows, and TeX lines that are printed as they stand. ``note`` is what a reader has to know of it.
    ``rank`` is its position among the tables that the paper does not have.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    lines: tuple[Row | str, ...]
    inline: bool = False
    note: str = ""
    rank: int = LAST

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows, in order, without TeX lines."""
        return tuple(line for line in self.lines if isinstance(line, Row))

    @property
    def runs(self) -> dict[str, Selection]:
        """Row key → its runs, for rows with a study."""
        return {row.key: row.runs for row in self.rows if row.runs is not None}

    def row(self, key: str) -> Row:
        """Return the row with this key.

        Raises:
            KeyError: if there is none; the message lists the keys.
        """
        return self._named("row", key, self.rows)

    def column(self, key: str) -> Column:
        """Return the column with this key.

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
        """Return the formats of a cell."""
        return of.formats.get(key, self.column(key).formats)

    def quantity(self, of: Row, key: str) -> str:
        """Return the quantity of a cell."""
        return of.quantities.get(key, self.column(key).quantity)


@dataclass(frozen=True)
class OwnTable(Table):
    """A table that the paper does not have. The report shows it; the paper's file does not contain it.

    Attributes:
        text: introduction for the reader, as plain text.
    """

    text: str = ""


def number(name: str, title: str, of: Row, quantity: str, *formats: str) -> Table:
    """Make a macro that holds one number."""
    return Table(name, title, (Column("value", title, quantity, formats),), (of,), inline=True)
