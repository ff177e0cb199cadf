"""What the models of table 8 cost once they are trained: parameters, multiply-adds, time, beside their accuracy.

Times are those of ``results/latency.json``, measured together; all else is the records' own.
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
"""(what it is, phase, what of it, by which scores)."""


@dataclass(frozen=True)
class CostRow:
    """Medians over seeds of one kind of model of one row of table 8.

    Attributes:
        key, label: of the row.
        model: one of :data:`MODELS`.
        n: usable seeds of those ``wanted``; with none there are no numbers.
        accuracy: per cent of the test samples.
        parameters: weights and biases.
        multiply_adds: of one sample, in matrix products and convolutions.
        milliseconds: of a forward pass of ``samples`` samples, on ``hardware``; None unless all ``n`` were timed.
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


def table(reader: Reader) -> tuple[CostRow, ...]:
    """Four rows for each row of table 8 that is classified images or nodes."""
    times = latency.read(reader.store.root)
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
    """Median milliseconds over the runs that are ``used``, samples, hardware; nothing if one of them was not timed."""
    each = [times.of(run.run_id, phase, part, run.record) for run in collected.runs if run.run_id in used]
    known = [one for one in each if one is not None]
    if len(known) < len(each):
        return {}
    return {"milliseconds": median(ms for ms, _ in known), "samples": known[0][1], "hardware": times.hardware}


def by_label(rows: Iterable[CostRow]) -> Iterator[tuple[str, list[CostRow]]]:
    """(label, its rows) in order."""
    for label, own in groupby(rows, lambda row: row.label):
        yield label, list(own)
