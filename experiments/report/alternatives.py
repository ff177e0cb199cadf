"""Alternative settings beside the stated one: the paper's numbers and statements under both, with their verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from experiments.analysis.alternative import Alternative, AlternativeReader
from experiments.analysis.claims import Judged
from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison, compare_cell, verdict_counts, words_of_facts
from experiments.analysis.published import load_published
from experiments.analysis.reduce import Cell, reduce_cell
from experiments.analysis.selection import Selection, selected_runs
from experiments.analysis.tables import OwnTable, Row, Table
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN, SETTING
from experiments.studies import MACROS, OWN, STUDIES, judge_all
from experiments.studies.model import Study


@dataclass(frozen=True)
class CellPair:
    """One cell under the stated and under the alternative setting."""

    stated: Comparison
    other: Comparison


@dataclass(frozen=True)
class ClaimPair:
    """One statement of the paper, judged under both settings."""

    stated: Judged
    other: Judged


@dataclass(frozen=True)
class OwnRows:
    """A table that the paper lacks: each row with its cells under the stated and the alternative setting."""

    table: OwnTable
    rows: tuple[tuple[Row, tuple[Cell, ...], tuple[Cell, ...]], ...]


@dataclass(frozen=True)
class BothSettings:
    """A study of an alternative setting, with everything that it changes."""

    study: Study
    alternative: Alternative
    cells: tuple[CellPair, ...]
    claims: tuple[ClaimPair, ...]
    own: tuple[OwnRows, ...]

    @property
    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """Cells by verdict, under the stated and the alternative setting."""
        return verdict_counts(pair.stated for pair in self.cells), verdict_counts(pair.other for pair in self.cells)

    @cached_property
    def facts(self) -> Mapping[Hashable, tuple[str, str]]:
        """Fact → its verdict under the stated and the alternative setting."""
        stated, other = (
            words_of_facts(items)
            for items in ([pair.stated for pair in self.cells], [pair.other for pair in self.cells])
        )
        return {fact: (word, other[fact]) for fact, word in stated.items() if fact in other}

    @property
    def fact_counts(self) -> tuple[Counter[str], Counter[str]]:
        """Facts that both settings can judge, by verdict."""
        return Counter(word for word, _ in self.facts.values()), Counter(word for _, word in self.facts.values())

    @property
    def claim_counts(self) -> tuple[Counter[str], Counter[str]]:
        """Statements by verdict, under the stated and the alternative setting."""
        return Counter(pair.stated.word for pair in self.claims), Counter(pair.other.word for pair in self.claims)

    def changed(self, stated: Iterable[str], other: Iterable[str]) -> tuple[CellPair, ...]:
        """Return one cell of each fact whose verdict is one of ``stated`` and becomes one of ``other``."""
        of = {pair.stated.fact: pair for pair in reversed(self.cells)}
        return tuple(of[fact] for fact, (a, b) in self.facts.items() if a in stated and b in other)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs behind its cells under the alternative setting."""
        return tuple(run_id for pair in self.cells for run_id in pair.other.cell.run_ids)


def judged_words(alternatives: Iterable[BothSettings]) -> list[str]:
    """Return every verdict that cells or statements have: agreement first, then the words of statements."""
    counts = [counter for both in alternatives for pair in (both.counts, both.claim_counts) for counter in pair]
    found = {word for counter in counts for word in counter}
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
        and all(np.array_equal(numbers, other.samples[name]) for name, numbers in stated.samples.items())
    )


def _compared(reader: Reader, of: Alternative, table: Table, row: Row, column: str) -> Comparison:
    item = compare_cell(reader, load_published(), table, row, table.column(column), among=MACROS)
    found = f"{table.name}.{row.key}" in of.found_by
    return replace(item, verdict=replace(item.verdict, calibrated=item.verdict.calibrated or found))


def _beside(
    reader: Reader, study: Study, of: Alternative, items: Sequence[Comparison], claims: Sequence[Judged]
) -> BothSettings:
    under = AlternativeReader(reader, of)
    names = {_first(selection) for selection in study.make()}

    def covers(row: Row) -> bool:
        return row.runs is not None and _first(of.runs(row.runs)) in names

    pairs = [
        CellPair(item, _compared(under, of, item.table, item.row, item.column.key))
        for item in items
        if not item.stand_in and covers(item.row)
    ]
    own = [
        OwnRows(table, tuple((row, _cells(reader, table, row), _cells(under, table, row)) for row in table.rows))
        for table in OWN.values()
        if all(covers(row) for row in table.rows)
    ]
    by_name = {item.name: item for item in items if not item.stand_in} | {pair.other.name: pair.other for pair in pairs}
    judged = {claim.key: claim for claim in judge_all(under, by_name)}
    return BothSettings(
        study,
        of,
        tuple(pair for pair in pairs if not _same(pair.stated.cell, pair.other.cell)),
        tuple(ClaimPair(claim, judged[claim.key]) for claim in of_the_paper(claims) if claim != judged[claim.key]),
        tuple(own),
    )


def _cells(reader: Reader, table: OwnTable, row: Row) -> tuple[Cell, ...]:
    return tuple(reduce_cell(reader, table, row, column.key) for column in table.columns)


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
