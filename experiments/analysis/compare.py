"""Compare every cell, and every stand-in, with its published value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from experiments.analysis.collect import Reader
from experiments.analysis.published import value_of
from experiments.analysis.reduce import Cell, reduce_cell, sample
from experiments.analysis.selection import MOST_SEEDS, Selection
from experiments.analysis.tables import Column, Format, Number, Row, Table, Value, parse_format
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, LEVEL, Verdict, judge_cell, published_numbers


@dataclass(frozen=True)
class Comparison:
    """One compared cell. For the row's own runs, ``stand_in`` is empty."""

    table: Table
    row: Row
    column: Column
    cell: Cell
    published: tuple[Format, Value] | None
    verdict: Verdict
    stand_in: str = ""

    @property
    def name(self) -> str:
        """``macro.row.column``."""
        return f"{self.table.name}.{self.row.key}.{self.column.key}"

    @property
    def published_text(self) -> str:
        """The text in the paper; empty for a dash."""
        return "" if self.published is None else self.published[0].render(self.published[1])

    @property
    def fact(self) -> Hashable:
        """What the cell is about. Cells of the same runs and quantity share one fact, in any statistic."""
        runs = self.row.runs.with_seeds(()).only()
        return runs, self.row.seeds, self.table.quantity(self.row, self.column.key)


def _others(tables: Iterable[Table], row: Row, column: str) -> dict[str, Number | Sequence[Number]]:
    """Merge the published numbers of a column from all ``tables`` that print this row, such as omitted deviations."""
    numbers: dict[str, Number | Sequence[Number]] = {}
    for table in tables:
        if any(line is row for line in table.rows) and any(other.key == column for other in table.columns):
            published = value_of(table, row, column)
            numbers.update(published_numbers(*published) if published else {})
    return numbers


def compare_cell(
    reader: Reader,
    table: Table,
    row: Row,
    column: Column,
    selection: Selection | None = None,
    stand_in: str = "",
    among: Sequence[Table] = (),
) -> Comparison:
    """Reduce one cell, from ``selection`` if given, and judge it: a row's own by all its seeds that there are.

    Args:
        among: further tables whose published numbers of this row and column count.
    """
    cell, quantity = reduce_cell(reader, table, row, column.key, selection), table.quantity(row, column.key)
    own = [slot.quantity(quantity) for slot in parse_format(table.formats(row, column.key)[0]).slots]
    judged = cell if selection else sample(reader.collect(row.runs.with_seeds(range(MOST_SEEDS))), own, own)
    published, others = value_of(table, row, column.key), _others((table, *among), row, column.key)
    verdict = judge_cell(judged, published, quantity, row.seeds, others, column.key in row.calibrated)
    return Comparison(table, row, column, cell, published, verdict, stand_in)


def compare_all(
    reader: Reader,
    macros: Sequence[Table],
    task: str | None = None,
    among: Sequence[Table] = (),
) -> list[Comparison]:
    """Compare every cell that holds a number, and each stand-in with at least one run.

    Args:
        task: only rows whose runs are of this task.
        among: tables that may print a row once more, with further published numbers; ``macros`` are always among them.
    """
    compared: list[Comparison] = []
    among = (*macros, *among)
    for table in macros:
        for row in table.rows:
            if task is not None and dict(row.runs.choices)["task"] != task:
                continue
            columns = [column for column in table.columns if column.key not in row.dashes]
            compared += [compare_cell(reader, table, row, column, among=among) for column in columns]
            for stand_in in row.stand_ins:
                other = row.runs.with_overrides(stand_in.overrides, stand_in.choices)
                if reader.collect(other).runs:
                    compared += [compare_cell(reader, table, row, c, other, stand_in.name, among) for c in columns]
    return compared


def verdict_counts(comparisons: Iterable[Comparison]) -> Counter[str]:
    """Count the cells per verdict, without stand-ins."""
    return Counter(item.verdict.word for item in comparisons if not item.stand_in)


WORDS = (AGREES, DISAGREES, CANNOT_TELL)


@dataclass(frozen=True)
class Totals:
    """Facts by verdict, each counted once, and what to expect by chance.

    Attributes:
        facts: those by which no setting was chosen.
        calibrated: the others. Their agreement is no evidence.
        enough: how many seeds of ours would tell, of each fact in ``facts`` that cannot be told; infinite for none.
        tests: distinct tests that could reject.
    """

    facts: Counter[str]
    calibrated: Counter[str]
    enough: tuple[float, ...]
    tests: int

    def shown(self, word: str) -> str:
        """The facts with a verdict: ``24``, with calibrated ones ``24 + 8``; empty if there are none."""
        more = f" + {self.calibrated[word]}" if self.calibrated[word] else ""
        return f"{self.facts[word]}{more}" if self.facts[word] or more else ""

    @property
    def said(self) -> str:
        """The facts by verdict in a sentence, calibrated ones apart."""
        whole, apart = (
            f"{counted[AGREES]} agree, {counted[DISAGREES]} disagree, {counted[CANNOT_TELL]} cannot be told"
            for counted in (self.facts, self.calibrated)
        )
        more = f" {self.calibrated.total()} more chose settings (calibrated): {apart}." if self.calibrated else ""
        return f"Of {self.facts.total()} facts, each counted once, {whole}.{more}"

    def __str__(self) -> str:
        if not self.facts + self.calibrated:
            return "No cell has runs that could be judged yet."
        text = (
            f"{self.said} There are {self.tests} distinct tests; by chance alone at most {LEVEL * self.tests:.1f} "
            "would reject."
        )
        if self.enough:
            told = sum(map(math.isfinite, self.enough))
            text += f" More seeds of ours would tell {told} of the {len(self.enough)}; else the paper's are too few."
        return text


def _by_fact(comparisons: Iterable[Comparison]) -> dict[Hashable, list[Comparison]]:
    """Return the judged cells of each fact, without stand-ins."""
    facts: dict[Hashable, list[Comparison]] = {}
    for item in comparisons:
        if not item.stand_in and item.verdict.word in WORDS:
            facts.setdefault(item.fact, []).append(item)
    return facts


def words_of_facts(comparisons: Iterable[Comparison]) -> dict[Hashable, str]:
    """Return the verdict on each fact. It disagrees if any of its cells does, and agrees if one does."""
    words = {fact: {item.verdict.word for item in items} for fact, items in _by_fact(comparisons).items()}
    return {fact: next(word for word in (DISAGREES, AGREES, CANNOT_TELL) if word in of) for fact, of in words.items()}


def totals(comparisons: Sequence[Comparison]) -> Totals:
    """Count facts and tests; stand-ins are left out. A fact is calibrated if any of its cells is."""
    by_fact, words = _by_fact(comparisons), words_of_facts(comparisons)
    calibrated = {fact for fact, items in by_fact.items() if any(item.verdict.calibrated for item in items)}
    open_ = [items for fact, items in by_fact.items() if words[fact] == CANNOT_TELL and fact not in calibrated]
    decisive = ((fact, item.verdict) for fact, items in by_fact.items() for item in items if item.verdict.decisive)
    return Totals(
        Counter(word for fact, word in words.items() if fact not in calibrated),
        Counter(words[fact] for fact in calibrated),
        tuple(min(item.verdict.enough or math.inf for item in items) for items in open_),
        len({(fact, *(part.name for part in verdict.parts)) for fact, verdict in decisive}),
    )
