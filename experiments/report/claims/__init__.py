"""What the paper states, and whether our records support it.

A claim is a sentence and a predicate over records. Thresholds are ours and stand in the sentence; those on the
baseline, the schedules, the frontier, depth and table 8 were set after their first results were known. Where runs are
paired, as the soft and the truncated model of a run are, and two schedules from one seed, pairs are compared. Those in
``extensions`` are not the paper's: they say what is expected of commits, budgets and orders.
``evidence`` is how a predicate reads records; the other modules hold the claims.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison
from experiments.report.claims import extensions, language, one_d, schedules, transfer
from experiments.report.claims.evidence import (
    NOT_SUPPORTED,
    SUPPORTED,
    UNTESTED,
    Claim,
    Evidence,
    Judged,
    Outcome,
    Untested,
)

CLAIMS: tuple[Claim, ...] = (*schedules.CLAIMS, *one_d.CLAIMS, *transfer.CLAIMS, *language.CLAIMS, *extensions.CLAIMS)


def judge(claim: Claim, reader: Reader, items: Mapping[str, Comparison]) -> Judged:
    """The verdict on one claim.

    Args:
        items: name → comparison of every cell of the tables, without stand-ins.
    """
    evidence = Evidence(reader, items)
    try:
        outcome = claim.predicate(evidence)
    except Untested as lack:
        return Judged(claim.key, claim.text, claim.where, UNTESTED, str(lack), ())
    word = SUPPORTED if outcome.holds else NOT_SUPPORTED
    return Judged(claim.key, claim.text, claim.where, word, outcome.because, tuple(dict.fromkeys(evidence.used)))


def judge_all(reader: Reader, items: Mapping[str, Comparison]) -> tuple[Judged, ...]:
    """The verdicts on all claims, in their order."""
    return tuple(judge(claim, reader, items) for claim in CLAIMS)


__all__ = [
    "CLAIMS",
    "NOT_SUPPORTED",
    "SUPPORTED",
    "UNTESTED",
    "Claim",
    "Evidence",
    "Judged",
    "Outcome",
    "Untested",
    "judge",
    "judge_all",
]
