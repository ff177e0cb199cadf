"""The intrinsic dimension of nonlinear manifolds: table 15, its full form, and boundaries over training."""

from __future__ import annotations

import numpy as np

from experiments.analysis.claims import Claims, Outcome, Published
from experiments.analysis.collect import Reader
from experiments.analysis.evidence import Evidence
from experiments.analysis.figures import Curve, Data, Line, Panel, Spec
from experiments.analysis.gather import boundaries, gather
from experiments.analysis.selection import Selection
from experiments.analysis.tables import MEAN_MSE, MEAN_T, MEDIAN_MSE, Table, column, row
from experiments.studies.model import study_of

_CHOICES = {"task": "manifold", "gate": "latent", "method": "ngn", "schedule": "paper"}
_ROWS = tuple(
    row(str(D), str(D), name=f"$D = {D}$", seeds=10, runs=Selection.of(_CHOICES, {"task.D": D}, range(10)))
    for D in (1, 2, 4, 6, 8)
)


def _dimensions(name: str, title: str, count: str, nmse: str) -> Table:
    return Table(
        name,
        title,
        (
            column("learned", "learned D", "grown.count", count),
            column("exact", "exact rate", "exact", r"<rate:.0f>\%"),
            column("soft", "soft NMSE", "grown.soft.nmse", nmse),
            column("truncated", "trunc. NMSE", "grown.truncated.nmse", nmse),
        ),
        _ROWS,
    )


FIFTEEN = _dimensions("datafifteenbody", "Table 15: intrinsic dimension, medians", "<median:.2f>", MEDIAN_MSE)
FIFTEEN_FULL = _dimensions("datafifteenfullbody", "Table 15, mean ± sd", MEAN_T, MEAN_MSE)

MANIFOLD = study_of(FIFTEEN, "table 15: intrinsic dimensions 1, 2, 4, 6 and 8, ten seeds", 205, 10, "manifold")

PANELS = {row.key: Panel("training step", "boundary t", f"D = {row.key}") for row in FIFTEEN.rows}
"""Panels by the key of the table's row, which is the dimension."""


def make(reader: Reader) -> Data:
    """Make a panel for each dimension: the boundary of each seed, the median, and the line of D terms."""
    gathered = gather(reader, FIFTEEN.runs, ["grown.count"], own_data=True)
    curves: list[Curve] = []
    lines: list[Line] = []
    for key, group in gathered.groups.items():
        own, median = boundaries(reader, group, key)
        curves, lines = curves + own, lines + median
        if own:
            ends = own[0].x[[0, -1]]
            lines.append(Line("t = D − 1: D terms kept", ends, np.full(2, int(key) - 1), key))
    return gathered.data(curves=curves, lines=lines, courses={key: key for key in PANELS})


SPEC = Spec(
    "manifold_courses", "Intrinsic dimension D: the boundary over training", PANELS, make, 2.7, 5, "manifold", rank=13
)

claim = Claims(700)


def _matched(evidence: Evidence, quantity: str) -> Outcome:
    """In how many runs a quantity is D; the paper counts those in which both of them are."""
    own = [evidence.samples(runs, [quantity], f"D = {D}")[quantity] == int(D) for D, runs in FIFTEEN.runs.items()]
    published = [evidence.published_count(f"{FIFTEEN.name}.{D}.exact") for D in FIFTEEN.runs]
    ours = int(sum(each.sum() for each in own))
    return Outcome([Published("exact", ours, sum(map(len, own)), *map(sum, zip(*published, strict=True)))])


@claim("dimension", "table 15", "published count since 2026-11-25, after results")
def _dimension(evidence: Evidence) -> Outcome:
    """The kept count is the manifold's dimension in nearly every run."""
    return _matched(evidence, "grown.count")


@claim("rank", "table 15", "after results, 2026-11-28")
def _rank(evidence: Evidence) -> Outcome:
    """The rank of the deployed bottleneck is the manifold's dimension in nearly every run."""
    return _matched(evidence, "grown.rank")
