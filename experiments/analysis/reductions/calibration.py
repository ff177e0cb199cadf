"""Calibrate the 1D settings that the paper leaves open: the boundary's learning rate and the draw of the inputs.

``python -m experiments.analysis.reductions.calibration`` prints the sixteen settings, nearest to table 4 first.
``docs/log.md`` fixed the criterion before the first run: the sum of the four :data:`PARTS` over the rows of table 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from experiments.analysis import published
from experiments.analysis.collect import Reader
from experiments.analysis.reduce import sample
from experiments.analysis.selection import Selection
from experiments.paths import RESULTS
from experiments.store.records import Store
from experiments.tables.one_d import FOUR

RATES = (0.01, 0.02, 0.03, 0.05)
DRAWS = (0, 1, 2, None)
"""Seeds of the draw of the inputs. None: each model seed s has its own draw, with seed 100 + s."""
QUANTITIES = ["grown.t", "integer", "grown.soft.mse", "grown.truncated.mse"]
PARTS = ("t", "integer", "soft", "truncated")
"""Distances: |difference of median t| in components; |difference of integer rates| in units of 50 percentage points;
|log10 of the ratio of median MSEs|, soft and truncated."""


def runs_of(row: str, rate: float, draw: int | None) -> list[Selection]:
    """Select the ten runs of one row of table 4 under one setting."""
    runs = FOUR.runs[row].with_overrides({"train.lr_boundary": rate})
    if draw is not None:
        return [runs.with_overrides({"task.draw": draw})]
    return [runs.with_overrides({"task.draw": 100 + seed}).with_seeds((seed,)) for seed in runs.seeds]


def selections() -> list[Selection]:
    """Select every run of the study, setting by setting."""
    return [runs for rate, draw in product(RATES, DRAWS) for row in FOUR.runs for runs in runs_of(row, rate, draw)]


@dataclass(frozen=True)
class CalibrationSetting:
    """The distance of a setting from table 4: the sum, and row → (its parts, our four values)."""

    rate: float
    draw: int | None
    distance: float
    rows: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]


def _parts(values: np.ndarray, goal: dict[str, float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    t, integer, soft, truncated = values
    ours = (float(np.median(t)), 100.0 * float(integer.mean()), float(np.median(soft)), float(np.median(truncated)))
    parts = (
        abs(ours[0] - goal["t"]),
        abs(ours[1] - goal["integer"]) / 50.0,
        abs(math.log10(ours[2] / goal["soft"])),
        abs(math.log10(ours[3] / goal["truncated"])),
    )
    return parts, ours


def complete_settings(reader: Reader) -> list[CalibrationSetting]:
    """Return the settings whose runs are all complete, nearest first."""
    values = published.load_published()
    goals = {row: {c: next(iter(values[FOUR.name][row][c]["value"].values())) for c in PARTS} for row in FOUR.runs}
    complete = []
    for rate, draw in product(RATES, DRAWS):
        rows = {}
        for row in FOUR.runs:
            samples = [
                sample(reader.collect(runs), QUANTITIES, frozenset(QUANTITIES)) for runs in runs_of(row, rate, draw)
            ]
            if any(problems for _, _, problems in samples) or not all(used for _, used, _ in samples):
                break
            numbers = np.array([np.concatenate([s[name][0] for s, _, _ in samples]) for name in QUANTITIES])
            rows[row] = _parts(numbers, goals[row])
        else:
            complete.append(CalibrationSetting(rate, draw, sum(sum(parts) for parts, _ in rows.values()), rows))
    return sorted(complete, key=lambda setting: setting.distance)


def main() -> None:
    """Print the settings as a table."""
    for setting in complete_settings(Reader(Store(RESULTS))):
        draw = "per seed" if setting.draw is None else str(setting.draw)
        print(f"rate {setting.rate:g}, draw {draw}: {setting.distance:.2f}")
        for name, (parts, (t, integer, soft, truncated)) in setting.rows.items():
            each = " ".join(f"{part:.2f}" for part in parts)
            print(f"    {name:13s} t {t:.2f}  {integer:3.0f} %  {soft:.2e}  {truncated:.2e}   ({each})")


if __name__ == "__main__":
    main()
