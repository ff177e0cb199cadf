"""Runs of SmolLM2-135M that can decide what those of tables 11, 13 and 14 leave open: docs/log/studies.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.analysis.claims import Claims, Estimate, Outcome, Tally, none
from experiments.analysis.estimates import difference_of_shares, exact, share
from experiments.analysis.evidence import Evidence
from experiments.analysis.selection import PRUNED, RIVALS, Selection, base_of
from experiments.analysis.tables import PM, OwnTable, column, row
from experiments.studies.model import Study
from experiments.studies.peft import SMALL, TASKS, learned, middle_third
from experiments.studies.peft_small import SCORES, method_row
from experiments.studies.pruning import SHORT, TARGETS, ladder_row, pruned
from experiments.studies.pruning_small import COLUMNS, LADDER_RUNS, method_rows

RATE = 2e-3
"""Learning rate of NGN's terms, by ``experiment=choose_rate``."""
MANY = 1300
"""Questions of a score, or as many as a task has."""
LONG = {"train.epochs": 4}
STRONG_RUNS: Mapping[str, Selection] = {
    "one": replace(LADDER_RUNS["ffn-updated-1e-2"], companions=tuple(sorted({"base": base_of, **PRUNED}.items()))),
    "four": pruned("ffn", "updated", 2, SMALL, LONG, PRUNED),
}
"""Epochs → runs of table 14's kind at the price 1e-2, with their rivals."""
UPDATED_RUNS = {f"{target}-updated": pruned(target, "updated", 1, SMALL, SHORT) for target in TARGETS}
TRAINED_RUNS = {
    f"{target}-trained-1e-{power}": pruned(target, "trained", power, SMALL, SHORT)
    for target in TARGETS
    for power in (1, 2, 3)
}
"""Table 13's frozen backbones, trained first. Key → runs."""
DENSE = pruned("ffn", "trained", 3, {**SMALL, "method": "fixed"}, {**SHORT, "method.count": (16,) * 30})
SNAPPED_RUNS = {
    task: learned(task, "adapter", choices=SMALL).with_overrides({"schedule.alpha_max": 0.1}) for task in TASKS.values()
}

ASKED = ("wikisql_easy", "wikisql_hard", "squad")


def _adalora(selection: Selection, seed: int, record: Mapping[str, Any]) -> Selection:
    """Select AdaLoRA with the same total, at the rate that was found for it."""
    selected = RIVALS["adalora"](selection, seed, record)
    return replace(selected, overrides=tuple(pair for pair in selected.overrides if pair[0] != "train.lr"))


ASKED_RUNS = {
    task: replace(
        learned(task, "lora", choices=SMALL).with_overrides({"task.eval_examples": MANY, "train.lr": RATE}),
        companions=(("adalora", _adalora), ("base", base_of), ("sora", RIVALS["sora"])),
    )
    for task in ASKED
}

PRICED_RUNS = {
    f"{task}-{price}": learned(task, "lora", (0, 1, 2), choices=SMALL)
    .with_overrides({"schedule.lambda0": float(price), "phases": ("grown",)})
    .only("base")
    for task in ("wikisql_easy", "wikisql_hard")
    for price in ("3e-3", "1e-2")
}
"""Task and price → runs of table 11's kind at that price."""

STRONG = OwnTable(
    "pruning_smollm2_strong",
    "Feed-forward pruning at the price 1e-2 on SmolLM2-135M, budget=cpu",
    COLUMNS,
    tuple(line for epochs, runs in STRONG_RUNS.items() for line in method_rows(epochs, runs)),
    text="Table 14 where more is removed: all weights trained, for one and for four epochs of 60,000 tokens. Wanda and "
    "random keep as many neurons in each layer as NGN learned, chosen one by one, and train equally long on the same "
    "batches. Some ran on a CPU and some on a GPU, all in float32; each record names its device.",
    rank=12,
)

TRAINED = OwnTable(
    "pruning_smollm2_trained",
    "Pruning of SmolLM2-135M, budget=cpu: a high price, and backbones that were trained first",
    COLUMNS,
    (
        *(ladder_row(key, runs, 1) for key, runs in UPDATED_RUNS.items()),
        row("dense", "none", "trained", "--", seeds=1, runs=DENSE, dashes=("integer", "soft")),
        *(ladder_row(key, runs) for key, runs in TRAINED_RUNS.items()),
    ),
    text="Table 13 on SmolLM2-135M-Instruct, continued. All weights of a trained backbone are first trained for one "
    "pass over the 60,000 tokens, with nothing removed. Then they are frozen, and one more pass learns the sizes "
    "alone. So it knows the form of the answers, which the original does not. The row without a target is that model.",
    rank=13,
)

SNAPPED = OwnTable(
    "adapter_smollm2_snapped",
    "Adapter width with a snapping strength of 0.1, SmolLM2-135M, budget=cpu",
    SCORES,
    tuple(
        method_row(label, task, about, SNAPPED_RUNS[task]) for label, task in TASKS.items() for about in ("", "fixed")
    ),
    text="The adapters of table 11 with alpha up to 0.1, the upper end of the paper's range, instead of 0.05.",
    rank=14,
)

