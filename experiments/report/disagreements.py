"""Read what disagrees with the paper, and why: ``disagreements.yaml`` with the numbers of the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml

from experiments.analysis.claims import Judged
from experiments.analysis.compare import Comparison, totals
from experiments.analysis.verdict import CANNOT_TELL, DISAGREES

SOURCE = Path(__file__).with_name("disagreements.yaml")


@cache
def _source() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SOURCE.read_text())
    return found


def groups(items: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the entries of the file, each with the comparisons of its ``cells`` in place of their names.

    Each has a ``title``, ``cells``, a ``text`` on all of them, and ``explanations``. These have a ``heading``, one
    ``line``, a ``text``, a ``standing`` (shown, likely, in part, open or empty), ``cells``, and whether one of these
    ``differs`` under the rule. A single run outside the range of our seeds does not.

    Args:
        items: every comparison of the paper's tables.
    """
    by_name = {item.name: item for item in items if not item.stand_in}
    found = totals(items)
    numbers = {"outside": found.outside, "placed": found.placed, "expected": f"{found.expected_outside:.1f}"}
    apart = {
        item.fact: item
        for item in by_name.values()
        if item.row.seeds == 1 and not all(part.inside for part in item.verdict.parts)
    }

    def cells(entry: Mapping[str, Any]) -> list[Comparison]:
        names = entry.get("cells", ())
        return [*apart.values()] if names == "outside" else [by_name[name] for name in names]

    def explained(entry: Mapping[str, Any]) -> dict[str, Any]:
        own = cells(entry)
        differs = any(item.verdict.word == DISAGREES for item in own)
        return {"standing": "", "line": "", **entry, "cells": own, "differs": differs}

    return [
        {
            **entry,
            "cells": cells(entry),
            "explanations": [explained(one) for one in entry["explanations"]],
            "text": Template(entry.get("text", "")).substitute(numbers),
        }
        for entry in _source()["sections"]
    ]


def reasons(claims: Iterable[Judged]) -> Mapping[str, str]:
    """Return the reason, as far as known, for each claim that disagrees or that our runs cannot tell."""
    known: dict[str, str] = _source()["claims"]
    words = {claim.key: claim.word for claim in claims}
    return {key: text for key, text in known.items() if words[key] in (DISAGREES, CANNOT_TELL)}
