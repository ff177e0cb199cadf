"""Sum what studies cost: runs, run-steps and hours, by study and by hardware, from their usable records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.analysis.collect import Reader
from experiments.analysis.selection import Selection


def costs(reader: Reader, studies: Mapping[str, Iterable[Selection]]) -> list[Any]:
    """Return the cost of each study, then of all together, from usable records, diverged ones and companions included.

    A run that belongs to two studies counts in both, and once in the sum.

    Args:
        studies: name → the selections of a study.

    Returns:
        tuples for each study and kind of hardware: ``study`` (empty for the sum), ``hardware`` (processor and visible
        cores, or the accelerator's name), ``runs``, ``run_steps`` (optimiser steps of single models; phases taken from
        another record count only there) and ``hours`` (wall time; that of a stack is divided among its runs).
    """
    import pandas as pd  # imported here: it takes longer than most commands need

    rows = []
    for study, selections in studies.items():
        runs = (run for selection in selections for run in reader.collect(selection).runs)
        by_id = {one.run_id: one.record for run in runs for one in (run, *run.companions.values())}
        for name, record in by_id.items():
            rows.append((study, hardware(record), name, _steps(record), record["time"]["seconds"] / 3600))
    table = pd.DataFrame(rows, columns=["study", "hardware", "runs", "run_steps", "hours"])
    each = pd.concat([table, table.drop_duplicates("runs").assign(study="")]).groupby(["study", "hardware"])
    sums = each.agg({"runs": "count", "run_steps": "sum", "hours": "sum"}).reset_index()
    places = [*studies, ""]
    return sorted(sums.itertuples(index=False, name="Cost"), key=lambda cost: (places.index(cost.study), cost.hardware))


def hardware(record: Mapping[str, Any]) -> str:
    """Describe the hardware of a run."""
    device, machine = record["execution"]["device"], record["hardware"]
    if device != "cpu":
        return str(device)
    return f"{machine.get('cpu', 'unknown processor')}, {machine.get('cores', '?')} cores"


def _steps(record: Mapping[str, Any]) -> int:
    """Return the optimiser steps of the phases that were trained for this record.

    A diverged grown model gives no size to retrain at: its fixed phase is empty.
    """
    phases = record["phases"]
    diverged = phases.get("grown", {}).get("status", "complete") != "complete"
    return sum(int(phase["steps"]) for name, phase in phases.items() if not (name == "fixed" and diverged))
