"""Made-up runs of SmolLM2-135M that agree or disagree with the claims of the study ``standins_smollm2``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import record_samples as samples

from experiments.analysis.selection import Selection, selected_runs
from experiments.store.records import Store
from experiments.studies.peft import SMALL, TASKS, learned
from experiments.studies.pruning import TARGETS
from experiments.studies.pruning_small import LADDER_RUNS
from experiments.studies.standins import ASKED_RUNS, PRICED_RUNS, SNAPPED_RUNS, STRONG_RUNS, TRAINED_RUNS, UPDATED_RUNS

Fill = Callable[[Store], None]


def adapted(every: Iterable[Selection], **changes: Any) -> Fill:
    def fill(store: Store) -> None:
        for runs in every:
            for seed in runs.seeds:
                samples.adapt(store, runs, seed, **changes)

    return fill


def beside_random(store: Store, runs: Selection, score: float) -> None:
    """Write the random neurons of pruned runs that are there, with this score."""
    (run,) = selected_runs(runs)
    record = store.get(run.id)
    for name, find in runs.companions:
        if record is not None and name.startswith("random"):
            beside = find(runs, 0, record)
            gate, counts = beside.config(0).gate, record["phases"]["grown"]["count"]
            samples.put(store, beside, 0, {"fixed": samples.answers(counts, gate, score, 30.0)})


def strong(ngn: float) -> Fill:
    """Write a pruned model with this score beside Wanda with 70 and random neurons with 17."""

    def fill(store: Store) -> None:
        samples.adapt(store, UPDATED_RUNS["ffn-updated"])
        samples.adapt(store, STRONG_RUNS["four"], score=ngn, rival=70.0)
        beside_random(store, STRONG_RUNS["four"], 17.0)

    return fill


def frozen(perplexity: float) -> Fill:
    """Write frozen models of this perplexity and updated ones of 30."""

    def fill(store: Store) -> None:
        for target in TARGETS:
            updated = (UPDATED_RUNS[f"{target}-updated"], LADDER_RUNS[f"{target}-updated-1e-2"])
            trained = [TRAINED_RUNS[f"{target}-trained-1e-{power}"] for power in (1, 2)]
            for runs, found in (*((each, 30.0) for each in updated), *((each, perplexity) for each in trained)):
                made = samples.adapt(store, runs)
                made["phases"]["grown"]["truncated"]["perplexity"] = found
                store.write(made, replace=True)

    return fill


def snapped(soft: float, t: float) -> Fill:
    """Write adapters whose soft scores are higher by ``soft``; boundaries of the weaker snapping all end at ``t``."""

    def fill(store: Store) -> None:
        adapted(SNAPPED_RUNS.values(), soft=soft, questions=20_000)(store)
        for task in TASKS.values():
            runs = learned(task, "adapter", choices=SMALL)
            adapted([runs])(store)
            for run in selected_runs(runs):
                made = store.get(run.id)
                assert made is not None
                made["phases"]["grown"]["t"] = [t] * len(made["phases"]["grown"]["t"])
                store.write(made, replace=True)

    return fill


OF_STANDINS: dict[str, tuple[Fill, Fill]] = {
    "prune_random_strong": (strong(70.0), strong(30.0)),
    "prune_frozen_trained": (frozen(29.0), frozen(31.0)),
    "adapter_close_snapped": (snapped(1.0, 0.5), snapped(1.0, 1.0)),
    "peft_baselines_asked": (adapted(ASKED_RUNS.values(), score=80.0), adapted(ASKED_RUNS.values(), score=20.0)),
    "peft_middle_prices": (adapted(PRICED_RUNS.values()), adapted(PRICED_RUNS.values(), third=2)),
}
