"""The paper's tables of depth, over ten seeds."""

from __future__ import annotations

from experiments.analysis.tables import MEDIAN_MSE, PM, OwnTable, column, row
from experiments.tables.transfer import NINE, TEN

DEPTH = OwnTable(
    "depth",
    "Learned depth over ten seeds",
    (
        column("depth", "learned depth", "grown.depth", f"<mean:.1f>{PM}<sd:.1f> (<min:d> to <max:d>)"),
        column("soft", "soft MSE", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "trunc. MSE", "grown.truncated.mse", "<median:.2e> (<min:.1e> to <max:.1e>)"),
        column("fixed", "fixed MSE", "fixed.truncated.mse", MEDIAN_MSE),
    ),
    tuple(
        row(key, *table.row(key).labels, seeds=10, runs=runs.with_seeds(range(10)))
        for table in (NINE, TEN)
        for key, runs in table.runs.items()
    ),
    text=(
        "The paper's tables of depth show one run per row; these rows are ten runs. Depth is the number of layers "
        "that keep more than the identity, or of the links of the chain: mean, standard deviation and range over "
        "seeds. Errors are medians; the truncated error also has its range."
    ),
    rank=2,
)
"""The rows of the paper's tables of depth over ten seeds, with their spread. The paper shows seed 0."""
