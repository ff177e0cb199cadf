"""How the 1D baseline moves with the settings that the paper leaves open: one of them changed at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.collect import Reader
from experiments.reduce import sample
from experiments.selection import Selection
from experiments.statistics import statistic
from experiments.tables.one_d import BASELINE


@dataclass(frozen=True)
class Variant:
    """The baseline with one setting changed."""

    key: str
    label: str
    selection: Selection


def _changed(key: str, label: str, overrides: Mapping[str, Any] | None = None) -> Variant:
    return Variant(key, label, BASELINE.with_overrides(overrides or {}))


VARIANTS = (
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
)
"""The first is the baseline itself; ten seeds each."""


@dataclass(frozen=True)
class SensitivityRow:
    """One variant, over the ``n`` of ``wanted`` seeds that are usable; the numbers are None where there are none.

    Attributes:
        t_mean, t_sd: mean and population standard deviation of the final boundary.
        integer: per cent of boundaries within 0.01 of an integer.
        soft, truncated: medians of the mean squared error.
        runs: the run ids behind them.
    """

    key: str
    label: str
    n: int
    wanted: int
    t_mean: float | None
    t_sd: float | None
    integer: float | None
    soft: float | None
    truncated: float | None
    runs: tuple[str, ...]


_STATISTICS = (
    ("mean", "grown.t"),
    ("sd", "grown.t"),
    ("rate", "integer"),
    ("median", "grown.soft.mse"),
    ("median", "grown.truncated.mse"),
)


def table(reader: Reader, overrides: Mapping[str, Any] | None = None) -> tuple[SensitivityRow, ...]:
    """A row for every variant, in their order."""
    quantities = list(dict.fromkeys(quantity for _, quantity in _STATISTICS))
    rows = []
    for variant in VARIANTS:
        selection = variant.selection.with_overrides(overrides or {})
        samples, used, _ = sample(reader.collect(selection), quantities, frozenset(quantities))
        t_mean, t_sd, integer, soft, truncated = (
            float(statistic(name, samples[of])[0]) if used else None for name, of in _STATISTICS
        )
        seeds = (len(used), len(selection.seeds))
        rows.append(SensitivityRow(variant.key, variant.label, *seeds, t_mean, t_sd, integer, soft, truncated, used))
    return tuple(rows)
