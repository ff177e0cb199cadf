"""What studies have cost: runs, run-steps and hours, by study and by hardware, from their usable records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.analysis.collect import Reader, Run
from experiments.studies import study


@dataclass(frozen=True)
class Spent:
    """The records of one study that were made on one kind of hardware.

    Attributes:
        study: its name; empty for the sum over studies.
        hardware: processor and visible cores, or the accelerator's name.
        run_steps: optimiser steps of single models; what was taken from another record is not counted again.
        hours: wall time of the processes; that of a stack is divided among its runs, and counts once.
    """

    study: str
    hardware: str
    runs: int
    run_steps: int
    hours: float


def by_study(reader: Reader, studies: Iterable[str]) -> tuple[Spent, ...]:
    """What each study has cost; a run that belongs to two studies is in both.

    Raises:
        KeyError: if there is no study of that name.
    """
    return tuple(spent for name in studies for spent in _spent(name, _runs(reader, [name])))


def total(reader: Reader, studies: Iterable[str]) -> tuple[Spent, ...]:
    """What all of them have cost together, every record once.

    Raises:
        KeyError: if there is no study of that name.
    """
    return _spent("", _runs(reader, studies))


def _runs(reader: Reader, studies: Iterable[str]) -> Mapping[str, Run]:
    """Run id → usable record, diverged ones included, and those of the fixed models that belong to them."""
    found: dict[str, Run] = {}
    for name in studies:
        for selection in study(name).make():
            for run in reader.collect(selection).runs:
                found |= {one.run_id: one for one in (run, *run.companions.values())}
    return found


def _spent(name: str, runs: Mapping[str, Run]) -> tuple[Spent, ...]:
    by_hardware: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs.values():
        by_hardware[hardware(run.record)].append(run.record)
    return tuple(
        Spent(
            name,
            where,
            len(records),
            sum(steps for record in records for steps in _steps(record)),
            sum(record["time"]["seconds"] for record in records) / 3600,
        )
        for where, records in sorted(by_hardware.items())
    )


def hardware(record: Mapping[str, Any]) -> str:
    """What a run was trained on, in words."""
    device, machine = record["execution"]["device"], record["hardware"]
    if device != "cpu":
        return str(device)
    return f"{machine.get('cpu', 'unknown processor')}, {machine.get('cores', '?')} cores"


def _steps(record: Mapping[str, Any]) -> Iterator[int]:
    """Optimiser steps of each phase that was trained for this record."""
    grown = record["phases"].get("grown", {})
    for name, phase in record["phases"].items():
        # after a grown model that diverged there is no size to retrain at: its fixed phase only says so
        untrained = name == "fixed" and grown.get("status", "complete") != "complete"
        if "taken_from" not in phase and not untrained:
            yield int(phase["steps"])
