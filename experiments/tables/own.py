"""Tables that the paper does not have, in the form of its own. Nothing of them enters the paper's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.tables.model import MEAN_T, MEDIAN_MSE, PM, Row, Table, column, row
from experiments.tables.one_d import BASELINE
from experiments.tables.transfer import NINE, TEN


def _changed(key: str, label: str, overrides: Mapping[str, Any] | None = None) -> Row:
    return row(key, label, seeds=10, runs=BASELINE.with_overrides(overrides or {}))


SENSITIVITY = Table(
    "sensitivity",
    "What the settings of the 1D study do",
    (
        column("t", "learned t", "grown.t", MEAN_T),
        column("integer", "integer", "integer", r"<rate:.0f>\%"),
        column("soft", "soft MSE", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "trunc. MSE", "grown.truncated.mse", MEDIAN_MSE),
    ),
    (
        _changed("baseline", "baseline: width 16, boundary rate 5e-2, joint clip 0.003, cosine body rate, draw 0"),
        _changed("width8", "hidden width 8", {"gate.width": 8}),
        _changed("width32", "hidden width 32", {"gate.width": 32}),
        _changed("rate2e-2", "boundary rate 2e-2", {"train.lr_boundary": 2e-2}),
        _changed("rate1e-1", "boundary rate 1e-1", {"train.lr_boundary": 1e-1}),
        _changed("clip_none", "no clipping", {"train.clip": None}),
        _changed("clip_separate", "clip 0.003, body and boundary apart", {"train.clip_scope": "separate"}),
        _changed("clip_body", "clip 0.003, body alone", {"train.clip_scope": "body"}),
        _changed("clip0.03", "joint clip 0.03", {"train.clip": 3e-2}),
        _changed("constant", "constant body rate", {"train.lr_shape.kind": "constant"}),
        _changed("even", "evenly spaced points", {"task.layout": "even"}),
        *(_changed(f"draw{draw}", f"uniform points, draw {draw}", {"task.draw": draw}) for draw in range(1, 5)),
    ),
)
"""The 1D baseline and what becomes of it when one setting that the paper leaves open is changed."""


def _ten_seeds(of: Row) -> Row:
    assert of.runs is not None
    return row(of.key, *of.labels, seeds=10, runs=of.runs.with_seeds(range(10)))


DEPTH = Table(
    "depth",
    "Learned depth over ten seeds",
    (
        column("depth", "learned depth", "grown.depth", f"<mean:.1f>{PM}<sd:.1f> (<min:d> to <max:d>)"),
        column("soft", "soft MSE", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "trunc. MSE", "grown.truncated.mse", "<median:.2e> (<min:.1e> to <max:.1e>)"),
        column("fixed", "fixed MSE", "fixed.truncated.mse", MEDIAN_MSE),
    ),
    tuple(_ten_seeds(line) for line in (*NINE.rows, *TEN.rows)),
)
"""The rows of the paper's tables of depth, which show seed 0, with their spread."""

OWN = (SENSITIVITY, DEPTH)
