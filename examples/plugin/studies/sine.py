"""The runs behind the table and the figure of ``task=sine``."""

from __future__ import annotations

from experiments.tables.sine_sizes import SINE_SIZES

from experiments.studies.model import Study, selections_of

SINE = Study("sine", "learned sizes on a sine, two seeds", lambda: selections_of(SINE_SIZES))
