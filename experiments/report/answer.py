"""The answer first: how much of the paper was run again, and how it came out, in sentences."""

from __future__ import annotations

from collections import Counter

from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN
from experiments.report.claims import NOT_SUPPORTED, SUPPORTED, UNTESTED, Judged
from experiments.report.content import ReportContent

BEYOND = "study "
"""How the place of a statement begins that is not the paper's."""


def of_the_paper(report: ReportContent) -> tuple[Judged, ...]:
    """The paper's statements as it makes them, without those that were judged on another model."""
    return tuple(c for c in report.claims if not c.where.startswith(BEYOND) and ", on " not in c.where)


def headline(report: ReportContent) -> tuple[str, str]:
    """Two sentences: on the paper's numbers, then on its statements."""
    counts, total = report.counts, report.counts.total()
    run = total - counts[NOT_RUN]
    words = Counter(claim.word for claim in of_the_paper(report))
    if not run:
        return f"None of the paper's {total} numbers has been run yet.", "None of its statements has been tested yet."
    return (
        f"We ran {run} of the paper's {total} numbers again: {counts[AGREES]} agree, {counts[DISAGREES]} disagree, and "
        f"for {counts[CANNOT_TELL]} the runs cannot tell.",
        f"Of its {words.total()} statements {words[SUPPORTED]} hold in our runs, {words[NOT_SUPPORTED]} do not, and "
        f"{words[UNTESTED]} could not be tested.",
    )
