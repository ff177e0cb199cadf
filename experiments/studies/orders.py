"""Orders of the components, compared under one budget."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from experiments.analysis.claims import Claims, Estimate, Outcome
from experiments.analysis.collect import Reader
from experiments.analysis.estimates import median
from experiments.analysis.evidence import Evidence
from experiments.analysis.figures import Data, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.analysis.tables import MEDIAN_MSE, OwnTable, Row, column
from experiments.studies.budgets import at_budget
from experiments.studies.model import study_of

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
    "law": ("nested dropout, $r=0.9$", "nested dropout, r = 0.9", {"gate.order": "nested_dropout", "gate.r": 0.9}),
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
    text="A small ordering weight acts like a price. Orders are therefore compared under one budget: at most the "
    "parameters of a fixed model of the count named. Geometric and power weights and weights annealed to 1 stay in "
    "the deployed model. Matryoshka weights and nested dropout only affect training; the deployed model gives every "
    "component the weight 1. From 40 % of training on sizes are fixed. Mean count; medians of the score and of the "
    "score of the first half of the retained components, without retraining. For errors lower is better, for "
    "accuracies in % higher.",
    rank=15,
)

ORDERS_STUDY = study_of(ORDERED, "orders of components under one budget: 1D regression and MNIST, ten seeds", 304, 1)

_SHOWN = {order: said for order, (_, said, _) in islice(ORDERS.items(), 6)}
"""At most as many series as there are styles."""


def _panel(label: str, count: int, score: str) -> Panel:
    said = "MSE" if score == "mse" else "test accuracy (%)"
    title = f"{label}, budget of {count}"
    return Panel("components of the prefix", said, title, ylog=score == "mse", series=tuple(_SHOWN.values()))


PANELS = {at: _panel(label, count, score) for at, (label, _, count, score, _) in ORDERED_AT.items()}


def _make(reader: Reader) -> Data:
    rows = {(at, order): ORDERED.runs[f"{at}_{order}"] for at in PANELS for order in _SHOWN}
    quantities = {key: [f"grown.truncated.{ORDERED_AT[key[0]][3]}", "half"] for key in rows}
    gathered = gather(reader, rows, quantities, own_data=True)
    points: list[Point] = []
    for (at, order), group in gathered.groups.items():
        scores: dict[int, dict[str, float]] = defaultdict(dict)
        for run, last in zip(group.runs, group.of(quantities[at, order][0]), strict=True):
            for count, score in enumerate([*run.record["phases"]["grown"]["prefixes"], float(last)], 1):
                scores[count][run.run_id] = score
        for count, each in sorted(scores.items()):
            points.append(Point(_SHOWN[order], count, float(np.median([*each.values()])), tuple(each), at))
    notes = [
        "median over the seeds that keep so many components, of one trained model each, truncated to them without "
        "retraining; nested dropout with r = 0.9 is in the report's table"
    ]
    return gathered.data(points, notes=notes)


SPEC = Spec("orders", "Smaller prefixes of one model, by order", PANELS, _make, 3.2, 3, section="one_d", rank=19)
claim = Claims(1600)
_MSE = "grown.truncated.mse"
_AGAIN = "before results; judged again on new runs"
_COUNT, _RANKED = "grown.count", ("ranks", "half")


def _over_half(
    evidence: Evidence, what: str, order: str, quantity: str, least: float, most: float = math.inf, count: int = 8
) -> Estimate:
    """Want the median of an error of a 1D order over that of r = ½, same seed and budget, between two bounds."""
    first, second = (ORDERED.runs[f"one_d_{count}_{key}"] for key in (order, "half"))
    ratios = evidence.ratios(first, second, quantity, f"{order}, budget of {count}")
    return Estimate(what, median(ratios), least, most)


@claim("orders_power", "study orders", _AGAIN)
def _power(evidence: Evidence) -> Outcome:
    """What weights 1/(k + 1) gain over (1/2)^k at one price is size: under one budget, of 4 and of 8 components, their
    1D errors are within a factor of three of each other, same seed, in the median."""
    what = "truncated MSE over that of r = ½, {} components"
    return Outcome([_over_half(evidence, what.format(n), "power", _MSE, 1 / 3, 3, n) for n in (4, 8)])


@claim("orders_needed", "study orders", _AGAIN)
def _needed(evidence: Evidence) -> Outcome:
    """Weights put the components in order: with r = 1 the first half of what a budget of eight keeps errs at least
    three times as much as with r = ½, same seed, in the median."""
    return Outcome([_over_half(evidence, "MSE of the first half over that with r = ½", "none", "half", 3)])


@claim("orders_nested", "study orders", _AGAIN)
def _nested(evidence: Evidence) -> Outcome:
    """Nested dropout trades the whole model for its prefixes: under a budget of eight the first half of what it keeps
    errs at most a third as much as with r = ½, and all of it more, same seed, in the median."""
    kept = [float(evidence.samples(ORDERED.runs[f"one_d_8_{key}"], [_COUNT], key)[_COUNT].mean()) for key in _RANKED]
    return Outcome(
        [
            _over_half(evidence, "MSE of the first half over that with r = ½", "ranks", "half", 0, 1 / 3),
            _over_half(evidence, "of all components", "ranks", _MSE, 1),
        ],
        f"components kept, mean {kept[0]:.1f}, with r = ½ {kept[1]:.1f}",
    )
