"""Alternative settings beside the stated one: the paper's numbers and statements under both, with their verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from experiments.analysis.claims import UNTESTED, Judged
from experiments.analysis.collect import Alternative, AlternativeReader, Reader
from experiments.analysis.compare import Comparison, compare_cell, verdict_counts, words_of_facts
from experiments.analysis.reduce import Cell, reduce_row
from experiments.analysis.selection import Selection, selected_runs
from experiments.analysis.tables import OwnTable, Row, Table
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN, SETTING
from experiments.studies import OWN, STUDIES, judge_all, macros
from experiments.studies.model import Study

T = TypeVar("T")
VerdictCounts = tuple[Counter[str], Counter[str]]
"""Numbers by verdict, under the stated and under the alternative setting."""


@dataclass(frozen=True)
class Pair(Generic[T]):
    """The same thing under the stated and under the alternative setting."""

    stated: T
    other: T


@dataclass(frozen=True)
class Fact:
    """A fact that both settings can judge: the last cells that print it, and its verdicts."""

    cells: Pair[Comparison]
    words: Pair[str]


@dataclass(frozen=True)
class PlannedTest:
    """The facts and statements by which a plan judges its alternative setting.

    Attributes:
        judged: those that both settings can judge: (name or text, verdict as stated, verdict under the alternative).
        missing: the number of those that cannot be judged yet.
    """

    judged: tuple[tuple[str, str, str], ...]
    missing: int

    def which(self, stated: str = "", other: str = "") -> list[str]:
        """Return the names of those with these verdicts; an empty word stands for any."""
        return [name for name, a, b in self.judged if stated in ("", a) and other in ("", b)]


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
    def facts(self) -> tuple[Fact, ...]:
        """Every fact that both settings can judge."""
        last = {pair.stated.fact: pair for pair in self.cells}
        stated = words_of_facts(pair.stated for pair in self.cells)
        other = words_of_facts(pair.other for pair in self.cells)
        return tuple(Fact(last[fact], Pair(word, other[fact])) for fact, word in stated.items() if fact in other)

    def fact_counts(self, tables: str = "") -> VerdictCounts:
        """Count the facts of tables whose name begins with ``tables``."""
        named = {pair.stated.fact for pair in self.cells if pair.stated.table.name.startswith(tables)}
        words = [fact.words for fact in self.facts if fact.cells.stated.fact in named]
        return Counter(pair.stated for pair in words), Counter(pair.other for pair in words)

    @property
    def counts(self) -> Mapping[str, VerdictCounts]:
        """The numbers of cells, of facts that both settings can judge, and of statements."""
        ends = ("stated", "other")
        cells, again = (verdict_counts(getattr(pair, end) for pair in self.cells) for end in ends)
        claims, claims_again = (Counter(getattr(pair, end).word for pair in self.claims) for end in ends)
        return {"cells": (cells, again), "facts": self.fact_counts(), "statements": (claims, claims_again)}

    @property
    def disagreeing(self) -> tuple[Fact, ...]:
        """The facts that disagree under either setting."""
        return tuple(fact for fact in self.facts if DISAGREES in (fact.words.stated, fact.words.other))

    @cached_property
    def test(self) -> PlannedTest:
        """The facts and statements that the plan names as its test."""
        facts = {
            pair.stated.fact
            for pair in self.cells
            if f"{pair.stated.table.name}.{pair.stated.row.key}" in self.alternative.test
            and pair.stated.verdict.word != SETTING
        }
        claims = [pair for pair in self.claims if pair.stated.where in self.alternative.test]
        judged = [
            (f"`{fact.cells.stated.name}`", fact.words.stated, fact.words.other)
            for fact in self.facts
            if fact.cells.stated.fact in facts
        ]
        judged += [
            (pair.stated.text.rstrip("."), pair.stated.word, pair.other.word)
            for pair in claims
            if pair.other.word != UNTESTED
        ]
        return PlannedTest(tuple(judged), len(facts) + len(claims) - len(judged))

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs behind its cells under the alternative setting."""
        return tuple(run_id for pair in self.cells for run_id in pair.other.cell.run_ids)


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


def _compared(reader: Reader, of: Alternative, table: Table, row: Row, column: str) -> Comparison:
    item = compare_cell(reader, table, row, table.column(column), among=macros())
    found = f"{table.name}.{row.key}" in of.found_by
    return replace(item, verdict=replace(item.verdict, calibrated=item.verdict.calibrated or found))


def _beside(
    reader: Reader, study: Study, of: Alternative, items: Sequence[Comparison], claims: Sequence[Judged]
) -> BothSettings:
    under = AlternativeReader(reader, of.runs, of.reading)
    names = {_first(selection) for selection in study.make()}

    def covers(row: Row) -> bool:
        return row.runs is not None and _first(of.runs(row.runs)) in names

    pairs = [
        Pair(item, _compared(under, of, item.table, item.row, item.column.key))
        for item in items
        if not item.stand_in and covers(item.row)
    ]
    own = [
        (table, tuple((row, Pair(reduce_row(reader, table, row), reduce_row(under, table, row))) for row in table.rows))
        for table in OWN.values()
        if all(covers(row) for row in table.rows)
    ]
    judged = {claim.key: claim for claim in judge_all(under, [*items, *(pair.other for pair in pairs)])}
    return BothSettings(
        study,
        of,
        tuple(pair for pair in pairs if not _same(pair.stated.cell, pair.other.cell)),
        tuple(Pair(claim, judged[claim.key]) for claim in of_the_paper(claims) if claim != judged[claim.key]),
        tuple(own),
    )


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
