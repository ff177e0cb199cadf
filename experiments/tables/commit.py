"""Boundaries committed, that is rounded for good, before the end of training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.analysis.selection import Selection
from experiments.analysis.tables import MEAN_T, MEDIAN_MSE, Column, OwnTable, Row, column, row
from experiments.tables.one_d import BASELINE, DECAY, FOUR
from experiments.tables.peft import SMALL, TASKS, learned
from experiments.tables.transfer import NINE, TEN
from experiments.tables.vae import FIFTEEN

GROWN = {"phases": ("grown",)}
COMMIT = {"schedule.commit": 0.9}


def boundary_columns() -> tuple[Column, ...]:
    """Make the columns of a table about boundaries."""
    return (
        column("t", "learned t", "mean_t", MEAN_T),
        column("integer", "integer", "integer", r"<rate:.0f>\%"),
        column("soft", "soft", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "trunc", "grown.truncated.mse", MEDIAN_MSE),
    )


def scored(key: str, label: str, runs: Selection, score: str = "mse", form: str = MEDIAN_MSE, seeds: int = 10) -> Row:
    """Make a row with a score of the grown model, soft and truncated."""
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


COMMITTED = OwnTable(
    "commit",
    "Boundaries rounded for good at 90 % of training",
    boundary_columns(),
    tuple(
        scored(f"{key}{suffix}", f"{label}{more}", runs.with_overrides(change) if change else runs, score, form, seeds)
        for key, label, runs, score, form, seeds in _rows()
        for suffix, more, change in (("", "", {}), ("_commit", ", committed", COMMIT | GROWN))
    ),
    text=(
        "At 90 % of training every boundary is rounded to its nearest integer and gates become 0 or 1. From then "
        "on the truncated model is trained, so truncation only adds rounding errors. Each row follows the same row "
        "without a commit; t is the mean over the boundaries of a run. Errors, bits per character and nats per "
        "answer token are medians, and lower is better; for accuracies in % higher is better. L0, AWNN and a decay "
        "learned without a boundary have nothing to round. Adapted and pruned models are rows on SmolLM2; the "
        "pruned one is in its own table."
    ),
    rank=12,
)
"""The rows of the paper without and with a commit. After a commit the soft model is the truncated one."""
