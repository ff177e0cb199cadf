"""What the paper states, and whether our records support it.

A claim is a sentence and a predicate over records. Thresholds are ours and stand in the sentence; ``threshold`` says
which of them were chosen after results were known. Where runs are paired, as the soft and the truncated model of a run
are, and two schedules from one seed, pairs are compared. The claims in ``extensions`` are not the paper's. They say
what is expected of commits, budgets and orders. Reading order: ``evidence``, ``contract``, then the modules of claims.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.analysis.claims import BY_CONSTRUCTION, UNTESTED, Claim, Judged, judge_claim
from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison
from experiments.analysis.evidence import Evidence
from experiments.report.claims import extensions, language, one_d, schedules, standins, transfer

CLAIMS: tuple[Claim, ...] = (
    *schedules.CLAIMS,
    *one_d.CLAIMS,
    *transfer.CLAIMS,
    *language.CLAIMS,
    *standins.CLAIMS,
    *extensions.CLAIMS,
)


def judge_all(reader: Reader, items: Mapping[str, Comparison]) -> tuple[Judged, ...]:
    """Return the verdicts on all claims, in their order.

    Args:
        items: name → comparison of every cell of the tables, without stand-ins.
    """
    return tuple(judge_claim(claim, Evidence(reader, items)) for claim in CLAIMS)


__all__ = ["BY_CONSTRUCTION", "CLAIMS", "UNTESTED", "Claim", "Evidence", "Judged", "judge_all", "judge_claim"]
