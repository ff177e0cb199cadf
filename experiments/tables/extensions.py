"""Tables on questions that the paper leaves open: commits, snapping tied to the price, budgets, orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from experiments.analysis.selection import Selection
from experiments.tables.model import MEAN_T, MEDIAN_MSE, Column, Row, Table, column, row
from experiments.tables.one_d import BASELINE, DECAY, FOUR
from experiments.tables.peft import SMALL, TASKS, learned
from experiments.tables.transfer import NINE, TEN
from experiments.tables.vae import FIFTEEN

GROWN = {"phases": ("grown",)}
COMMIT = {"schedule.commit": 0.9}


def _columns() -> tuple[Column, ...]:
    return (
        column("t", "learned t", "mean_t", MEAN_T),
        column("integer", "integer", "integer", r"<rate:.0f>\%"),
        column("soft", "soft", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "trunc", "grown.truncated.mse", MEDIAN_MSE),
    )


def _scored(key: str, label: str, runs: Selection, score: str = "mse", form: str = MEDIAN_MSE, seeds: int = 10) -> Row:
    quantities = {name: f"grown.{name}.{score}" for name in ("soft", "truncated")}
    return row(
        key,
        label,
        seeds=seeds,
        runs=runs.with_seeds(range(seeds)),
        quantities=quantities,
        formats=dict.fromkeys(quantities, (form,)),
    )


def _rows() -> Iterator[tuple[str, str, Selection, str, str, int]]:
    """Yield (key, label, runs, score, format, seeds) of the paper's rows with a boundary, the shortest runs first."""
    for table in (FOUR, NINE, TEN):
        for key, runs in table.runs.items():
            label = table.row(key).title
            yield f"{table.name}_{key}".replace("body", ""), label, runs, "mse", MEDIAN_MSE, 10
    yield "ste", "STE", Selection.of({**dict(BASELINE.choices), "method": "ste"}), "mse", MEDIAN_MSE, 10
    for key in ("learn_r_and_t", "normalized"):
        yield f"decay_{key}", DECAY.row(key).title, replace(DECAY.runs[key], companions=()), "mse", MEDIAN_MSE, 10
    # longer runs have fewer seeds: ten, three, one
    for task, gate, seeds in (("cora", "gcn", 10), ("mnist", "conv", 10), ("mnist", "mlp", 10), ("cifar10", "conv", 3)):
        runs = Selection.of({"task": task, "gate": gate})
        yield f"{task}_{gate}", f"{task}, {gate}", runs, "accuracy", "<median:.2f>", seeds
    for key, runs in FIFTEEN.runs.items():
        yield f"manifold_{key}", f"VAE, {FIFTEEN.row(key).title}", runs, "nmse", MEDIAN_MSE, 3
    for gate, label, seeds in (
        ("slices", "slices", 3), ("heads", "heads", 3), ("heads_slices", "heads + slices", 1), ("states", "Mamba", 1)
    ):  # fmt: skip
        runs = Selection.of({"task": "tinystories", "gate": gate})
        yield f"stories_{gate}", f"TinyStories, {label}", runs, "bits_per_character", "<median:.4f>", seeds
    for gate, label in (("lora", "LoRA"), ("adapter", "adapter")):
        for title, task in TASKS.items():
            runs = replace(learned(task, gate, choices=SMALL), companions=())
            yield f"{gate}_{task}", f"SmolLM2, {label}, {title}, nats", runs, "nats", "<median:.3f>", 1


COMMITTED = Table(
    "commit",
    "Boundaries rounded for good at 90 % of training",
    _columns(),
    tuple(
        _scored(f"{key}{suffix}", f"{label}{more}", runs.with_overrides(change) if change else runs, score, form, seeds)
        for key, label, runs, score, form, seeds in _rows()
        for suffix, more, change in (("", "", {}), ("_commit", ", committed", COMMIT | GROWN))
    ),
)
"""The rows of the paper without and with a commit. After a commit the soft model is the truncated one."""


def _tied() -> Iterator[Row]:
    settings: tuple[tuple[str, str, Mapping[str, Any], Mapping[str, str]], ...] = (
        ("constant", r"$\lambda$ const", {}, {"schedule": "lambda_const"}),
        ("steep", r"$\lambda_0=10^{-3}$, $\alpha=10^{-4}$", {"schedule.lambda0": 1e-3}, {}),
        ("baseline", "baseline", {}, {}),
    )
    for key, label, overrides, choices in settings:
        for kappa in (0.0, 1.0, 3.0, 10.0):
            change = {**overrides, **({"schedule.kappa": kappa} if kappa else {})}
            runs = BASELINE.with_overrides(change, choices)
            yield _scored(f"{key}_{kappa:g}", rf"{label}, $\kappa={kappa:g}$", runs)


TIED = Table("tied_alpha", "Snapping strength of at least κλ", _columns(), tuple(_tied()))


def _at(
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
        _at(f"{key}_{method}", f"{label}, {said} {size}", method, choices, count, score, form, seeds)
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
        yield _at(f"stories_{count}_high", label, "budget", *scored, {"gate.t0": 15.0})


BUDGETS = Table(
    "budget",
    "Sizes under a budget, beside fixed models of it",
    (
        column("count", "kept", "grown_total", "<mean:.1f>"),
        column("parameters", "parameters", "grown.parameters.deployed", "<mean:.0f>"),
        column("truncated", "score", "grown.truncated.mse", MEDIAN_MSE),
    ),
    tuple(_budgets()),
)

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
            yield _at(f"{at}_{order}", said, "budget", choices, count, score, form, 10, overrides)
        yield _at(f"{at}_fixed", f"{label}, fixed {count}, $r=1/2$", "fixed", choices, count, score, form, 10)


ORDERED = Table(
    "orders",
    "Orders of components under one budget",
    (
        column("count", "kept", "grown_total", "<mean:.1f>"),
        column("truncated", "score", "grown.truncated.mse", MEDIAN_MSE),
        column("half", "first half", "half", MEDIAN_MSE),
    ),
    tuple(_orders()),
)

EXTENSIONS = (COMMITTED, TIED, BUDGETS, ORDERED)
