"""List the methods with their sources, the verdicts on the cells of their rows, and the claims about them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from experiments.analysis.claims import UNTESTED, Judged
from experiments.analysis.compare import verdict_counts
from experiments.contract.source import Source
from experiments.methods import METHODS
from experiments.report.content import ReportContent


@dataclass(frozen=True)
class MethodLine:
    """One method: its name on the command line, its source, cells by verdict, and claims about it."""

    method: str
    source: Source
    cells: Counter[str]
    claims: tuple[Judged, ...]


def lines(report: ReportContent) -> list[MethodLine]:
    """Make the line of every method that has a source, in the order of their ranks."""
    judged = {claim.key: claim for claim in report.claims if claim.word != UNTESTED}
    sources = {name: method.source for name, method in METHODS.items() if method.source is not None}
    made = []
    for method, source in sorted(sources.items(), key=lambda pair: (pair[1].rank, pair[0])):
        mine = [
            item
            for item in report.items
            if item.row.runs is not None and dict(item.row.runs.choices).get("method", "ngn") == method
        ]
        claims = tuple(judged[key] for key in source.claims if key in judged)
        made.append(MethodLine(method, source, verdict_counts(mine), claims))
    return made
