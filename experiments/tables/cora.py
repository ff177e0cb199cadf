"""Accuracy on Cora against the number of branches."""

from __future__ import annotations

from experiments.analysis.selection import Selection
from experiments.analysis.tables import OwnTable, column, mean_sd, row

CORA_COUNTS = OwnTable(
    "cora_counts",
    "Cora: fixed models of one to eight branches",
    (column("accuracy", "accuracy", "fixed.truncated.accuracy", mean_sd(".2f", ".2f")),),
    tuple(
        row(
            f"count{count}",
            f"{count} branch{'es' if count > 1 else ''}",
            seeds=3,
            runs=Selection.of({"task": "cora", "gate": "gcn", "method": "fixed"}, {"method.count": count}, range(3)),
        )
        for count in range(1, 9)
    ),
    text="Test accuracy in % of fixed models, mean and standard deviation over three seeds, on the public split.",
    rank=5,
)
"""Whether the accuracy on Cora depends on the number of branches at all."""
