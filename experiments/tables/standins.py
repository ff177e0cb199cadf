"""Runs of SmolLM2-135M that can decide what those of tables 11, 13 and 14 leave open: docs/log/studies.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.analysis.selection import PRUNED, RIVALS, Selection, base_of
from experiments.analysis.tables import PM, OwnTable, Row, column, row
from experiments.tables.language import SCORES, method_row
from experiments.tables.peft import SMALL, TASKS, learned
from experiments.tables.pruned import COLUMNS, LADDER_RUNS, method_rows
from experiments.tables.pruning import SHORT, TARGETS, pruned

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
    found = RIVALS["adalora"](selection, seed, record)
    return replace(found, overrides=tuple(pair for pair in found.overrides if pair[0] != "train.lr"))


ASKED_RUNS = {
    task: replace(
        learned(task, "lora", choices=SMALL).with_overrides({"task.eval_examples": MANY, "train.lr": RATE}),
        companions=(("adalora", _adalora), ("base", base_of), ("sora", RIVALS["sora"])),
    )
    for task in ASKED
}
PRICED_RUNS = {
    f"{task}-{price}": replace(
        learned(task, "lora", (0, 1, 2), choices=SMALL).with_overrides(
            {"schedule.lambda0": float(price), "phases": ("grown",)}
        ),
        companions=(("base", base_of),),
    )
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


def _ladder_row(key: str, runs: Selection, price: str) -> Row:
    target, backbone = key.split("-")[:2]
    return row(key, TARGETS[target], backbone, price, seeds=1, runs=runs)


TRAINED = OwnTable(
    "pruning_smollm2_trained",
    "Pruning of SmolLM2-135M, budget=cpu: a high price, and backbones that were trained first",
    COLUMNS,
    (
        *(_ladder_row(key, runs, "$10^{-1}$") for key, runs in UPDATED_RUNS.items()),
        row("dense", "none", "trained", "--", seeds=1, runs=DENSE, dashes=("integer", "soft")),
        *(_ladder_row(key, runs, f"$10^{{-{key[-1]}}}$") for key, runs in TRAINED_RUNS.items()),
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
