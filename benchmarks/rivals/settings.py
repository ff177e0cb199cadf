"""Settings that follow from files of results: chosen on validation data, or of equal processor time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from rivals import table

AS = dict.fromkeys(("NGN, sizes fixed early", "NGN's sizes from scratch", "shrunk to even sizes"), "NGN")
"""Methods without a search of their own that take the settings of another, as they use its sizes or its way."""
SAME = {"trained56": "trained20", "longer56": "longer20"}
"""Works that take the settings of another, where a search would cost more than the runs."""
ENOUGH = 0.05
"""A method within this part of the dense model's processor time keeps its number of steps."""


def chosen(folder: Path, work: str, method: str) -> dict[str, Any]:
    """Return the changed settings of the best validation score in ``folder``; empty without a search.

    Runs of one length compete, that of most runs. The length itself is not chosen: all methods of a work have the same.
    """
    of_work = [u for u in table.read_results(folder) if u["work"] == SAME.get(work, work)]
    own = [u for u in of_work if u["method"] == method]
    units = own or [u for u in of_work if u["method"] == AS.get(method)]
    lengths = Counter(u["settings"]["steps"] for u in units)
    units = [u for u in units if u["settings"]["steps"] == lengths.most_common(1)[0][0]]
    changes: dict[str, Any] = max(units, key=lambda u: u["better"] * u["score"])["changes"] if units else {}
    return {name: value for name, value in changes.items() if name != "steps"}


def steps_in_time(folder: Path, work: str, method: str, share: int) -> int | None:
    """Return the steps of ``method`` that take as long as the dense model's; None if they are those it had.

    Both times are of seed 0 and equal steps, in processor seconds.

    Raises:
        FileNotFoundError: if one of these units has not been run.
    """
    own, dense = (
        json.loads((folder / f"{table.named(work, name, part)}-s0.json").read_text())
        for name, part in ((method, share), ("dense", 100))
    )
    ratio = dense["processor_seconds"] / own["processor_seconds"]
    return None if abs(ratio - 1) < ENOUGH else round(own["settings"]["steps"] * ratio)
