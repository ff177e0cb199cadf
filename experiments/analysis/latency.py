"""Read ``results/latency.json``: times of forward passes, all measured on one machine after the runs.

A run also times its own models, but its machine may be busy, and a study may use several machines. Therefore
``scripts/measure_latency.py`` builds models with the sizes from the records and times them in turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from experiments.blocks import refuse_control
from experiments.store.keys import FORBID, AtLeastOne, Natural
from experiments.store.records import MAX_FILE_BYTES, RecordError, strict_json
from ngn.files import read_regular

NAME = "latency.json"
SCHEMA_VERSION = 1


@with_config(FORBID)
class TimedBy(TypedDict):
    """The code that timed the models."""

    commit: str | None
    clean: Literal[True]
    source: str


class TimedOn(TypedDict):
    """The machine that timed the models."""

    cpu: str
    cores: AtLeastOne
    system: str


@with_config(FORBID)
class Timed(TypedDict):
    """One model: its median over rounds for ``samples`` samples."""

    run: str
    phase: Literal["grown", "fixed", "from_high"]
    part: Literal["candidate", "deployed"]
    count: list[Natural]
    samples: AtLeastOne
    milliseconds: Annotated[float, Field(gt=0)]


@with_config(FORBID)
class LatencyFile(TypedDict):
    """The content of the file."""

    schema: Literal[1]
    measured: str
    code: TimedBy
    hardware: TimedOn
    packages: dict[str, Any]
    threads: AtLeastOne
    rounds: AtLeastOne
    models: list[Timed]


@dataclass(frozen=True)
class Latencies:
    """Wall times of forward passes.

    Attributes:
        hardware: processor, cores and threads used.
        milliseconds: (run id, phase, "candidate" or "deployed") → median over rounds for ``samples`` samples, and the
            retained counts of the timed model.
    """

    hardware: str
    milliseconds: Mapping[tuple[str, str, str], tuple[float, list[int], int]]

    def of(self, run_id: str, phase: str, part: str, record: Mapping[str, Any]) -> tuple[float, int] | None:
        """Return milliseconds and samples; None if no model, or one with another count than the record's, was timed."""
        found = self.milliseconds.get((run_id, phase, part))
        if found is None or found[1] != record["phases"][phase]["count"]:
            return None
        return found[0], found[2]


def read_latencies(root: Path) -> Latencies:
    """Read the times of the records below ``root``; without a file, return no times.

    Raises:
        RecordError: if the file is damaged.
    """
    path = root / NAME
    if not path.exists():
        return Latencies("", {})
    try:
        content = strict_json(read_regular(path, MAX_FILE_BYTES))
        refuse_control(content)
        document = TypeAdapter(LatencyFile).validate_python(content, strict=True)
    except (OSError, ValueError, RecursionError) as fault:
        raise RecordError(f"{path}: {fault}; scripts/measure_latency.py writes it anew") from None
    machine = document["hardware"]
    threads = f"{document['threads']} thread{'s' if document['threads'] > 1 else ''}"
    return Latencies(
        f"{machine['cpu']}, {machine['cores']} cores, {threads}",
        {
            (one["run"], one["phase"], one["part"]): (one["milliseconds"], one["count"], one["samples"])
            for one in document["models"]
        },
    )
