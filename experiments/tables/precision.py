"""Convolutions trained in bf16 by autocast, beside the same in float32."""

from __future__ import annotations

from experiments.analysis.selection import Selection
from experiments.analysis.tables import OwnTable, column, mean_sd, row
from experiments.tables.commit import GROWN

_SEEDS = range(5)
_TASKS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
BF16 = OwnTable(
    "bf16",
    "MNIST and CIFAR-10 convolutions in float32 and in bf16",
    (
        column("count", "branches", "grown.count", "<mean:.1f>"),
        column("soft", "soft", "grown.soft.accuracy", mean_sd(".2f", ".2f")),
        column("truncated", "trunc", "grown.truncated.accuracy", mean_sd(".2f", ".2f")),
    ),
    tuple(
        row(f"{task}{suffix}", f"{label}, {precision}", seeds=len(_SEEDS), runs=runs)
        for task, label in _TASKS.items()
        for suffix, precision, runs in (
            ("", "float32", Selection.of({"task": task, "gate": "conv"}, {}, _SEEDS)),
            (
                "_bf16",
                "bf16",
                Selection.of({"task": task, "gate": "conv"}, {"train.autocast": "bf16"} | GROWN, _SEEDS),
            ),
        )
    ),
    text="Accuracy in %, mean and standard deviation over five seeds, with train.autocast=bf16 and without it. "
    "Weights, moments and boundaries are in float32 or float64 in both.",
    rank=17,
)
"""Whether training in bf16 costs accuracy."""
