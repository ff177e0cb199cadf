"""The answer in sentences: how much of the paper was run again, how it came out, and what it says of each method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from experiments.analysis.claims import BY_CONSTRUCTION, UNTESTED, Judged
from experiments.analysis.compare import verdict_counts
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN
from experiments.core.source import Source
from experiments.methods import METHODS
from experiments.report.alternatives import BEYOND, of_the_paper
from experiments.report.content import ReportContent


def _said(which: str, claims: Iterable[Judged]) -> str:
    """Say how statements come out. Those that hold by construction say nothing about the paper and are not counted."""
    words = Counter(claim.word for claim in claims if claim.word != BY_CONSTRUCTION)
    untested = f", and {words[UNTESTED]} could not be tested" if words[UNTESTED] else ""
    return (
        f"Of {which.format(words.total())} {words[AGREES]} agree with our runs, {words[DISAGREES]} disagree, for "
        f"{words[CANNOT_TELL]} the runs cannot tell{untested}"
    )


def headline(report: ReportContent) -> tuple[str, ...]:
    """Say how the paper's numbers, its statements and those of studies beyond it come out, a sentence each."""
    counts, total = report.counts, report.counts.total()
    run = total - counts[NOT_RUN]
    if not run:
        return f"None of the paper's {total} numbers has been run yet.", "None of its statements has been tested yet."
    beyond = [claim for claim in report.claims if claim.where.startswith(BEYOND)]
    given = sum(claim.word == BY_CONSTRUCTION for claim in report.claims)
    return (
        f"We ran {run} of the paper's {total} numbers again: {counts[AGREES]} agree, {counts[DISAGREES]} disagree, and "
        f"for {counts[CANNOT_TELL]} the runs cannot tell.",
        f"{_said('its {} statements', of_the_paper(report.claims))}.",
        f"{_said('{} statements of studies beyond the paper', beyond)}; {given} more hold by construction.",
    )


def methods(report: ReportContent) -> list[tuple[str, Source, Counter[str]]]:
    """Return every method that has a source, with the cells of its rows by verdict, in the order of their ranks."""
    rows = [
        (dict(item.row.runs.choices).get("method", "ngn"), item) for item in report.items if item.row.runs is not None
    ]
    sources = {name: method.source for name, method in METHODS.items() if method.source is not None}
    return [
        (name, source, verdict_counts(item for method, item in rows if method == name))
        for name, source in sorted(sources.items(), key=lambda pair: (pair[1].rank, pair[0]))
    ]
