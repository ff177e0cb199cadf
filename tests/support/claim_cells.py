"""Made-up table cells that agree or disagree with a claim. No training, no torch."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.analysis.collect import RecordedRun
from experiments.analysis.compare import Comparison
from experiments.analysis.formats import DASH
from experiments.analysis.published import value_of
from experiments.analysis.reduce import Cell
from experiments.analysis.statistics import NO, PARTIAL, YES
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN, Verdict
from experiments.studies import macro


def cell(name: str, n: int | None = None, **value: float) -> Comparison:
    """Make a table cell with these numbers, from ``n`` seeds or from every published one."""
    of, row_key, column_key = name.split(".")
    table = macro(of)
    row = table.row(row_key)
    used = row.seeds if n is None else n
    numbers = {key.replace("__", "."): v for key, v in value.items()}
    made = Cell((RecordedRun(0, "run", {}),) * used, {}, (), numbers, DASH, row.seeds)
    published = value_of(table, row, column_key)
    return Comparison(table, row, table.column(column_key), made, published, Verdict(NOT_RUN))


def eight(column: str, values: Sequence[float]) -> list[Comparison]:
    rows = ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn")
    return [cell(f"dataeightbody.{row}.{column}", value=value) for row, value in zip(rows, values, strict=True)]


def stories(ratio: float) -> list[Comparison]:
    rows, scores = ("heads", "ffn", "joint", "mamba"), {"soft": 1.0, "truncated": ratio}
    return [cell(f"dataeightbody.stories-{row}.{key}", value=bits) for row in rows for key, bits in scores.items()]


def dimensions(last: float) -> list[Comparison]:
    rates = {1: 100.0, 2: 100.0, 4: 100.0, 6: 100.0, 8: last}
    return [cell(f"datafifteenbody.{d}.exact", rate=rate) for d, rate in rates.items()]


Case = tuple[list[Comparison], str]
OF_CELLS: dict[str, tuple[Case, Case]] = {
    "dimension": ((dimensions(90.0), AGREES), (dimensions(20.0), DISAGREES)),
    # one row is proof that there is some; four rows without one do not prove that there is none
    "vision_prune": (
        (eight("prunes_back", [YES, PARTIAL, NO, YES]), AGREES),
        (eight("prunes_back", [YES] * 4), CANNOT_TELL),
    ),
    # single runs have no interval
    "stories_truncation": ((stories(1.02), CANNOT_TELL), (stories(1.2), CANNOT_TELL)),
}
"""Claim → two sets of cells with the verdicts on them."""

PUBLISHED = [cell(f"datafourbody.{row}.integer", 0) for row in ("baseline", "lambda_const")]
"""Cells of which only the published number is read."""
