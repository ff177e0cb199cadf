"""Alternative settings beside the stated one: the paper's numbers and statements under both, with their verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from experiments.analysis.claims import UNTESTED, Judged
from experiments.analysis.collect import Alternative, AlternativeReader, Reader
from experiments.analysis.compare import Comparison, compare_cell, words_of_facts
from experiments.analysis.reduce import Cell, reduce_row
from experiments.analysis.selection import Selection, selected_runs
from experiments.analysis.tables import OwnTable, Row
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN, SETTING
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
        """By verdict, the numbers of cells, of facts that both settings can judge, and of statements."""
        cells = _counted(Pair(pair.stated.verdict.word, pair.other.verdict.word) for pair in self.cells)
        return {"cells": cells, "facts": self.fact_counts(), "statements": _counted(map(_words, self.claims))}

    @cached_property
    def _test(self) -> tuple[list[tuple[str, Pair[str]]], int]:
        named = {
            pair.stated.fact
            for pair in self.cells
            if f"{pair.stated.table.name}.{pair.stated.row.key}" in self.alternative.test
            and pair.stated.verdict.word != SETTING
        }
        claims = [pair for pair in self.claims if pair.stated.where in self.alternative.test]
        judged = [(f"`{pair.stated.name}`", words) for pair, words in self.facts if pair.stated.fact in named]
        judged += [(pair.stated.text.rstrip("."), _words(pair)) for pair in claims if pair.other.word != UNTESTED]
        return judged, len(named) + len(claims) - len(judged)

    @property
    def missing(self) -> int:
        """How many of the facts and statements that the plan names as its test cannot be judged yet."""
        return self._test[1]

    def tested(self, stated: str = "", other: str = "") -> list[str]:
        """Return those that both settings judge with these verdicts, by name or text; an empty word is any."""
        return [name for name, (a, b) in self._test[0] if stated in ("", a) and other in ("", b)]


def judged_words(alternatives: Iterable[BothSettings]) -> list[str]:
    """Return every verdict that cells or statements have: agreement first, then the words of statements."""
    found = {word for both in alternatives for pair in both.counts.values() for counter in pair for word in counter}
    first = [word for word in (AGREES, DISAGREES, CANNOT_TELL, SETTING, NOT_RUN) if word in found]
    return [*first, *sorted(found - set(first))]


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
        return row.runs is not None and _first(of.runs(row.runs)) in names

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
