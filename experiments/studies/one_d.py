"""Studies of the 1D regression."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from experiments.analysis.reductions import init_sweep, plateaus
from experiments.analysis.selection import Selection
from experiments.studies.model import Study, selections_of
from experiments.tables import one_d as tables
from experiments.tables.one_d import BASELINE as TEN_SEEDS
from experiments.tables.sensitivity import SENSITIVITY as ONE_CHANGED

FIFTY = range(50)


def _baseline() -> list[Selection]:
    return [TEN_SEEDS.with_seeds(FIFTY)]


def _fixed_frontier() -> list[Selection]:
    choices = {"task": "regression1d", "gate": "mlp", "method": "fixed", "schedule": "paper"}
    fixed = [Selection.of(choices, {"method.count": count}, FIFTY) for count in range(1, 13)]
    # the grown points of the figure: the baseline, and two other prices
    grown = [
        TEN_SEEDS.with_seeds(FIFTY).with_overrides(change)
        for change in ({}, *({"schedule.lambda0": price, "schedule.alpha_max": price} for price in (1e-5, 1e-3)))
    ]
    return fixed + grown


def _init_sweep() -> list[Selection]:
    # ten seeds of every start before the other forty, so that an unfinished sweep is the ten-seed figure
    return init_sweep.sweep_selections(range(10)) + init_sweep.sweep_selections(range(10, 50))


def _decay() -> list[Selection]:
    # from the standard start this row's boundary does not rise; see docs/log.md
    return [*selections_of(tables.DECAY), tables.DECAY.runs["normalized"].with_overrides({"gate.t0": 1.0})]


def _calibration() -> list[Selection]:
    runs = []
    for rate, draw, of_row in product((0.01, 0.02, 0.03, 0.05), (0, 1, 2, None), tables.FOUR.runs.values()):
        of_rate = of_row.with_overrides({"train.lr_boundary": rate})
        # None: each model seed has its own draw
        draws = {seed: 100 + seed for seed in of_rate.seeds} if draw is None else {None: draw}
        runs += [
            of_rate.with_overrides({"task.draw": number}).with_seeds(of_rate.seeds if seed is None else (seed,))
            for seed, number in draws.items()
        ]
    return runs


def _former() -> list[Selection]:
    studies = (LAMBDA_SWEEP, CONTINUE_LEARNING, FIXED_FRONTIER, DECAY, SENSITIVITY, INIT_SWEEP_TEN)
    ten_seeds = selections_of(tables.FOUR)
    runs = [*BASELINE.make(), *ten_seeds, *(selection for study in studies for selection in study.make())]
    # the other learners have their own boundary rates, each with its source
    draw = {"task.draw": tables.FORMER["task.draw"]}
    others = [selection.with_overrides(draw) for key, selection in tables.SEVEN.runs.items() if key != "ngn"]
    return [
        *(replace(each, overrides=()).with_overrides(tables.FORMER | dict(each.overrides)) for each in runs),
        *others,
    ]


def _one_d() -> list[Selection]:
    return [selection for study in IN_ORDER for selection in study.make()]


SCHEDULES = Study(
    "schedules",
    "table 4: six schedules, fifty seeds",
    lambda: [runs.with_seeds(FIFTY) for runs in selections_of(tables.FOUR)],
    rank=101,
    curves=10,
)
BASELINE = Study(
    "baseline", "figure 1 and the capacity learners: the 1D baseline, fifty seeds", _baseline, rank=102, curves=10
)
LAMBDA_SWEEP = Study(
    "lambda_sweep", "figure 2: 500 prices from 1e-6 to 1e-2, seed 0", lambda: list(plateaus.SWEEP), rank=103
)
FIXED_FRONTIER = Study(
    "fixed_frontier", "figure 3: fixed counts 1 to 12 and grown runs, fifty seeds", _fixed_frontier, rank=104
)
INIT_SWEEP = Study("init_sweep", "figure 5: t_init 0 to 16, fifty seeds, three panels", _init_sweep, rank=105)
INIT_SWEEP_TEN = Study(
    "init_sweep_ten", "the first ten seeds of figure 5", lambda: init_sweep.sweep_selections(range(10)), rank=106
)
CONTINUE_LEARNING = Study(
    "continue_learning",
    "figure 6: ten seeds, each continued at three prices",
    lambda: [tables.CONTINUED],
    rank=107,
    curves=10,
)
LEARNERS = Study(
    "learners",
    "figure 7: four capacity learners, fifty seeds, and fixed models",
    lambda: selections_of(tables.SEVEN),
    rank=108,
)
DECAY = Study("decay", "learned decay and normalisation, ten seeds, and fixed models", _decay, rank=109, curves=1)
SENSITIVITY = Study(
    "sensitivity",
    "the 1D baseline with one open setting changed, ten seeds",
    lambda: selections_of(ONE_CHANGED),
    rank=110,
    curves=1,
)
CALIBRATION = Study(
    "calibration",
    "table 4's schedules at four boundary rates and four draws of the inputs",
    _calibration,
    rank=111,
)
FORMER = Study(
    "former", "figures 1 to 7, tables 4 and 7, under the setting in use before the calibration", _former, rank=112
)
IN_ORDER = (
    BASELINE,
    SCHEDULES,
    DECAY,
    LEARNERS,
    FIXED_FRONTIER,
    LAMBDA_SWEEP,
    CONTINUE_LEARNING,
    SENSITIVITY,
    INIT_SWEEP,
)
"""The studies of the 1D regression, in the order in which they are run."""
ONE_D = Study("one_d", "every study of the 1D regression, in order", _one_d, rank=114)
