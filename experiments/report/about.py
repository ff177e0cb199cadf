"""What follows about the paper: the comparisons of alternative settings, sorted for ``about_the_paper.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from experiments.analysis.claims import UNTESTED
from experiments.analysis.verdict import AGREES, DISAGREES, SETTING
from experiments.report.alternatives import BothSettings, CellPair, ClaimPair

Sorted = dict[tuple[bool, bool], tuple[CellPair, ...]]
"""(disagrees as stated, disagrees under the alternative) → one cell of each such fact."""


@dataclass(frozen=True)
class PlannedTest:
    """The facts and statements by which a plan judges its alternative setting.

    Attributes:
        stated, other: their number by verdict under either setting, of those that both can judge.
        worse: those that agree as stated and disagree under the alternative, in words.
        left: those that disagree under the alternative, in words.
        missing: those that the alternative's records cannot judge yet.
    """

    stated: Counter[str]
    other: Counter[str]
    worse: tuple[str, ...]
    left: tuple[str, ...]
    missing: int

    @property
    def judged(self) -> int:
        """The number of facts and statements that both settings can judge."""
        return self.other.total()


def planned_test(both: BothSettings) -> PlannedTest:
    """Sort the facts and statements that the plan of an alternative setting names as its test."""
    facts: dict[Hashable, str] = {
        pair.stated.fact: f"`{pair.stated.name}`"
        for pair in both.cells
        if _row(pair) in both.alternative.test and pair.stated.verdict.word != SETTING
    }
    claims = [pair for pair in both.claims if pair.stated.where in both.alternative.test]
    pairs = [(name, *both.facts[fact]) for fact, name in facts.items() if fact in both.facts]
    pairs += [
        (pair.stated.text.rstrip("."), pair.stated.word, pair.other.word)
        for pair in claims
        if pair.other.word != UNTESTED
    ]
    return PlannedTest(
        Counter(stated for _, stated, _ in pairs),
        Counter(other for *_, other in pairs),
        tuple(name for name, stated, other in pairs if (stated, other) == (AGREES, DISAGREES)),
        tuple(name for name, _, other in pairs if other == DISAGREES),
        len(facts) + len(claims) - len(pairs),
    )


def _row(pair: CellPair) -> str:
    return f"{pair.stated.table.name}.{pair.stated.row.key}"


def sort_facts(both: BothSettings) -> Sorted:
    """Sort one cell of each fact that both settings can judge by whether it disagrees under either.

    The cell is the last that prints the fact, which is the one with a deviation where a table has it.
    """
    cell = _last(both)
    found: dict[tuple[bool, bool], list[CellPair]] = {}
    for fact, (stated, other) in both.facts.items():
        found.setdefault((stated == DISAGREES, other == DISAGREES), []).append(cell[fact])
    return {key: tuple(pairs) for key, pairs in found.items()}


def _last(both: BothSettings) -> dict[Hashable, CellPair]:
    return {pair.stated.fact: pair for pair in both.cells}


def last_cells(both: BothSettings) -> tuple[CellPair, ...]:
    """Return one cell of each fact, run or not: the last that prints it."""
    return tuple(_last(both).values())


def facts_of(both: BothSettings, tables: str) -> tuple[Counter[str], Counter[str]]:
    """Count the facts of tables whose name begins with ``tables`` by verdict, under either setting."""
    facts = {pair.stated.fact for pair in both.cells if pair.stated.table.name.startswith(tables)}
    words = [both.facts[fact] for fact in facts if fact in both.facts]
    return Counter(stated for stated, _ in words), Counter(other for _, other in words)


def sort_claims(both: BothSettings) -> dict[tuple[str, str], tuple[ClaimPair, ...]]:
    """Sort statements by their verdicts under the stated and the alternative setting."""
    found: dict[tuple[str, str], list[ClaimPair]] = {}
    for pair in both.claims:
        found.setdefault((pair.stated.word, pair.other.word), []).append(pair)
    return {words: tuple(pairs) for words, pairs in found.items()}
