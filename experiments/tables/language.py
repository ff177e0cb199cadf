"""Learned ranks and widths on SmolLM2-135M, this project's model for the studies of table 11."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from experiments.analysis.selection import Selection
from experiments.analysis.tables import PM, OwnTable, Row, column, row
from experiments.tables.peft import SMALL, TASKS, learned

METHODS = {
    "base": "base",
    "": "NGN",
    "fixed": "fixed",
    "sora": "SoRA",
    "adalora": "AdaLoRA",
    "svd": "SVD cut",
    "eva": "EVA",
    "uniform": "uniform",
}
"""Companion of a row → its label; the empty key is the learned model itself."""
ADAPTER_METHODS = ("base", "", "fixed")

SCORES = (
    column("size", "kept/target", "size", "<size.value:d>/<target.value:d>"),
    column("thirds", "e/m/l", "size", "<early.value:d>/<mid.value:d>/<late.value:d>"),
    column("integer", "integer", "integer", r"<rate:.0f>\%"),
    column("soft", "soft", "soft", "<value:.1f>"),
    column("score", "truncated", "truncated", "<value:.1f> (<low.value:.1f> to <high.value:.1f>)"),
    column("n", "examples", "n", "<value:d>"),
)
_COSTS = (
    column("nats", "nats", "nats", "<value:.3f>"),
    column("forgetting", "ppl/base", "forgetting", "<value:.3f>"),
    column("seconds", "seconds", "seconds", "<value:.0f>"),
    column("memory", "MiB", "memory", "<value:.0f>"),
)


def method_row(label: str, task: str, about: str, runs: Selection) -> Row:
    """Make the row of a companion of learned models, or, if ``about`` is empty, of these."""
    dashes = () if about == "" else ("soft", "integer")
    return row(
        f"{task}-{about or 'ngn'}", label, METHODS[about], seeds=1, runs=replace(runs, about=about), dashes=dashes
    )


def _rows(gate: str, methods: Iterable[str]) -> tuple[Row, ...]:
    """Make the rows of all methods on all tasks."""
    each = ((label, task, learned(task, gate, choices=SMALL)) for label, task in TASKS.items())
    return tuple(method_row(label, task, about, runs) for label, task, runs in each for about in methods)


def _costs(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Make the rows of costs, where no cell is empty."""
    return tuple(replace(line, dashes=frozenset()) for line in rows)


LORA = OwnTable(
    "lora_smollm2",
    "LoRA rank on SmolLM2-135M, budget=cpu",
    SCORES,
    _rows("lora", METHODS),
    text=(
        "The paper's model of eight billion parameters is not available here. These are the same methods on "
        "SmolLM2-135M-Instruct, which has the same architecture with 30 layers, trained for minutes. No score can "
        "be compared with the published ones. All rows of a task share one recipe. SoRA, AdaLoRA, plain LoRA of "
        "rank 16 cut by singular values (SVD cut), EVA, and an even allocation get the total rank that NGN learned: "
        "kept and target. The score is the first one of the task in %, with Wilson's 95 % interval over a fixed "
        "list of examples. docs/data.md and each record name splits other than the official ones."
    ),
    rank=5,
)
LORA_COST = OwnTable(
    "lora_smollm2_cost",
    "LoRA rank on SmolLM2-135M, budget=cpu: cost",
    _COSTS,
    _costs(LORA.rows),
    text=(
        "For the same runs: nats per answer token, which separate models that score zero; perplexity on general "
        "text, relative to the model before; wall time of the training, on a machine with other work; peak memory "
        "of the process."
    ),
    rank=6,
)
ADAPTER = OwnTable(
    "adapter_smollm2",
    "Adapter width on SmolLM2-135M, budget=cpu",
    SCORES,
    _rows("adapter", ADAPTER_METHODS),
    text="The same with adapters, whose width is learned.",
    rank=7,
)
ADAPTER_COST = OwnTable(
    "adapter_smollm2_cost",
    "Adapter width on SmolLM2-135M, budget=cpu: cost",
    _COSTS,
    _costs(ADAPTER.rows),
    text="Of the same runs, as above.",
    rank=8,
)

_SPREAD = f"<mean:.1f>{PM}<sd:.1f> (<min:.1f> to <max:.1f>)"
_SPREAD_FINE = f"<mean:.3f>{PM}<sd:.3f>"


def _seeds(gate: str, about: str) -> Row:
    runs = replace(learned("wikisql_easy", gate, (0, 1, 2), choices=SMALL), about=about)
    dashes = ("soft",) if about else ()
    label = {"lora": "LoRA rank", "adapter": "adapter width"}[gate]
    return row(f"{gate}-{about or 'ngn'}", label, METHODS[about], seeds=3, runs=runs, dashes=dashes)


SEEDS = OwnTable(
    "seeds_smollm2",
    "WikiSQL-easy over three seeds, SmolLM2-135M, budget=cpu",
    (
        column("size", "size", "size", _SPREAD),
        column("soft", "soft", "soft", _SPREAD),
        column("score", "truncated", "truncated", _SPREAD),
        column("nats", "nats", "nats", _SPREAD_FINE),
        column("forgetting", "ppl/base", "forgetting", _SPREAD_FINE),
    ),
    tuple(_seeds(gate, about) for gate in ("lora", "adapter") for about in ("", "fixed")),
    text="Differences between methods against the spread over seeds: mean, standard deviation and range.",
    rank=9,
)
