"""Studies of adapted and of pruned language models."""

from __future__ import annotations

from dataclasses import replace

from experiments.analysis.selection import Selection, base_of
from experiments.contract.needs import NOTHING, Needs
from experiments.studies.model import Study
from experiments.tables.peft import TASKS, learned
from experiments.tables.pruned import LADDER_RUNS, MIXED, TASK_ONLY, VARIANTS, with_base_scores
from experiments.tables.pruning import LLAMA_PRUNED, PYTHIA, ladder
from experiments.tables.standins import (
    ASKED_RUNS,
    DENSE,
    PRICED_RUNS,
    SNAPPED_RUNS,
    STRONG_RUNS,
    TRAINED_RUNS,
    UPDATED_RUNS,
)


def _adapted(gate: str, model: str, budget: str) -> list[Selection]:
    """Select base scores, then each learned model with its rivals, then two more seeds of the first task."""
    runs = [learned(task, gate, choices={"model": model, "budget": budget}) for task in TASKS.values()]
    more = replace(runs[0].with_seeds((1, 2)), companions=())
    return [*(base_of(selection, 0, {}) for selection in runs), *runs, more]


def _adaptation(
    gate: str, model: str, budget: str, title: str, rank: int, curves: int = 0, needs: Needs = NOTHING
) -> Study:
    name, make = f"{gate}_{model.partition('_')[0]}", lambda: _adapted(gate, model, budget)
    return Study(name, f"table 11: {title}", make, rank=rank, curves=curves, needs=needs)


def _pruned() -> list[Selection]:
    """Select the base model, the runs of table 14 with their variants, then the ladder of table 13."""
    first = [base_of(TASK_ONLY, 0, {}), with_base_scores(TASK_ONLY), with_base_scores(MIXED)]
    return [*first, *(with_base_scores(runs) for _, runs in VARIANTS.values()), TASK_ONLY, MIXED, *LADDER_RUNS.values()]


def _pruned_pythia() -> list[Selection]:
    runs = [*ladder(PYTHIA).values()]
    return [base_of(runs[0], 0, {}), *runs]


def _standins() -> list[Selection]:
    """Select, in order of worth: high prices, trained backbones, adapters, rivals with more questions, ranks."""
    learned_sizes = [STRONG_RUNS["four"], *UPDATED_RUNS.values(), DENSE, *TRAINED_RUNS.values()]
    return [STRONG_RUNS["one"], *learned_sizes, *SNAPPED_RUNS.values(), *ASKED_RUNS.values(), *PRICED_RUNS.values()]


# Memory by the sums of docs/language.md; the hours are limits, not measured times.
ONE_CARD = Needs(gpus=1, gpu_gb=40, memory_gb=32, hours=24)
LORA_SMALL = _adaptation("lora", "smollm2_135m", "cpu", "LoRA rank on SmolLM2-135M, beside six rivals", 501, 1)
ADAPTER_SMALL = _adaptation("adapter", "smollm2_135m", "cpu", "adapter width on SmolLM2-135M", 502, 1)
LORA = _adaptation("lora", "llama3_8b", "paper", "LoRA rank on Llama-3-8B", 503, needs=ONE_CARD)
ADAPTER = _adaptation("adapter", "llama3_8b", "paper", "adapter width on Llama-3-8B", 504, needs=ONE_CARD)
PRUNING_SMALL = Study(
    "pruning_smollm2", "tables 13 and 14: pruning of SmolLM2-135M, beside five rivals", _pruned, rank=505, curves=1
)
STANDINS = Study(
    "standins_smollm2",
    "tables 11, 13 and 14 on SmolLM2-135M: higher prices, trained backbones, more questions and seeds",
    _standins,
    rank=508,
)
PRUNING_PYTHIA = Study(
    "pruning_pythia",
    "table 13: pruning of Pythia-410M",
    _pruned_pythia,
    rank=506,
    needs=Needs(gpus=1, gpu_gb=16, memory_gb=16, hours=24),
)
PRUNING_LLAMA = Study(
    "pruning_llama3",
    "table 14: pruning of Llama-3-8B",
    lambda: [LLAMA_PRUNED],
    rank=507,
    needs=Needs(gpus=1, gpu_gb=80, memory_gb=64, hours=24),
)
