"""A study to rehearse the way from runs to tables and pages."""

from __future__ import annotations

from experiments.analysis.rehearsal import rehearsed
from experiments.studies.model import Study, selections_of
from experiments.tables.one_d import FOUR

REHEARSAL = Study(
    "rehearsal",
    "table 4 by smoke runs, for rehearsing the way to tables and pages (make rehearsal)",
    lambda: [rehearsed(runs) for runs in selections_of(FOUR)],
    rank=602,
)
