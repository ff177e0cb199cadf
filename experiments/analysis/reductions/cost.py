"""Tabulate the inference cost of the models of table 8: parameters, multiply-adds, time, with their accuracy.

Times come from ``results/latency.json``, all other numbers from the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import Any

from experiments.analysis import latency
from experiments.analysis.collect import Collected, Reader
from experiments.analysis.reduce import sample
from experiments.analysis.statistics import statistic
from experiments.tables.transfer import EIGHT

MODELS = (
    ("grown, all candidates", "grown", "candidate", "soft"),
    ("grown, truncated", "grown", "deployed", "truncated"),
    ("fixed at that count", "fixed", "deployed", "truncated"),
    ("from high, truncated", "from_high", "deployed", "truncated"),
)
"""(label, phase, model in it, scores)."""


@dataclass(frozen=True)
class CostRow:
    """Medians over seeds for one kind of model in one row of table 8.

    Attributes:
        key, label: key and label of the row.
        model: label of one of :data:`MODELS`.
        n: usable seeds of the ``wanted`` ones; without any there are no numbers.
        accuracy: per cent of the test samples.
        parameters: number of weights and biases.
        multiply_adds: for one sample, in matrix products and convolutions.
        milliseconds: for a forward pass of ``samples`` samples on ``hardware``; None unless all ``n`` were timed.
        runs: run ids.
    """

    key: str
    label: str
    model: str
    n: int
    wanted: int
    accuracy: float | None = None
    parameters: float | None = None
    multiply_adds: float | None = None
    milliseconds: float | None = None
    samples: int | None = None
    hardware: str = ""
    runs: tuple[str, ...] = ()


def cost_table(reader: Reader) -> tuple[CostRow, ...]:
    """Return four rows for each row of table 8."""
    times = latency.read_latencies(reader.store.root)
    found = []
    for key, runs in EIGHT.runs.items():
        collected = reader.collect(runs)
        for model, phase, part, scores in MODELS:
            names = [
                f"{phase}.{scores}.accuracy",
                f"{phase}.parameters.{part}",
                f"{phase}.cost.multiply_adds.{part}",
                f"{phase}.cost.samples",
            ]
            samples, used, _ = sample(collected, names, frozenset(names))
            plain = CostRow(key, ", ".join(EIGHT.row(key).labels), model, len(used), len(runs.seeds))
            if not used:
                found.append(plain)
                continue
            accuracy, parameters, operations, batch = (float(statistic("median", samples[name])[0]) for name in names)
            timed = _timed(times, collected, used, phase, part)
            measured: dict[str, Any] = {
                "accuracy": accuracy,
                "parameters": parameters,
                "multiply_adds": operations / batch,
            }
            found.append(replace(plain, **measured, **timed, runs=used))
    return tuple(found)


def _timed(
    times: latency.Latencies, collected: Collected, used: Sequence[str], phase: str, part: str
) -> dict[str, Any]:
    """Return median milliseconds over the ``used`` runs, samples and hardware; nothing if a run was not timed."""
    each = [times.of(run.run_id, phase, part, run.record) for run in collected.runs if run.run_id in used]
    known = [one for one in each if one is not None]
    if len(known) < len(each):
        return {}
    return {"milliseconds": median(ms for ms, _ in known), "samples": known[0][1], "hardware": times.hardware}


def by_label(rows: Iterable[CostRow]) -> Iterator[tuple[str, list[CostRow]]]:
    """Yield (label, its rows) in order."""
    for label, own in groupby(rows, lambda row: row.label):
        yield label, list(own)
