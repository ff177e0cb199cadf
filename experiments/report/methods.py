"""The methods with their sources, and what our runs say of each: cells of its rows by verdict, and judged claims."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

from experiments.analysis.compare import words
from experiments.report.claims import Judged
from experiments.report.content import Report

SOURCES = Path(__file__).with_name("methods.yaml")


@dataclass(frozen=True)
class MethodLine:
    """One method: its name on the command line and in words, its source, cells by verdict, and claims about it."""

    method: str
    name: str
    year: int | None
    paper: str
    cells: Counter[str]
    claims: tuple[Judged, ...]


def lines(report: Report) -> list[MethodLine]:
    """Every method of ``methods.yaml``, in its order."""
    judged = {claim.key: claim for claim in report.claims if claim.word != "untested"}
    made = []
    for entry in yaml.safe_load(SOURCES.read_text()):
        keys, mine = entry.pop("claims"), []
        for item in report.items:
            if item.row.runs is not None and dict(item.row.runs.choices).get("method", "ngn") == entry["method"]:
                mine.append(item)
        made.append(MethodLine(**entry, cells=words(mine), claims=tuple(judged[key] for key in keys if key in judged)))
    return made
