"""Times of forward passes, measured together on one machine after the runs: ``results/latency.json``.

A run times its own models, too, but beside whatever else its machine is doing, and runs of one study come from several
machines. So ``scripts/measure_latency.py`` builds models of the sizes that records hold and times them in turns.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastjsonschema

from experiments.store.records import RecordError

NAME = "latency.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Latencies:
    """Wall times of forward passes.

    Attributes:
        hardware: processor, cores and threads used.
        milliseconds: (run id, phase, "candidate" or "deployed") → median over rounds, for ``samples`` samples, with the
            retained counts of the model that was timed.
    """

    hardware: str
    milliseconds: Mapping[tuple[str, str, str], tuple[float, list[int], int]]

    def of(self, run_id: str, phase: str, part: str, record: Mapping[str, Any]) -> tuple[float, int] | None:
        """Milliseconds and samples; None where nothing was timed, or a model of another count than the record's."""
        found = self.milliseconds.get((run_id, phase, part))
        if found is None or found[1] != record["phases"][phase]["count"]:
            return None
        return found[0], found[2]


@functools.lru_cache(maxsize=1)
def _validator() -> Any:
    return fastjsonschema.compile(json.loads(Path(__file__).with_name("latency.schema.json").read_text()))


def read(root: Path) -> Latencies:
    """What was measured of the records below ``root``; empty where nothing was.

    Raises:
        RecordError: if the file is there and damaged.
    """
    path = root / NAME
    if not path.exists():
        return Latencies("", {})
    try:
        document = json.loads(path.read_text())
        _validator()(document)
    except (OSError, ValueError, RecursionError, fastjsonschema.JsonSchemaException) as fault:
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
