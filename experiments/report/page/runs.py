"""The runs on the page, each once, and the learning curves of some of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader, RecordedRun
from experiments.store.records import RecordError, read_record

CURVE_POINTS = 75
"""Most points of a curve on the page; a stored curve has up to 300."""
LOSSES = ("loss", "task")


def rounded(numbers: Iterable[float], digits: int = 4) -> list[float | int | None]:
    """Round numbers to ``digits`` significant digits; infinite numbers and NaN become None."""
    found: list[float | int | None] = []
    for number in numbers:
        value = float(f"{float(number):.{digits}g}") if math.isfinite(number) else None
        found.append(int(value) if value is not None and value.is_integer() else value)
    return found


def thinned(points: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the indices of at most ``CURVE_POINTS`` evenly spread points, including the first and the last: [kept]."""
    return np.unique(np.linspace(0, points - 1, min(points, CURVE_POINTS)).round().astype(np.int64))


class Runs:
    """The runs on the page and their curves.

    Attributes:
        names: run id → number, in the order of first use.
        curves: run id → curves to draw.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.names: dict[str, int] = {}
        self.curves: dict[str, dict[str, Any]] = {}

    def at(self, name: str) -> int:
        """Return the number of a run."""
        return self.names.setdefault(name, len(self.names))

    def record(self, name: str) -> dict[str, Any]:
        """Return the record of a run behind a cell."""
        run = self.reader.seen[name]
        assert isinstance(run, RecordedRun), name
        return dict(run.record)

    def add_curves(self, name: str) -> bool:
        """Add the run's curves to the page. Return False if it has no stored curves."""
        if name not in self.curves:
            panels = [panel for phase in self._phases(name) for panel in phase]
            if not panels:
                return False
            self.curves[name] = {"title": f"Training of {name}", "columns": 2, "panels": panels}
        return True

    def _phases(self, name: str) -> Iterable[list[dict[str, Any]]]:
        curves = self.reader.store.curves(name) or {}
        for key, steps in curves.items():
            phase, _, last = key.rpartition(".")
            if last != "step":
                continue
            kept = thinned(len(steps))
            series: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
            for other, values in curves.items():
                leaf = other.removeprefix(f"{phase}.")
                if leaf == other or leaf in ("step", "held", "held_step") or len(values) != len(steps):
                    continue
                columns = values[kept].reshape(len(kept), -1).T
                for gate, column in enumerate(columns):
                    title = leaf if len(columns) == 1 else f"{leaf}[{gate}]"
                    line = {"name": title, "mark": "line", "x": rounded(steps[kept], 9), "y": rounded(column)}
                    loss = leaf in LOSSES
                    series[loss].append({**line, "look": len(series[loss]) % 7})
            yield [_panel(phase, "loss" if loss else "value", found) for loss, found in series.items() if found]


def _panel(phase: str, label: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    log = label == "loss" and all(value is None or value > 0 for one in series for value in one["y"])
    x, y = {"label": "training step", "log": False}, {"label": label, "log": log}
    return {"title": phase, "x": x, "y": y, "lanes": False, "fewest": 0, "series": series}


def damaged(reader: Reader) -> list[tuple[str, str]]:
    """Return (file, fault) of every invalid record in the store."""
    found = []
    for path in reader.store.paths():
        if path.stem in reader.seen:
            continue
        try:
            read_record(path)
        except RecordError as error:
            place = f"{reader.store.root.name}/{path.relative_to(reader.store.root)}"
            found.append((place, str(error).removeprefix(f"{path}: ")))
    return found
