"""Boundaries committed before the end of training, and a snapping strength that is tied to the price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments.analysis.claims import Claims, Estimate, Outcome, none
from experiments.analysis.estimates import median
from experiments.analysis.evidence import Evidence
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array
from experiments.analysis.tables import MEAN_T, MEDIAN_MSE, OwnTable, Row, column, row
from experiments.studies.depth import NINE, TEN
from experiments.studies.learners import DECAY
from experiments.studies.manifold import FIFTEEN
from experiments.studies.model import study_of
from experiments.studies.one_d import BASELINE
from experiments.studies.peft import SMALL, TASKS, learned
from experiments.studies.schedules import FOUR

GROWN = {"phases": ("grown",)}
COMMIT = {"schedule.commit": 0.9}

_COLUMNS = (
    column("t", "learned t", "mean_t", MEAN_T),
    column("integer", "integer", "integer", r"<rate:.0f>\%"),
    column("soft", "soft", "grown.soft.mse", MEDIAN_MSE),
    column("truncated", "trunc", "grown.truncated.mse", MEDIAN_MSE),
)


def _scored(key: str, label: str, runs: Selection, score: str = "mse", form: str = MEDIAN_MSE, seeds: int = 10) -> Row:
    """Make a row with a score of the grown model, soft and truncated."""
    quantities = {name: f"grown.{name}.{score}" for name in ("soft", "truncated")}
    formats = dict.fromkeys(quantities, (form,))
    return row(key, label, seeds=seeds, runs=runs.with_seeds(range(seeds)), quantities=quantities, formats=formats)


def _rows() -> Iterator[tuple[str, str, Selection, str, str, int]]:
    """Yield (key, label, runs, score, format, seeds) of the paper's rows with a boundary, the shortest runs first."""
    for table in (FOUR, NINE, TEN):
        for key, runs in table.runs.items():
            label = table.row(key).title
            yield f"{table.name}_{key}".replace("body", ""), label, runs, "mse", MEDIAN_MSE, 10
    yield "ste", "STE", Selection.of({**dict(BASELINE.choices), "method": "ste"}), "mse", MEDIAN_MSE, 10
    for key in ("learn_r_and_t", "normalized"):
        yield f"decay_{key}", DECAY.row(key).title, DECAY.runs[key].only(), "mse", MEDIAN_MSE, 10
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
            runs = learned(task, gate, choices=SMALL).only()
            yield f"{gate}_{task}", f"SmolLM2, {label}, {title}, nats", runs, "nats", "<median:.3f>", 1


COMMITTED = OwnTable(
    "commit",
    "Boundaries rounded for good at 90 % of training",
    _COLUMNS,
    tuple(
        _scored(f"{key}{suffix}", f"{label}{more}", runs.with_overrides(change) if change else runs, score, form, seeds)
        for key, label, runs, score, form, seeds in _rows()
        for suffix, more, change in (("", "", {}), ("_commit", ", committed", COMMIT | GROWN))
    ),
    text="At 90 % of training every boundary is rounded to its nearest integer and gates become 0 or 1. From then on "
    "the truncated model is trained, so truncation only adds rounding errors. Each row follows the same row without a "
    "commit; t is the mean over the boundaries of a run. Errors, bits per character and nats per answer token are "
    "medians, and lower is better; for accuracies in % higher is better. L0, AWNN and a decay learned without a "
    "boundary have nothing to round. Adapted and pruned models are rows on SmolLM2; the pruned one is in its own "
    "table.",
    rank=12,
)


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
            yield _scored(f"{key}_{kappa:g}", rf"{label}, $\kappa={kappa:g}$", runs)


TIED = OwnTable(
    "tied_alpha",
    "Snapping strength of at least κλ",
    _COLUMNS,
    tuple(_tied()),
    text="The penalty has minima near integers only if the price is below pi times the snapping strength. Here the "
    "strength is at least kappa times the current price; kappa = 0 is the paper's setting. Medians of errors.",
    rank=13,
)

COMMIT_STUDY = study_of(COMMITTED, "rows of the paper with boundaries rounded at 90 % of training", 301, 1)

TIED_ALPHA = study_of(TIED, "the 1D study with a snapping strength that follows the price", 302, 1)

claim = Claims(1400)
_SOFT, _MSE = "grown.soft.mse", "grown.truncated.mse"
_SCHEDULES = ("baseline", "lambda_const", "alpha_const", "no_alpha", "beta4", "beta15")


def _committed(evidence: Evidence, key: str) -> Array:
    """Truncated MSE with a commit over that of the same seed without, of a schedule, shape [seeds]."""
    runs = COMMITTED.runs
    return evidence.ratios(runs[f"datafour_{key}_commit"], runs[f"datafour_{key}"], _MSE, f"{key}, committed")


@claim("commit_exact", "study commit", by_construction=True)
def _exact(evidence: Evidence) -> Outcome:
    """With a commit at 90 % of training every boundary of the 1D schedules is an integer, and truncation changes no
    error by more than a part in a hundred thousand."""
    runs = [COMMITTED.runs[f"datafour_{key}_commit"] for key in _SCHEDULES]
    samples = evidence.samples(runs, ["integer", _SOFT, _MSE], "1D schedules, committed")
    cost = np.abs(samples[_MSE] / samples[_SOFT] - 1)
    return Outcome(
        [
            none("boundaries between integers", int((samples["integer"] < 1).sum())),
            none("runs that truncation changes", int((cost > 1e-5).sum())),
        ],
        f"{len(cost)} runs, truncation changes at most {cost.max():.1e}",
    )


@claim("commit_fit", "study commit")
def _fit(evidence: Evidence) -> Outcome:
    """A commit leaves the baseline's truncated error as it is (within a factor of 1.5 from the same seed, in the
    median), and at least halves it where truncation costs most: without α, and at β = 4."""
    rows = ("baseline", "baseline", (1 / 1.5, 1.5)), ("no_alpha", "α = 0", (0.0, 0.5)), ("beta4", "β = 4", (0.0, 0.5))
    return Outcome(
        [
            Estimate(f"truncated MSE over that without a commit, {said}", median(_committed(evidence, key)), *ends)
            for key, said, ends in rows
        ]
    )


@claim("tied_distance", "study tied_alpha")
def _distance(evidence: Evidence) -> Outcome:
    """Under a constant price boundaries end as far from an integer as the minimum of λt + κλ sin²(πt) lies,
    asin(1/πκ)/2π: for κ = 1, 3 and 10 the median distance is that within a factor of two."""
    parts = []
    for kappa in (1, 3, 10):
        t = evidence.samples(TIED.runs[f"constant_{kappa}"], ["grown.t"], f"λ constant, κ = {kappa}")["grown.t"]
        ratio = np.abs(t - np.round(t)) / (np.arcsin(1 / (np.pi * kappa)) / (2 * np.pi))
        parts.append(Estimate(f"distance over the formula's, κ = {kappa}", median(ratio), 0.5, 2))
    return Outcome(parts)


@claim("tied_fit", "study tied_alpha")
def _tied_fit(evidence: Evidence) -> Outcome:
    """Tying the snapping strength to the price (κ = 3) costs the baseline no fit: truncated error within a factor of
    1.5 from the same seed, in the median."""
    ratio = evidence.ratios(TIED.runs["baseline_3"], TIED.runs["baseline_0"], _MSE, "baseline, κ = 3")
    return Outcome([Estimate("truncated MSE over that of κ = 0", median(ratio), 1 / 1.5, 1.5)])
