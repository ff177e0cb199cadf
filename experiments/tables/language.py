"""Learned ranks and widths on SmolLM2-135M, this project's model for the studies of table 11."""

from __future__ import annotations

from dataclasses import replace

from experiments.tables.model import PM, Row, Table, column, row
from experiments.tables.peft import SMALL, TASKS, learned

METHODS = {
    "base": "base",
    "": "NGN",
    "fixed": "fixed",
    "sora": "SoRA",
    "adalora": "AdaLoRA",
    "svd": "SVD cut",
    "uniform": "uniform",
}
"""Companion of a row → its label; the empty key is the learned model itself."""
ADAPTER_METHODS = ("base", "", "fixed")

_SCORES = (
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


def _row(gate: str, label: str, task: str, about: str) -> Row:
    runs = replace(learned(task, gate, choices=SMALL), about=about)
    dashes = () if about == "" else ("soft", "integer")
    return row(f"{task}-{about or 'ngn'}", label, METHODS[about], seeds=1, runs=runs, dashes=dashes)


def _tables(gate: str, title: str, methods: tuple[str, ...]) -> tuple[Table, Table]:
    """Make the table of all methods on all tasks: retained total, score and cost."""
    rows = tuple(_row(gate, label, task, about) for label, task in TASKS.items() for about in methods)
    title = f"{title} on SmolLM2-135M, budget=cpu"
    costs = tuple(replace(line, dashes=frozenset()) for line in rows)
    return Table(f"{gate}_smollm2", title, _SCORES, rows), Table(
        f"{gate}_smollm2_cost", f"{title}: cost", _COSTS, costs
    )


LORA = _tables("lora", "LoRA rank", tuple(METHODS))
ADAPTER = _tables("adapter", "Adapter width", ADAPTER_METHODS)

_SPREAD = f"<mean:.1f>{PM}<sd:.1f> (<min:.1f> to <max:.1f>)"
_SPREAD_FINE = f"<mean:.3f>{PM}<sd:.3f>"


def _seeds(gate: str, about: str) -> Row:
    runs = replace(learned("wikisql_easy", gate, (0, 1, 2), choices=SMALL), about=about)
    dashes = ("soft",) if about else ()
    label = {"lora": "LoRA rank", "adapter": "adapter width"}[gate]
    return row(f"{gate}-{about or 'ngn'}", label, METHODS[about], seeds=3, runs=runs, dashes=dashes)


SEEDS = Table(
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
)

SMOLLM2 = (*LORA, *ADAPTER, SEEDS)
