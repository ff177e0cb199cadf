"""Orders of the components, compared under one budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.analysis.tables import MEDIAN_MSE, OwnTable, Row, column
from experiments.tables.budgets import at_budget

ORDERS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "half": ("$r=1/2$", "r = ½", {}),
    "none": ("$r=1$", "r = 1, no order", {"gate.r": 1.0}),
    "power": ("$1/(k+1)$", "1/(k + 1)", {"gate.order": "power"}),
    "annealed": ("annealed from $r=1/2$", "annealed from r = ½", {"gate.order": "annealed"}),
    "matryoshka": ("Matryoshka weights", "Matryoshka weights", {"gate.order": "matryoshka"}),
    "ranks": (
        "nested dropout, ranks 1, 2, 4, 8",
        "nested dropout",
        {"gate.order": "nested_dropout", "gate.order_ranks": (1, 2, 4, 8)},
    ),
    "law": (
        "nested dropout, $r=0.9$",
        "nested dropout, r = 0.9",
        {"gate.order": "nested_dropout", "gate.r": 0.9},
    ),
}
"""Order → its label in TeX, its label in a figure, and its settings."""
ORDERED_AT: Mapping[str, tuple[str, Mapping[str, str], int, str, str]] = {
    "one_d_4": ("1D", {"task": "regression1d", "gate": "mlp"}, 4, "mse", MEDIAN_MSE),
    "one_d_8": ("1D", {"task": "regression1d", "gate": "mlp"}, 8, "mse", MEDIAN_MSE),
    "mnist_6": ("MNIST", {"task": "mnist", "gate": "mlp"}, 6, "accuracy", "<median:.2f>"),
}
"""Budgets for comparing orders: label, choices, count of the fixed model, score, format."""


def _orders() -> Iterator[Row]:
    for at, (label, choices, count, score, form) in ORDERED_AT.items():
        for order, (title, _, overrides) in ORDERS.items():
            said = f"{label}, budget of {count}, {title}"
            yield at_budget(f"{at}_{order}", said, "budget", choices, count, score, form, 10, overrides)
        yield at_budget(f"{at}_fixed", f"{label}, fixed {count}, $r=1/2$", "fixed", choices, count, score, form, 10)


ORDERED = OwnTable(
    "orders",
    "Orders of components under one budget",
    (
        column("count", "kept", "grown_total", "<mean:.1f>"),
        column("truncated", "score", "grown.truncated.mse", MEDIAN_MSE),
        column("half", "first half", "half", MEDIAN_MSE),
    ),
    tuple(_orders()),
    text=(
        "A small ordering weight acts like a price. Orders are therefore compared under one budget: at most the "
        "parameters of a fixed model of the count named. Geometric and power weights and weights annealed to 1 "
        "stay in the deployed model. Matryoshka weights and nested dropout only affect training; the deployed "
        "model gives every component the weight 1. From 40 % of training on sizes are fixed. Mean count; medians "
        "of the score and of the score of the first half of the retained components, without retraining. For "
        "errors lower is better, for accuracies in % higher."
    ),
    rank=15,
)
