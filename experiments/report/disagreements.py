"""Read what disagrees with the paper, and why: ``disagreements.yaml`` with the numbers of the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml

from experiments.analysis.claims import Judged
from experiments.analysis.compare import Comparison, totals
from experiments.analysis.verdict import CANNOT_TELL, DISAGREES

SOURCE = Path(__file__).with_name("disagreements.yaml")


@dataclass(frozen=True)
class Explanation:
    """Why some cells differ, in one ``line`` and in a ``text``. ``standing``: shown, likely, in part, open or empty."""

    heading: str
    text: str
    standing: str = ""
    line: str = ""
    cells: tuple[Comparison, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether one of its cells disagrees under the rule. A single run outside the range of our seeds does not."""
        return any(item.verdict.word == DISAGREES for item in self.cells)


@dataclass(frozen=True)
class Group:
    """Cells that differ, each fact once, with explanations and a ``text`` on all of them."""

    title: str
    cells: tuple[Comparison, ...]
    explanations: tuple[Explanation, ...]
    text: str = ""


@cache
def _source() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SOURCE.read_text())
    return found


def _outside(items: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Return one cell of each single published run that lies outside the range of our seeds."""
    single = [item for item in items if item.row.seeds == 1]
    apart = {item.fact: item for item in single if not all(part.inside for part in item.verdict.parts)}
    return tuple(apart.values())


def groups(items: Sequence[Comparison]) -> tuple[Group, ...]:
    """Return the entries of the file with the comparisons of their cells.

    Args:
        items: every comparison of the paper's tables.
    """
    by_name = {item.name: item for item in items if not item.stand_in}
    found = totals(items)
    numbers = {"outside": found.outside, "placed": found.placed, "expected": f"{found.expected_outside:.1f}"}

    def cells(entry: Mapping[str, Any]) -> tuple[Comparison, ...]:
        names = entry.get("cells", ())
        return _outside(by_name.values()) if names == "outside" else tuple(by_name[name] for name in names)

    return tuple(
        Group(
            entry["title"],
            cells(entry),
            tuple(Explanation(**{**one, "cells": cells(one)}) for one in entry["explanations"]),
            Template(entry.get("text", "")).substitute(numbers),
        )
        for entry in _source()["sections"]
    )


def reasons(claims: Iterable[Judged]) -> Mapping[str, str]:
    """Return the reason, as far as known, for each claim that disagrees or that our runs cannot tell."""
    known: dict[str, str] = _source()["claims"]
    words = {claim.key: claim.word for claim in claims}
    return {key: text for key, text in known.items() if words[key] in (DISAGREES, CANNOT_TELL)}
