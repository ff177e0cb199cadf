r"""The intrinsic dimension of nonlinear manifolds (tables 15): medians over ten seeds, and mean ± population sd."""

from __future__ import annotations

from experiments.analysis.selection import Selection
from experiments.analysis.tables import MEAN_MSE, MEAN_T, MEDIAN_MSE, Table, column, row

_CHOICES = {"task": "manifold", "gate": "latent", "method": "ngn", "schedule": "paper"}
_ROWS = tuple(
    row(str(D), str(D), name=f"$D = {D}$", seeds=10, runs=Selection.of(_CHOICES, {"task.D": D}, range(10)))
    for D in (1, 2, 4, 6, 8)
)


def _dimensions(name: str, title: str, count: str, nmse: str) -> Table:
    return Table(
        name,
        title,
        (
            column("learned", "learned D", "grown.count", count),
            column("exact", "exact rate", "exact", r"<rate:.0f>\%"),
            column("soft", "soft NMSE", "grown.soft.nmse", nmse),
            column("truncated", "trunc. NMSE", "grown.truncated.nmse", nmse),
        ),
        _ROWS,
    )


FIFTEEN = _dimensions("datafifteenbody", "Table 15: intrinsic dimension, medians", "<median:.2f>", MEDIAN_MSE)
FIFTEEN_FULL = _dimensions("datafifteenfullbody", "Table 15, mean ± sd", MEAN_T, MEAN_MSE)
