"""Read ``results/latency.json``: times of forward passes, all measured on one machine after the runs.

A run also times its own models, but its machine may be busy, and a study may use several machines. Therefore
``scripts/measure_latency.py`` builds models with the sizes from the records and times them in turns.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastjsonschema

from experiments.blocks import refuse_control
from experiments.store.records import MAX_FILE_BYTES, RecordError, strict_json
from ngn.files import read_regular

NAME = "latency.json"
SCHEMA_VERSION = 1


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


@functools.lru_cache(maxsize=1)
def _validator() -> Any:
    return fastjsonschema.compile(json.loads(Path(__file__).with_name("latency.schema.json").read_text()))


def read_latencies(root: Path) -> Latencies:
    """Read the times of the records below ``root``; without a file, return no times.

    Raises:
        RecordError: if the file is damaged.
    """
    path = root / NAME
    if not path.exists():
        return Latencies("", {})
    try:
        document = strict_json(read_regular(path, MAX_FILE_BYTES))
        refuse_control(document)
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
