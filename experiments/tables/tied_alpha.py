"""A snapping strength that is tied to the price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.analysis.tables import OwnTable, Row
from experiments.tables.commit import boundary_columns, scored
from experiments.tables.one_d import BASELINE


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
            yield scored(f"{key}_{kappa:g}", rf"{label}, $\kappa={kappa:g}$", runs)


TIED = OwnTable(
    "tied_alpha",
    "Snapping strength of at least κλ",
    boundary_columns(),
    tuple(_tied()),
    text=(
        "The penalty has minima near integers only if the price is below pi times the snapping strength. Here the "
        "strength is at least kappa times the current price; kappa = 0 is the paper's setting. Medians of errors."
    ),
    rank=13,
)
