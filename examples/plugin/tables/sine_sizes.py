"""The sizes that ``task=sine`` learns, by method."""

from __future__ import annotations

from experiments.analysis.selection import Selection
from experiments.analysis.tables import MEAN_T, MEDIAN_MSE, OwnTable, column, row

SEEDS = range(2)


def runs(method: str) -> Selection:
    return Selection.of({"task": "sine", "gate": "waves", "method": method}, seeds=SEEDS)


SINE_SIZES = OwnTable(
    "sine_sizes",
    "Learned sizes on a sine",
    (column("t", "mean t", "grown.t", MEAN_T), column("truncated", "trunc. MSE", "grown.truncated.mse", MEDIAN_MSE)),
    (
        row("ngn", "NGN", seeds=len(SEEDS), runs=runs("ngn")),
        row("urgent", "NGN at twice its price", seeds=len(SEEDS), runs=runs("urgent")),
    ),
    text="How many waves are learned for two sines, and the error that is left.",
)
