"""The sizes that ``task=sine`` learns, as a table of the report."""

from __future__ import annotations

from experiments.analysis.selection import Selection
from experiments.tables.model import MEAN_T, MEDIAN_MSE, OwnTable, column, row

SINE_SIZES = OwnTable(
    "sine_sizes",
    "Learned sizes on a sine",
    (column("t", "mean t", "mean_t", MEAN_T), column("truncated", "trunc. MSE", "grown.truncated.mse", MEDIAN_MSE)),
    (row("ngn", "NGN", seeds=2, runs=Selection.of({"task": "sine", "gate": "two_sums"}, seeds=range(2))),),
    text="Two sums of blocks learn y = sin 3x.",
)