ASKED_LORA = OwnTable(
    "lora_smollm2_asked",
    "LoRA rank with more questions, SmolLM2-135M, budget=cpu",
    (*SCORES, column("nats", "nats", "nats", "<value:.3f>")),
    tuple(
        method_row(label, task, about, ASKED_RUNS[task])
        for label, task in TASKS.items()
        if task in ASKED_RUNS
        for about in ("", "sora", "adalora")
    ),
    text="Three methods of table 11 on all test questions, at most 1,300. The rates of NGN and of AdaLoRA were each "
    "chosen on held-out training questions (experiment=choose_rate, choose_adalora); SoRA has that of NGN.",
    rank=15,
)

_SPREAD = f"<mean:.1f>{PM}<sd:.1f>"

PRICED = OwnTable(
    "lora_smollm2_prices",
    "LoRA rank at higher prices, three seeds, SmolLM2-135M, budget=cpu",
    (
        column("size", "size", "size", f"{_SPREAD} (<min:.0f> to <max:.0f>)"),
        column("early", "early", "early", _SPREAD),
        column("mid", "middle", "mid", _SPREAD),
        column("late", "late", "late", _SPREAD),
        column("score", "truncated", "truncated", _SPREAD),
    ),
    tuple(
        row(key, key.rsplit("-", 2)[0].replace("wikisql_", "WikiSQL-"), key[-4:], seeds=3, runs=runs)
        for key, runs in PRICED_RUNS.items()
    ),
    text="Where ranks are learned: their sums over thirds of the layers, at prices above the 1e-3 of table 11.",
    rank=16,
)


def _standins() -> list[Selection]:
    """Select, in order of worth: high prices, trained backbones, adapters, rivals with more questions, ranks."""
    learned_sizes = [STRONG_RUNS["four"], *UPDATED_RUNS.values(), DENSE, *TRAINED_RUNS.values()]
    return [STRONG_RUNS["one"], *learned_sizes, *SNAPPED_RUNS.values(), *ASKED_RUNS.values(), *PRICED_RUNS.values()]


STANDINS = Study(
    "standins_smollm2",
    "tables 11, 13 and 14 on SmolLM2-135M: higher prices, trained backbones, more questions and seeds",
    _standins,
    rank=508,
)

claim = Claims(1300)
_STUDY = "study standins_smollm2"
_PREMISE = "before results; premise on collapsed models since 2026-11-28, after results"
_RANDOM = ("random0", "random1", "random2")
_NAMES = {task: label for label, task in TASKS.items()}


def _answers(
    evidence: Evidence, runs: Selection, what: str, of: str = "", score: str = "truncated"
) -> tuple[float, int]:
    """A score of one run, or of its companion ``of``, as (share of right answers, number of questions)."""
    names = [f"{of}/{key}" if of else key for key in (score, "n")]
    samples = evidence.samples(runs, names, f"{what}, {of}" if of else what)
    return float(samples[names[0]][0]) / 100, int(samples[names[1]][0])


def _standing(evidence: Evidence, models: Mapping[str, Selection]) -> Estimate:
    """A premise: no pruned model has collapsed, in perplexity (over 100 times the base's) and in score (under 10 %)."""
    samples = [evidence.samples(runs, ["forgetting", "truncated"], what) for what, runs in models.items()]
    collapsed = sum(float(each["forgetting"][0]) > 100 and float(each["truncated"][0]) < 10 for each in samples)
    return Estimate("collapsed models", exact(collapsed), most=0, spec=".0f")


@claim("prune_random_strong", _STUDY, _PREMISE)
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
    standing = _standing(evidence, {what: runs, "one epoch at 1e-1": UPDATED_RUNS["ffn-updated"]})
    return Outcome(parts, because, [Estimate("blocks of neurons kept, %", exact(kept), most=50), standing])


@claim("prune_frozen_trained", _STUDY, _PREMISE)
def _frozen(evidence: Evidence) -> Outcome:
    """Freezing weights that were trained first forgets no more than updating them, at the prices 1e-1 and 1e-2."""
    more, listed = 0, []
    models: dict[str, Selection] = {}
    for target in TARGETS:
        for power, updated in ((1, UPDATED_RUNS[f"{target}-updated"]), (2, LADDER_RUNS[f"{target}-updated-1e-2"])):
            own = {"frozen": TRAINED_RUNS[f"{target}-trained-1e-{power}"], "updated": updated}
            own = {f"{target} at 1e-{power}, {kind}": runs for kind, runs in own.items()}
            pair = [float(evidence.samples(runs, ["forgetting"], what)["forgetting"][0]) for what, runs in own.items()]
            models |= own
            more += pair[0] > pair[1]
            listed.append(f"{target} 1e-{power} {pair[0]:.2f}/{pair[1]:.2f}")
    because = f"perplexity over the base's, frozen/updated: {', '.join(listed)}"
    part = none("pairs in which the frozen one forgets more", more)
    return Outcome([part], because, [_standing(evidence, models)])


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
        [*parts, none("tasks together with no fewer such boundaries", int(between[0] >= between[1]))],
        f"boundaries between 0.1 and 0.9: {between[0]}, with 0.05 {between[1]}",
    )


@claim("peft_baselines_asked", _STUDY)
def _asked(evidence: Evidence) -> Outcome:
    """With all test questions of three tasks NGN scores no lower than SoRA and no lower than AdaLoRA. The rates of NGN
    and AdaLoRA were chosen on held-out questions; SoRA's was not, it has NGN's."""
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
        samples = evidence.samples(runs, ["early", "mid", "late"], key)
        parts.append(middle_third([round(float(samples[part].sum())) for part in ("early", "mid", "late")], key, key))
    return Outcome(parts)
