"""The runs behind the table and the figure of ``task=sine``."""

from __future__ import annotations

from experiments.studies.model import Study, selections_of
from experiments.tables.sine_sizes import SINE_SIZES

SINE = Study("sine", "learned sizes on a sine, two methods, two seeds", lambda: selections_of(SINE_SIZES))
