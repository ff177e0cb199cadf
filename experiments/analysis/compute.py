"""Sum what studies cost: runs, run-steps and hours, by study and by hardware, from their usable records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.selection import Selection


@dataclass(frozen=True)
class StudyCost:
    """The cost of one study on one kind of hardware.

    Attributes:
        study: its name; empty for the sum over studies.
        hardware: processor and visible cores, or the accelerator's name.
        run_steps: optimiser steps of single models. Phases taken from another record count only there.
        hours: wall time of the processes. The time of a stack is divided among its runs.
    """

    study: str
    hardware: str
    runs: int
    run_steps: int
    hours: float


def costs(reader: Reader, studies: Mapping[str, Iterable[Selection]]) -> tuple[StudyCost, ...]:
    """Return the cost of each study, then of all together.

    A run that belongs to two studies counts in both, and once in the sum.

    Args:
        studies: name → the selections of a study.
    """
    runs = {name: _runs(reader, selections) for name, selections in studies.items()}
    every = {run_id: run for of_study in runs.values() for run_id, run in of_study.items()}
    return (*(cost for name, of_study in runs.items() for cost in _costs(name, of_study)), *_costs("", every))


def _runs(reader: Reader, selections: Iterable[Selection]) -> Mapping[str, RecordedRun]:
    """Map run ids to usable records, including diverged runs and companions."""
    found = (run for selection in selections for run in reader.collect(selection).runs)
    return {one.run_id: one for run in found for one in (run, *run.companions.values())}


def _costs(name: str, runs: Mapping[str, RecordedRun]) -> tuple[StudyCost, ...]:
    by_hardware: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs.values():
        by_hardware[hardware(run.record)].append(run.record)
    return tuple(
        StudyCost(
            name,
            where,
            len(records),
            sum(steps for record in records for steps in _steps(record)),
            sum(record["time"]["seconds"] for record in records) / 3600,
        )
        for where, records in sorted(by_hardware.items())
    )


def hardware(record: Mapping[str, Any]) -> str:
    """Describe the hardware of a run."""
    device, machine = record["execution"]["device"], record["hardware"]
    if device != "cpu":
        return str(device)
    return f"{machine.get('cpu', 'unknown processor')}, {machine.get('cores', '?')} cores"


def _steps(record: Mapping[str, Any]) -> Iterator[int]:
    """Yield the optimiser steps of each phase that was trained for this record."""
    grown = record["phases"].get("grown", {})
    for name, phase in record["phases"].items():
        # A diverged grown model gives no size to retrain at: its fixed phase is empty.
        untrained = name == "fixed" and grown.get("status", "complete") != "complete"
        if not untrained:
            yield int(phase["steps"])
