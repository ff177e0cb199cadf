"""Read the published values, for comparison only: the builder of our own file never imports this module."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from experiments.analysis.tables import Format, Row, Table, Value, parse_format
from experiments.core.paths import ROOT

PATH = ROOT / "paper" / "published.json"


@cache
def load_published() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Load the published values: macro → row → column → {"text": as printed, "value": slot → number}."""
    return dict(json.loads(PATH.read_text())["values"])


def value_of(table: Table, row: Row, column: str) -> tuple[Format, Value] | None:
    """Return the published format and value of a cell; None if the paper prints a dash."""
    entry = load_published().get(table.name, {}).get(row.key, {}).get(column)
    if entry is None:
        return None
    for source in table.formats(row, column):
        form = parse_format(source)
        if {slot.name for slot in form.slots} == set(entry["value"]):
            return form, entry["value"]
    raise ValueError(f"{table.name}.{row.key}.{column}: no format has the slots {sorted(entry['value'])}")
