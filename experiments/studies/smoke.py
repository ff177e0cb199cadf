"""A study to test a cluster."""

from __future__ import annotations

import math

from experiments.analysis.selection import Selection
from experiments.studies.model import Study


def _smoke() -> list[Selection]:
    choices = {"task": "regression1d", "gate": "mlp", "profile": "smoke"}
    prices = [float(f"{math.exp(n / 2) * 1e-5:.3g}") for n in range(4)]
    return [Selection.of(choices, {"schedule.lambda0": price, "gate.K": 4}, range(50)) for price in prices]


SMOKE = Study("smoke", "200 runs of less than a second on tiny data, for trying out a cluster", _smoke, rank=601)
