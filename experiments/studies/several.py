"""Studies over several subjects, and one to try out a cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

from experiments.analysis.selection import Selection
from experiments.studies.decay import DECAY, DECAY_STUDY
from experiments.studies.depth import NINE, TEN
from experiments.studies.frontier import FIXED_FRONTIER
from experiments.studies.learners import LEARNERS, SEVEN, SEVEN_FULL
from experiments.studies.manifold import FIFTEEN, FIFTEEN_FULL
from experiments.studies.model import Study, selections_of
from experiments.studies.one_d import FIFTY_SEEDS, FORMER, NUMBERS, SENSITIVITY_STUDY
from experiments.studies.prices import CONTINUE_LEARNING, LAMBDA_SWEEP
from experiments.studies.schedules import FOUR, FOUR_FULL, SCHEDULES
from experiments.studies.starts import INIT_SWEEP, INIT_SWEEP_TEN
from experiments.studies.vision import EIGHT, EIGHT_FULL


def _calibration() -> list[Selection]:
    runs = []
    for rate, draw, of_row in product((0.01, 0.02, 0.03, 0.05), (0, 1, 2, None), FOUR.runs.values()):
        of_rate = of_row.with_overrides({"train.lr_boundary": rate})
        if draw is None:  # each model seed has a draw of its own
            runs += [of_rate.with_overrides({"task.draw": 100 + seed}).with_seeds((seed,)) for seed in of_rate.seeds]
        else:
            runs.append(of_rate.with_overrides({"task.draw": draw}))
    return runs


def _former() -> list[Selection]:
    studies = (LAMBDA_SWEEP, CONTINUE_LEARNING, FIXED_FRONTIER, DECAY_STUDY, SENSITIVITY_STUDY, INIT_SWEEP_TEN)
    ten_seeds = selections_of(FOUR)
    runs = [*FIFTY_SEEDS.make(), *ten_seeds, *(selection for study in studies for selection in study.make())]
    # the other learners have their own boundary rates, each with its source
    draw = {"task.draw": FORMER["task.draw"]}
    others = [selection.with_overrides(draw) for key, selection in SEVEN.runs.items() if key != "ngn"]
    return [*(replace(each, overrides=()).with_overrides(FORMER | dict(each.overrides)) for each in runs), *others]


CALIBRATION = Study(
    "calibration", "table 4's schedules at four boundary rates and four draws of the inputs", _calibration, rank=111
)

FORMER_STUDY = Study(
    "former", "figures 1 to 7, tables 4 and 7, under the setting in use before the calibration", _former, rank=112
)

IN_ORDER = (
    FIFTY_SEEDS,
    SCHEDULES,
    DECAY_STUDY,
    LEARNERS,
    FIXED_FRONTIER,
    LAMBDA_SWEEP,
    CONTINUE_LEARNING,
    SENSITIVITY_STUDY,
    INIT_SWEEP,
)
"""The studies of the 1D regression, in the order in which they are run."""
ONE_D = Study(
    "one_d", "every study of the 1D regression, in order", lambda: [s for one in IN_ORDER for s in one.make()], rank=114
)

TABLES = Study(
    "tables",
    "every run that a table names today, and the fixed models that belong to them; not of Llama-3-8B or Pythia",
    lambda: selections_of(
        *(*NUMBERS, FOUR, FOUR_FULL, SEVEN, SEVEN_FULL, DECAY), *(EIGHT, EIGHT_FULL, NINE, TEN, FIFTEEN, FIFTEEN_FULL)
    ),
    rank=401,
    curves=3,
)


def _smoke() -> list[Selection]:
    choices = {"task": "regression1d", "gate": "mlp", "profile": "smoke"}
    prices = [float(f"{math.exp(n / 2) * 1e-5:.3g}") for n in range(4)]
    return [Selection.of(choices, {"schedule.lambda0": price, "gate.K": 4}, range(50)) for price in prices]


SMOKE = Study("smoke", "200 runs of less than a second on tiny data, for trying out a cluster", _smoke, rank=601)
