"""Sizes under budgets, next to the fixed models that define the budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.analysis.selection import Selection
from experiments.analysis.tables import MEDIAN_MSE, OwnTable, Row, column, row


def at_budget(
    key: str,
    title: str,
    method: str,
    choices: Mapping[str, str],
    count: Any,
    score: str,
    form: str,
    seeds: int,
    overrides: Mapping[str, Any] | None = None,
) -> Row:
    """Select runs under the budget of a fixed model with ``count`` components, or that model."""
    phase = "fixed" if method == "fixed" else "grown"
    runs = Selection.of({**choices, "method": method}, {"method.count": count, **(overrides or {})}, range(seeds))
    quantities = {"count": f"{phase}_total", "parameters": f"{phase}.parameters.deployed"}
    quantities["truncated"] = f"{phase}.truncated.{score}"
    formats = {"truncated": (form,), "half": (form,)}
    dashes = ["half"] if method == "fixed" else []
    return row(key, title, seeds=seeds, runs=runs, formats=formats, quantities=quantities, dashes=dashes)


def _pair(key: str, label: str, choices: Mapping[str, str], count: Any, score: str, form: str, seeds: int) -> list[Row]:
    """Make rows for runs under the budget of a fixed model, and for that model."""
    size = count if isinstance(count, int) else " + ".join(map(str, count))
    return [
        at_budget(f"{key}_{method}", f"{label}, {said} {size}", method, choices, count, score, form, seeds)
        for method, said in (("budget", "budget of"), ("fixed", "fixed"))
    ]


def _budgets() -> Iterator[Row]:
    one_d = {"task": "regression1d", "gate": "mlp"}
    for count in range(3, 13):
        yield from _pair(f"one_d_{count}", "1D", one_d, count, "mse", MEDIAN_MSE, 10)
    for task, counts in (("mnist", (2, 4, 6)), ("cifar10", (4, 8))):
        for count in counts:
            choices = {"task": task, "gate": "conv"}
            yield from _pair(f"{task}_{count}", task, choices, count, "accuracy", "<median:.2f>", 10)
    for count in (8, 4):
        choices, both = {"task": "tinystories", "gate": "slices"}, (count, count)
        scored = choices, both, "bits_per_character", "<median:.4f>", 10
        yield from _pair(f"stories_{count}", "TinyStories", *scored)
        label = f"TinyStories, budget of {count} + {count}, from all sixteen"
        yield at_budget(f"stories_{count}_high", label, "budget", *scored, {"gate.t0": 15.0})


BUDGETS = OwnTable(
    "budget",
    "Sizes under a budget, beside fixed models of it",
    (
        column("count", "kept", "grown_total", "<mean:.1f>"),
        column("parameters", "parameters", "grown.parameters.deployed", "<mean:.0f>"),
        column("truncated", "score", "grown.truncated.mse", MEDIAN_MSE),
    ),
    tuple(_budgets()),
    text=(
        "Sizes follow a limit that reaches the budget at 40 % of training. Where there are two, they part only on "
        "evidence. The deployed model has at most the parameters of a fixed model of the count named. The row below "
        "each is that fixed model. Mean count and parameters, median score. Under a budget, CIFAR-10 and TinyStories "
        "ran on a GPU; all other rows ran on a CPU."
    ),
    rank=14,
)
