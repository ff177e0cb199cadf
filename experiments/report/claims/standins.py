"""Claims on runs of SmolLM2-135M that can decide what the first ones could not; docs/log has the plan of each.

Scores are shares of one set of questions, from one seed, as in :mod:`experiments.report.claims.language`.
"""

from __future__ import annotations

import numpy as np

from experiments.analysis.claims import Estimate, Exact, Outcome, Tally, claim
from experiments.analysis.estimates import difference_of_shares, exact, share
from experiments.analysis.evidence import Evidence, Untested
from experiments.analysis.selection import Selection
from experiments.tables.peft import TASKS, learned
from experiments.tables.pruned import LADDER_RUNS
from experiments.tables.pruning import TARGETS
from experiments.tables.standins import (
    ASKED_RUNS,
    PRICED_RUNS,
    SMALL,
    SNAPPED_RUNS,
    STRONG_RUNS,
    TRAINED_RUNS,
    UPDATED_RUNS,
)

_STUDY = "study standins_smollm2"
_RANDOM = ("random0", "random1", "random2")
_NAMES = {task: label for label, task in TASKS.items()}


def _answers(
    evidence: Evidence, runs: Selection, what: str, of: str = "", score: str = "truncated"
) -> tuple[float, int]:
    """A score of one run, or of its companion ``of``, as (share of right answers, number of questions)."""
    names = [f"{of}/{key}" if of else key for key in (score, "n")]
    found = evidence.samples(runs, names, f"{what}, {of}" if of else what)
    return float(found[names[0]][0]) / 100, int(found[names[1]][0])


@claim("prune_random_strong", _STUDY)
def _random(evidence: Evidence) -> Outcome:
    """Pruning by NGN is far above random removal (20 points above each of three draws) and within 10 points of Wanda,
    where at least half of the neurons are removed: four epochs at the price 1e-2, and one at 1e-1."""
    runs, what = STRONG_RUNS["four"], "four epochs at 1e-2"
    ours, most = _answers(evidence, runs, what), _answers(evidence, UPDATED_RUNS["ffn-updated"], "one epoch at 1e-1")
    parts = [
        Estimate(
            f"NGN minus {name}", difference_of_shares(ours, _answers(evidence, runs, what, name)), 0.2, spec="+.1%"
        )
        for name in _RANDOM
    ]
    wanda, even = (_answers(evidence, runs, what, name) for name in ("wanda", "even"))
    parts.append(Estimate("NGN minus Wanda", difference_of_shares(ours, wanda), -0.1, 0.1, "+.1%"))
    # Its rivals have not been run, and need not be if it scores too little to be far above anything.
    parts.append(
        Estimate("NGN at 1e-1, above a random score of 0", share(round(most[0] * most[1]), most[1]), 0.2, spec="+.1%")
    )
    kept = float(evidence.samples(runs, ["blocks"], what)["blocks"][0])
    because = f"Wanda in NGN's sizes {100 * wanda[0]:.1f}, in even sizes {100 * even[0]:.1f}, NGN {100 * ours[0]:.1f}"
    return Outcome(parts, because, premises=[Estimate("blocks of neurons kept, %", exact(kept), most=50)])


@claim("prune_frozen_trained", _STUDY)
def _frozen(evidence: Evidence) -> Outcome:
    """Freezing weights that were trained first forgets no more than updating them, at the prices 1e-1 and 1e-2."""
    more, listed = 0, []
    for target in TARGETS:
        for power, updated in ((1, UPDATED_RUNS[f"{target}-updated"]), (2, LADDER_RUNS[f"{target}-updated-1e-2"])):
            pair = [
                float(evidence.samples(runs, ["forgetting"], f"{target} at 1e-{power}")["forgetting"][0])
                for runs in (TRAINED_RUNS[f"{target}-trained-1e-{power}"], updated)
            ]
            more += pair[0] > pair[1]
            listed.append(f"{target} 1e-{power} {pair[0]:.2f}/{pair[1]:.2f}")
    return Outcome(
        [Exact("pairs in which the frozen one forgets more", more)],
        f"perplexity over the base's, frozen/updated: {', '.join(listed)}",
    )


@claim("adapter_close_snapped", _STUDY)
def _snapped(evidence: Evidence) -> Outcome:
    """Adapter width with a snapping strength of 0.1: truncated scores are within three points of the soft ones, and
    fewer boundaries than with 0.05 end between 0.1 and 0.9."""
    parts, between = [], np.zeros(2, dtype=int)
    for task, runs in SNAPPED_RUNS.items():
        cut, soft = (_answers(evidence, runs, _NAMES[task], score=score) for score in ("truncated", "soft"))
        parts.append(Estimate(_NAMES[task], difference_of_shares(cut, soft), -0.03, 0.03, "+.1%"))
        for place, which in enumerate((runs, learned(task, "adapter", choices=SMALL))):
            t = [number for run in evidence.runs(which, task) for number in run.record["phases"]["grown"]["t"]]
            between[place] += sum(0.1 < number < 0.9 for number in t)
    return Outcome(
        [*parts, Exact("tasks together with no fewer such boundaries", int(between[0] >= between[1]))],
        f"boundaries between 0.1 and 0.9: {between[0]}, with 0.05 {between[1]}",
    )


@claim("peft_baselines_asked", _STUDY)
def _asked(evidence: Evidence) -> Outcome:
    """With all test questions of three tasks, and each method's rate chosen on held-out ones, NGN scores no lower than
    SoRA and no lower than AdaLoRA."""
    return Outcome(
        [
            Tally(
                f"tasks not below {name}",
                tuple(
                    Estimate(
                        _NAMES[task],
                        difference_of_shares(*(_answers(evidence, runs, _NAMES[task], of) for of in ("", name))),
                        0,
                    )
                    for task, runs in ASKED_RUNS.items()
                ),
                len(ASKED_RUNS),
            )
            for name in ("sora", "adalora")
        ]
    )


@claim("peft_middle_prices", _STUDY)
def _middle(evidence: Evidence) -> Outcome:
    """At the prices 3e-3 and 1e-2 the learned LoRA ranks of both WikiSQL tasks concentrate in the middle third of the
    layers: over three seeds it has as many as either other third."""
    parts = []
    for key, runs in PRICED_RUNS.items():
        found = evidence.samples(runs, ["early", "mid", "late"], key)
        early, mid, late = (round(float(found[part].sum())) for part in ("early", "mid", "late"))
        if mid + (other := max(early, late)) == 0:
            raise Untested(f"{key}: no rank was learned")
        parts.append(
            Estimate(
                f"middle third, of it and the larger of the others, {key}", share(mid, mid + other), 0.5, spec=".0%"
            )
        )
    return Outcome(parts)


CLAIMS = (_random, _frozen, _snapped, _asked, _middle)
