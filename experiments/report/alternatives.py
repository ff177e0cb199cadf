"""Two settings side by side, judged by the same rule: alternative settings beside the stated one, and truncation both
ways (gates replaced by ones, as the equation says, and gates kept soft).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from experiments.analysis.claims import UNTESTED, Judged
from experiments.analysis.collect import Alternative, AlternativeReader, Reader
from experiments.analysis.compare import Comparison, compare_cell, words_of_facts
from experiments.analysis.estimates import Interval
from experiments.analysis.reduce import Cell, reduce_row, sample
from experiments.analysis.selection import MOST_SEEDS, Selection, selected_runs
from experiments.analysis.statistics import Array, statistic
from experiments.analysis.tables import OwnTable, Row, parse_format
from experiments.analysis.verdict import SETTING
from experiments.studies import OWN, STUDIES, judge_all, macros
from experiments.studies.model import Study

T = TypeVar("T")


class Pair(NamedTuple, Generic[T]):
    """The same thing under the stated and under the alternative setting."""

    stated: T
    other: T


def _words(pair: Pair[Judged]) -> Pair[str]:
    return Pair(pair.stated.word, pair.other.word)


def _counted(pairs: Iterable[Pair[str]]) -> Pair[Counter[str]]:
    pairs = list(pairs)
    return Pair(*(Counter(pair[at] for pair in pairs) for at in (0, 1)))


@dataclass(frozen=True)
class BothSettings:
    """A study of an alternative setting, with everything that it changes.

    Attributes:
        own: tables that the paper lacks, with each row's cells under both settings.
    """

    study: Study
    alternative: Alternative
    cells: tuple[Pair[Comparison], ...]
    claims: tuple[Pair[Judged], ...]
    own: tuple[tuple[OwnTable, tuple[tuple[Row, Pair[tuple[Cell, ...]]], ...]], ...]

    @cached_property
    def facts(self) -> list[tuple[Pair[Comparison], Pair[str]]]:
        """Every fact that both settings can judge: the last cells that print it, and its verdicts."""
        last = {pair.stated.fact: pair for pair in self.cells}
        stated = words_of_facts(pair.stated for pair in self.cells)
        other = words_of_facts(pair.other for pair in self.cells)
        return [(last[fact], Pair(word, other[fact])) for fact, word in stated.items() if fact in other]

    def fact_counts(self, tables: str = "") -> Pair[Counter[str]]:
        """Count the facts of tables whose name begins with ``tables``, by verdict."""
        named = {pair.stated.fact for pair in self.cells if pair.stated.table.name.startswith(tables)}
        return _counted(words for pair, words in self.facts if pair.stated.fact in named)

    @property
    def counts(self) -> Mapping[str, Pair[Counter[str]]]:
        """By verdict, the numbers of facts that both settings can judge, and of statements."""
        return {"facts": self.fact_counts(), "statements": _counted(map(_words, self.claims))}

    @cached_property
    def _test(self) -> tuple[list[tuple[str, Pair[str], bool]], int]:
        named = {
            pair.stated.fact
            for pair in self.cells
            if f"{pair.stated.table.name}.{pair.stated.row.key}" in self.alternative.test
            and pair.stated.verdict.word != SETTING
        }
        claims = [pair for pair in self.claims if pair.stated.where in self.alternative.test]
        judged = [
            (f"`{pair.stated.name}`", words, pair.stated.name.rpartition(".")[0] not in self.alternative.unmoved)
            for pair, words in self.facts
            if pair.stated.fact in named
        ]
        judged += [(pair.stated.text.rstrip("."), _words(pair), True) for pair in claims if pair.other.word != UNTESTED]
        return judged, len(named) + len(claims) - len(judged)

    @property
    def missing(self) -> int:
        """How many of the facts and statements that the plan names as its test cannot be judged yet."""
        return self._test[1]

    def tested(self, stated: str = "", other: str = "", every: bool = False) -> list[str]:
        """Return those that both settings judge with these verdicts, by name or text; an empty word is any.

        Rows that the setting cannot move are left out, but for ``every``.
        """
        judged = [(name, words) for name, words, moved in self._test[0] if every or moved]
        return [name for name, (a, b) in judged if stated in ("", a) and other in ("", b)]


BEYOND = "study "
"""How the place of a statement begins that is not the paper's."""


def of_the_paper(claims: Iterable[Judged]) -> tuple[Judged, ...]:
    """Return the paper's statements as it makes them, without those that were judged on another model."""
    return tuple(claim for claim in claims if not claim.where.startswith(BEYOND) and ", on " not in claim.where)


def _first(selection: Selection) -> str:
    """The id of the run with seed 0, which names a configuration."""
    return selected_runs(selection.with_seeds([0]))[0].id


def _same(stated: Cell, other: Cell) -> bool:
    """Whether two cells have the same numbers of the same runs."""
    return (
        bool(stated.run_ids)
        and stated.run_ids == other.run_ids
        and all(np.array_equal(numbers, other.numbers[name]) for name, numbers in stated.numbers.items())
    )


