"""Trace every cell, claim and point to its records, as one JSON document; docs/report.md has its form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.compare import Comparison
from experiments.analysis.explain import arithmetic
from experiments.report.content import ReportContent

SCHEMA = 1


class _Runs:
    """Number every run that is named, each once."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.numbers: dict[str, int] = {}
        self.commits: dict[str, int] = {}

    def of(self, names: tuple[str, ...] | list[str]) -> list[int]:
        """Return the number of each run id."""
        return [self.numbers.setdefault(name, len(self.numbers)) for name in names]

    def entries(self) -> list[list[Any]]:
        """Return [run id, path below the results folder, number of its commit] of every run."""
        found = []
        for name in self.numbers:
            run = self.reader.seen.get(name)
            commit = (run.record["code"]["commit"] if isinstance(run, RecordedRun) else None) or "unknown"
            path = self.reader.store.path(name).relative_to(self.reader.store.root)
            found.append([name, path.as_posix(), self.commits.setdefault(commit, len(self.commits))])
        return found


def _number(value: float) -> float | int:
    """Round to ten significant digits, which repeat any arithmetic of the tables; integers stay integers."""
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot stand in JSON")
    short = float(f"{value:.10g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _end(value: float) -> float | int | None:
    """Return the end of an interval; None where too few runs leave it open."""
    return _number(value) if math.isfinite(value) else None


def _cell(item: Comparison, runs: _Runs) -> dict[str, Any]:
    cell = item.cell
    steps = [
        {
            "statistic": step.statistic,
            "quantity": step.quantity,
            "gate": step.gate,
            "result": _number(float(step.result)),
        }
        for step in arithmetic(item.table, item.row, item.column.key, cell)
    ]
    samples = {
        quantity: [[_number(float(number)) for number in gate] for gate in np.atleast_2d(gates)]
        for quantity, gates in cell.samples.items()
    }
    companions: set[str] = set()
    by_id = {run.run_id: run for run in item.runs(runs.reader)}
    for name in cell.run_ids:
        companions |= {other.run_id for other in by_id[name].companions.values()}
    return {
        "cell": item.name,
        **({"stand_in": item.stand_in} if item.stand_in else {}),
        "printed": cell.printed,
        "ours": cell.text,
        "published": item.published_text,
        "n": cell.n,
        "wanted": cell.wanted,
        "judged": item.verdict.seeds,
        "verdict": item.verdict.text,
        "interval": [[part.name, _number(part.low), _number(part.high)] for part in item.verdict.parts],
        "runs": runs.of(cell.run_ids),
        "companions": runs.of(sorted(companions)),
        "samples": samples,
        "arithmetic": steps,
        "problems": [f"{problem.kind}: {problem}" for problem in cell.problems if problem.kind != "no study"],
    }


def document(report: ReportContent, reader: Reader, commit: str | None) -> dict[str, Any]:
    """Return the provenance of a report.

    Args:
        commit: of the code that reduced the records; None if unknown.
    """
    runs = _Runs(reader)
    cells = [_cell(item, runs) for item in report.items]
    claims = {
        claim.key: {
            "verdict": claim.word,
            "numbers": [
                [finding.what, _number(finding.value), _end(finding.low), _end(finding.high), finding.wanted]
                for finding in claim.findings
            ],
            "runs": runs.of(claim.runs),
        }
        for claim in report.claims
    }
    figures = {
        name: {
            "points": [[p.panel, p.series, _number(p.x), _number(p.y), runs.of(p.runs)] for p in data.points],
            "curves": [[c.panel, c.series, *runs.of([c.run])] for c in data.curves],
        }
        for name, data in report.figures.items()
    }
    return {
        "schema": SCHEMA,
        "code": commit,
        "cells": cells,
        "claims": claims,
        "own": {
            own.table.name: {row.key: [runs.of(cell.run_ids) for cell in cells] for row, cells in own.rows}
            for own in report.own
        },
        "alternatives": {
            both.study.name: {pair.other.name: runs.of(pair.other.cell.run_ids) for pair in both.cells}
            for both in report.alternatives
        },
        "figures": figures,
        "runs": runs.entries(),
        "commits": list(runs.commits),
    }
