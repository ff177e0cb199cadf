r"""The parts of a table's description: number formats of the cells, columns, rows and stand-ins.

A format is TeX text with slots, such as ``<mean:.2f>\,$\pm$\,<sd:.2f>``. There are three forms of a slot:

- ``<statistic:spec>`` takes a number of the column's own quantity.
- ``<quantity.statistic:spec>`` takes a number of another quantity.
- ``<statistic:spec*, >`` takes one number per gate, joined by ``, ``.

A value maps slot names to numbers or lists of numbers. Specs:

========= ==================================================================
``.2f``   fixed decimals, any number of them
``.2e``   scientific, two digits of exponent
``d``     an integer
``short`` an integer below 1000, else ``1.6e3``
``word``  2, 1, 0 as ``yes``, ``partial``, ``no``
========= ==================================================================
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, Union

from experiments.analysis.selection import Selection
from experiments.core.plugins import LAST

Number = Union[int, float]
Value = Mapping[str, Union[Number, Sequence[Number]]]

DASH = "--"
"""Printed where there is no number."""
WORDS = ("no", "partial", "yes")
"""Outcomes of pruning back, in their order. A value holds the code 0, 1 or 2 for a record's word."""

_SLOT = re.compile(r"<([A-Za-z_][\w./]*):(\.\d[fe]|d|short|word)(?:\*([^>]*))?>")


@dataclass(frozen=True)
class Slot:
    """A place for one number, or with ``separator`` for one number per gate."""

    name: str
    spec: str
    separator: str | None = None

    @property
    def statistic(self) -> str:
        """The part of the name after its last dot."""
        return self.name.rsplit(".", 1)[-1]

    def quantity(self, default: str) -> str:
        """Return the quantity named before the last dot, else the quantity of the column."""
        return self.name.rsplit(".", 1)[0] if "." in self.name else default


def print_number(number: Number, spec: str) -> str:
    """Print one number.

    Raises:
        ValueError: if the number is not finite, or is a fraction where the spec needs an integer.
    """
    if not math.isfinite(number):
        raise ValueError(f"{number} is no number to print")
    if spec == "word":
        return WORDS[int(number)]
    if spec == "d":
        if number != int(number):
            raise ValueError(f"{number} is no integer")
        return str(int(number))
    if spec == "short":
        if float(f"{number:.0f}") < 1000:
            return f"{number:.0f}"
        mantissa, exponent = f"{number:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{number:{spec}}"


def half_unit(number: Number, spec: str) -> float:
    """Return half a unit of the last printed digit, the rounding error of a printed number; 0 for counts and words."""
    if spec in ("d", "word"):
        return 0.0
    if spec == "short":
        text = print_number(number, spec)
        return 0.05 * 10 ** int(text.split("e")[1]) if "e" in text else 0.5
    unit = 0.5 * 10 ** -int(spec[1:-1])
    return unit if spec.endswith("f") else unit * 10 ** int(f"{number:{spec}}".split("e")[1])


@dataclass(frozen=True)
class Format:
    """A parsed format: alternating literal TeX and slots."""

    source: str
    parts: tuple[str | Slot, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots, in order."""
        return tuple(part for part in self.parts if isinstance(part, Slot))

    def render(self, value: Value) -> str:
        """Print a value that has exactly this format's slots.

        Raises:
            KeyError: if a slot has no number.
            ValueError: if a number does not fit its slot.
        """
        text = ""
        for part in self.parts:
            if isinstance(part, str):
                text += part
                continue
            entry = value[part.name]
            if isinstance(entry, Sequence):
                if part.separator is None:
                    raise ValueError(f"{self.source}: slot {part.name} takes one number, not {list(entry)}")
                text += part.separator.join(print_number(number, part.spec) for number in entry)
            else:
                text += print_number(entry, part.spec)
        return text


@cache
def parse_format(source: str) -> Format:
    """Parse a format.

    Raises:
        ValueError: if it has no slot, or a slot twice.
    """
    parts: list[str | Slot] = []
    end = 0
    for found in _SLOT.finditer(source):
        literal = source[end : found.start()]
        slot = Slot(found[1], found[2], found[3])
        parts += [literal, slot] if literal else [slot]
        end = found.end()
    if source[end:]:
        parts.append(source[end:])
    names = [part.name for part in parts if isinstance(part, Slot)]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"format {source!r} needs slots of different names")
    return Format(source, tuple(parts))


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
        dashes: columns without a number by design.
        formats, quantities: column → what this row has instead of the column's own.
        calibrated: columns whose published values were used to choose settings of these runs or of runs with the same
            settings.
        name: name of the row outside its table; if empty, its labels.
    """

    key: str
    labels: tuple[str, ...]
    seeds: int
    runs: Selection
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
        """Row key → its runs."""
        return {row.key: row.runs for row in self.rows}

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
