r"""The intrinsic dimension of nonlinear manifolds (tables 15): medians over ten seeds, and mean ± population sd."""

from __future__ import annotations

from experiments.analysis.selection import Selection
from experiments.tables.model import MEAN_MSE, MEAN_T, MEDIAN_MSE, Table, column, row

_EXACT = column("exact", "exact rate", "exact", r"<rate:.0f>\%")
_CHOICES = {"task": "manifold", "gate": "latent", "method": "ngn", "schedule": "paper"}
_ROWS = tuple(
    row(str(D), str(D), name=f"$D = {D}$", seeds=10, runs=Selection.of(_CHOICES, {"task.D": D}, range(10)))
    for D in (1, 2, 4, 6, 8)
)

FIFTEEN = Table(
    "datafifteenbody",
    "Table 15: intrinsic dimension, medians",
    (
        column("learned", "learned D", "grown.count", "<median:.2f>"),
        _EXACT,
        column("soft", "soft NMSE", "grown.soft.nmse", MEDIAN_MSE),
        column("truncated", "trunc. NMSE", "grown.truncated.nmse", MEDIAN_MSE),
    ),
    _ROWS,
)

FIFTEEN_FULL = Table(
    "datafifteenfullbody",
    "Table 15, mean ± sd",
    (
        column("learned", "learned D", "grown.count", MEAN_T),
        _EXACT,
        column("soft", "soft NMSE", "grown.soft.nmse", MEAN_MSE),
        column("truncated", "trunc. NMSE", "grown.truncated.nmse", MEAN_MSE),
    ),
    _ROWS,
)