def _beside(
    reader: Reader, study: Study, of: Alternative, items: Sequence[Comparison], claims: Sequence[Judged]
) -> BothSettings:
    under = AlternativeReader(reader, of.runs, of.reading)
    names = {_first(selection) for selection in study.make()}

    def covers(row: Row) -> bool:
        return _first(of.runs(row.runs)) in names

    def beside(item: Comparison) -> Comparison:
        other = compare_cell(under, item.table, item.row, item.column, among=macros())
        found = f"{item.table.name}.{item.row.key}" in of.found_by
        return replace(other, verdict=replace(other.verdict, calibrated=other.verdict.calibrated or found))

    pairs = [Pair(item, beside(item)) for item in items if not item.stand_in and covers(item.row)]
    own = [
        (table, tuple((row, Pair(reduce_row(reader, table, row), reduce_row(under, table, row))) for row in table.rows))
        for table in OWN.values()
        if all(map(covers, table.rows))
    ]
    judged = {claim.key: claim for claim in judge_all(under, [*items, *(pair.other for pair in pairs)])}
    cells = tuple(pair for pair in pairs if not _same(pair.stated.cell, pair.other.cell))
    twice = (Pair(claim, judged[claim.key]) for claim in of_the_paper(claims))
    return BothSettings(study, of, cells, tuple(pair for pair in twice if pair.stated != pair.other), tuple(own))


def alternatives(reader: Reader, items: Sequence[Comparison], claims: Sequence[Judged]) -> tuple[BothSettings, ...]:
    """Compare every study of an alternative setting with the stated one.

    Args:
        items: every comparison of the paper's tables under the stated setting.
        claims: all statements, judged under the stated setting. The paper's alone are compared.
    """
    return tuple(
        _beside(reader, study, study.alternative, items, claims)
        for study in STUDIES.values()
        if study.alternative is not None
    )


SAME = 0.01
"""Relative difference of two ratios below which they are called the same."""


class TwoWays(NamedTuple):
    """A row with the published ratio of truncated to soft error, and ours both ways with the range over seeds."""

    item: Comparison
    published: float
    equation: Interval
    kept: Interval

    @property
    def nearer(self) -> str:
        """The way that is nearer to the published ratio, on a logarithmic scale: equation, gates kept, or same."""
        if math.isclose(self.equation.value, self.kept.value, rel_tol=SAME):
            return "same"
        apart = [abs(math.log(ratio.value / self.published)) for ratio in (self.equation, self.kept)]
        return "equation" if apart[0] <= apart[1] else "gates kept"


def _ratio(name: str, truncated: Array, soft: Array) -> Interval:
    each = truncated / soft
    # of single runs there is one published ratio, so ours is that of the median seed
    value = np.median(each) if name == "value" else statistic(name, truncated) / statistic(name, soft)
    return Interval(float(value), float(each.min()), float(each.max()))


def two_ways(reader: Reader, items: Sequence[Comparison]) -> tuple[TwoWays, ...]:
    """Compare every row that prints a soft and a truncated error, once, from all its seeds.

    If the published row is one run, ours has all available seeds.
    """
    by_name = {item.name: item for item in items if not item.stand_in}
    ways_of: dict[tuple[Hashable, float], TwoWays] = {}
    for item in by_name.values():
        other = by_name.get(f"{item.table.name}.{item.row.key}.soft")
        if item.column.key != "truncated" or other is None:
            continue
        soft, truncated = (one.table.quantity(one.row, one.column.key) for one in (other, item))
        if not (".truncated." in truncated and truncated.endswith("mse") and ".soft." in soft):
            continue
        names = [soft, truncated, truncated.replace(".truncated.", ".gates_kept.")]
        runs = item.row.runs.with_seeds(range(MOST_SEEDS)) if item.row.seeds == 1 else item.row.runs
        ours = sample(reader.collect(runs), names)
        slot = parse_format(item.table.formats(item.row, item.column.key)[0]).slots[0].name
        published = [one.published and one.published[1].get(slot) for one in (item, other)]
        if ours.n and isinstance(published[0], float | int) and isinstance(published[1], float | int):
            ratio = published[0] / published[1]
            ways = (_ratio(slot, ours.of(name), ours.of(soft)) for name in names[1:])
            ways_of.setdefault((item.fact, ratio), TwoWays(item, ratio, *ways))  # table 7 is printed twice
    return tuple(ways_of.values())


def evidence(ways: Sequence[TwoWays]) -> str:
    """Say what the ratios show."""
    apart = [way for way in ways if way.nearer != "same"]
    kept = sum(way.nearer == "gates kept" for way in apart)
    return (
        f"In {len(apart)} of {len(ways)} rows the two ways differ by more than a hundredth. There the published ratio "
        f"is nearer to the one with gates kept in {kept}, to the equation's in {len(apart) - kept}."
    )
