"""Sum what studies cost: runs, run-steps and hours, by study and by hardware, from their usable records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.analysis.collect import Reader, RecordedRun
from experiments.studies import study


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


def costs_by_study(reader: Reader, studies: Iterable[str]) -> tuple[StudyCost, ...]:
    """Return the cost of each study. A run that belongs to two studies counts in both.

    Raises:
        KeyError: if there is no study of that name.
    """
    return tuple(cost for name in studies for cost in _costs(name, _runs(reader, [name])))


def total_costs(reader: Reader, studies: Iterable[str]) -> tuple[StudyCost, ...]:
    """Return the cost of all studies together, counting every record once.

    Raises:
        KeyError: if there is no study of that name.
    """
    return _costs("", _runs(reader, studies))


def _runs(reader: Reader, studies: Iterable[str]) -> Mapping[str, RecordedRun]:
    """Map run ids to usable records, including diverged runs and companions."""
    found: dict[str, RecordedRun] = {}
    for name in studies:
        for selection in study(name).make():
            for run in reader.collect(selection).runs:
                found |= {one.run_id: one for one in (run, *run.companions.values())}
    return found


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
