"""Made-up runs of commits, tied snapping, budgets and orders that agree or disagree with a claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import record_samples as samples
from claim_runs import Memory, errors, schedules

from experiments.analysis.tables import Table
from experiments.studies.budgets import BUDGETS
from experiments.studies.commit import COMMITTED, TIED
from experiments.studies.orders import ORDERED

Fill = Callable[[Memory], None]


def committed(t: float = 6.0, cost: float = 1.0, beta4: float = 1e-5) -> Fill:
    """Write committed schedules that end at t, with a truncated error of ``cost`` times the soft error.

    Schedules without a commit have errors of the paper's form."""

    def fill(store: Memory) -> None:
        schedules(no_alpha=(4.5, 1e-5, 9e-5), beta4=(4.0, 1e-5, 6e-4))(store)
        for key in ("baseline", "lambda_const", "alpha_const", "no_alpha", "beta4", "beta15"):
            soft = beta4 if key == "beta4" else 1e-5
            errors(store, COMMITTED.runs[f"datafour_{key}_commit"], t, soft, cost * soft)

    return fill


def tied(times: float) -> Fill:
    """Write boundaries that end ``times`` as far below 6 as the minimum of the penalty."""

    def fill(store: Memory) -> None:
        for kappa in (1, 3, 10):
            below = times * float(np.arcsin(1 / (np.pi * kappa))) / (2 * np.pi)
            errors(store, TIED.runs[f"constant_{kappa}"], 6.0 - below, 1e-5, 1e-5)

    return fill


def rows(table: Table, numbers: Mapping[str, tuple[float, ...]]) -> Fill:
    """Write runs by row: truncated error, then the scores of smaller prefixes."""

    def fill(store: Memory) -> None:
        for key, (error, *prefixes) in numbers.items():
            phase: dict[str, Any] = samples.grown([float(len(prefixes) or 6)], error, error) | {"prefixes": prefixes}
            store.add(table.runs[key], lambda seed, phase=phase: {"grown": phase})  # type: ignore[misc]

    return fill


def budgets(cost: float = 100.0, times: float = 2.0) -> Fill:
    """Write models of this cost under budgets of 100 parameters, with ``times`` the error of fixed models."""

    def fill(store: Memory) -> None:
        for count in range(3, 13):
            limited = {"budget": {"kind": "parameters", "limit": 100.0, "cost": cost}}
            grown = samples.grown([count - 1.0], times * 1e-5, times * 1e-5) | limited
            store.add(BUDGETS.runs[f"one_d_{count}_budget"], lambda seed, grown=grown: {"grown": grown})  # type: ignore[misc]
            fixed = samples.fixed(count, 1e-5)
            store.add(BUDGETS.runs[f"one_d_{count}_fixed"], lambda seed, fixed=fixed: {"fixed": fixed})  # type: ignore[misc]

    return fill


def starts(high: float) -> Fill:
    """Write stories under budgets: grown sizes at 1.7 bits, sizes from all components at ``high`` bits."""

    def fill(store: Memory) -> None:
        for count in (4, 8):
            for start, bits in (("budget", 1.7), ("high", high)):
                scored = {"truncated": {"bits_per_character": bits}, "soft": {"bits_per_character": bits}}
                grown = samples.grown([count - 1.0] * 2, 1e-5, 1e-5) | scored
                store.add(BUDGETS.runs[f"stories_{count}_{start}"], lambda seed, grown=grown: {"grown": grown})  # type: ignore[misc]

    return fill


def ordered(order: str, whole: float, half: float) -> Fill:
    """Write an order under budgets of 4 and 8, with a multiple of the errors of r = ½."""
    numbers: dict[str, tuple[float, ...]] = {}
    for count in (4, 8):
        for key, a, b in (("half", 1.0, 1.0), (order, whole, half)):
            numbers[f"one_d_{count}_{key}"] = (a * 1e-5, *[b * 1e-2] * (count - 1))
    return rows(ORDERED, numbers)


OF_EXTENSIONS: dict[str, tuple[Fill, Fill]] = {
    "commit_exact": (committed(), committed(cost=1.001)),
    "commit_fit": (committed(), committed(beta4=5e-4)),
    "tied_distance": (tied(1.3), tied(2.5)),
    "tied_fit": tuple(rows(TIED, {"baseline_0": (1e-5,), "baseline_3": (error,)}) for error in (1.4e-5, 4e-5)),
    "budget_met": (budgets(), budgets(cost=101.0)),
    "budget_used": (budgets(), budgets(cost=90.0)),
    "budget_fit": (budgets(), budgets(times=4.0)),
    "budget_high": (starts(1.69), starts(1.71)),
    "orders_power": (ordered("power", 0.5, 1.0), ordered("power", 0.1, 1.0)),
    "orders_needed": (ordered("none", 1.0, 5.0), ordered("none", 1.0, 2.0)),
    "orders_nested": (ordered("ranks", 3.0, 0.1), ordered("ranks", 0.8, 0.1)),
}
"""Claim → (runs that agree with it, runs that disagree)."""
