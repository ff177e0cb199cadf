"""The records as the page holds them: what many of them share is stored once, and curves as far as there is room."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.analysis.collect import Problem, Reader, Run
from experiments.config.identity import flatten
from experiments.store.records import RecordError, read

CURVE_POINTS = 75
"""Points of a curve on the page; a stored one has up to 300."""
CURVE_BYTES = 3 * 1024 * 1024
"""All curves of the records together. With the rest of 5,000 records the page stays below 10 MiB."""

_ABOUT = ("code", "data", "execution", "hardware", "packages")


def compact(value: Any) -> str:
    """JSON without blanks; NaN is an error."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def rounded(numbers: Iterable[float], digits: int = 4) -> list[float | int | None]:
    """Numbers with few significant digits; None where one is not finite."""
    found: list[float | int | None] = []
    for number in numbers:
        value = float(f"{float(number):.{digits}g}") if math.isfinite(number) else None
        found.append(int(value) if value is not None and value.is_integer() else value)
    return found


def _shortened(value: Any) -> Any:
    """A block of a record with its numbers as the page shows them, since they are most of what it holds."""
    if isinstance(value, Mapping):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shortened(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


class _Once:
    """Values by their JSON, each kept once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._at: dict[str, int] = {}

    def at(self, value: Any) -> int:
        """The place of a value, added if it is new."""
        text = compact(value)
        if text not in self._at:
            self._at[text] = len(self.values)
            self.values.append(value)
        return self._at[text]


class RunTable:
    """Every record of a store, by a number that cells and points name it by.

    ``damaged`` holds the files that are no legal record, with what is wrong with them.
    """

    def __init__(self, reader: Reader) -> None:
        self.store = reader.store
        self.runs: list[dict[str, Any]] = []
        self.damaged: list[tuple[str, str]] = []
        self._at: dict[str, int] = {}
        self._about, self._steps = _Once(), _Once()
        self._bases: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
        for path in self.store.paths():
            seen = reader.seen.get(path.stem)
            try:
                record = seen.record if isinstance(seen, Run) else read(path)
            except RecordError as error:
                self.damaged.append((self._place(path), str(error).removeprefix(f"{path}: ")))
                continue
            self._add(path, record, f"{seen.kind}: {seen.text}" if isinstance(seen, Problem) else None)

    def _place(self, path: Path) -> str:
        return f"{self.store.root.name}/{path.relative_to(self.store.root)}"

    def _add(self, path: Path, record: Mapping[str, Any], fault: str | None) -> None:
        config = flatten(record["config"])
        seed = config.pop("seed.value")
        kind = (config.get("task.name"), config.get("gate.component"), config.get("method.name"))
        base, standard = self._bases.setdefault(kind, (len(self._bases), config))
        made: dict[str, Any] = {
            "id": record["run_id"],
            "path": self._place(path),
            "status": record["status"],
            "seed": seed,
            "base": base,
            "change": {key: value for key, value in config.items() if key not in standard or standard[key] != value},
            "phases": _shortened(record["phases"]),
            "started": record["time"]["started"],
            "seconds": record["time"]["seconds"],
            "stored": self.store.curves_path(record["run_id"]).exists(),
            **{block: self._about.at(record[block]) for block in _ABOUT},
        }
        gone = [key for key in standard if key not in config]
        made.update({"gone": gone} if gone else {}, **({"fault": fault} if fault else {}))
        self._at[record["run_id"]] = len(self.runs)
        self.runs.append(made)

    def at(self, run_id: str) -> int:
        """The number of a record that a cell or point was made from."""
        return self._at[run_id]

    @property
    def commits(self) -> list[str]:
        """The commits that the records were made by, most records first."""
        counts = Counter(self._about.values[run["code"]]["commit"] or "unknown" for run in self.runs)
        return sorted(counts, key=lambda commit: (-counts[commit], commit))

    def add_curves(self, first: Iterable[int], room: int = CURVE_BYTES) -> tuple[int, int]:
        """Add curves to the runs as long as there is room.

        Args:
            first: runs in the order in which they matter; seeds are taken in turn, the lowest of each first. Runs that
                are not named come last.
            room: bytes for all curves together.

        Returns:
            (runs that have their curves on the page, runs that have any stored).
        """
        stored = [at for at, run in enumerate(self.runs) if run["stored"]]
        rank = {at: place for place, at in reversed(list(enumerate(first)))}
        behind = len(rank) + len(self.runs)
        stored.sort(key=lambda at: (at not in rank, self.runs[at]["seed"], rank.get(at, behind), at))
        given = 0
        for at in stored:
            courses = self._courses(self.runs[at]["id"])
            room -= len(compact(courses))
            if room < 0:
                break
            self.runs[at]["courses"] = courses
            given += 1
        return given, len(stored)

    def _courses(self, run_id: str) -> list[dict[str, Any]]:
        curves = self.store.curves(run_id) or {}
        made = []
        for key, steps in curves.items():
            phase, _, name = key.rpartition(".")
            if name not in ("step", "held_step"):
                continue
            kept = thinned(len(steps))
            lines: dict[str, Any] = {}
            for other, values in curves.items():
                leaf = other.removeprefix(f"{phase}.")
                if leaf == other or leaf.endswith("step") or (leaf == "held") != (name == "held_step"):
                    continue
                if len(values) != len(steps):
                    continue
                columns = values[kept].reshape(len(kept), -1).T
                for gate, column in enumerate(columns):
                    lines[leaf if len(columns) == 1 else f"{leaf}[{gate}]"] = rounded(column)
            at = self._steps.at(rounded(steps[kept], 9))
            made.append({"phase": phase, "of": len(steps), "steps": at, "lines": lines})
        return made

    def payload(self) -> dict[str, Any]:
        """What the scripts read."""
        return {
            "runs": self.runs,
            "bases": [standard for _, standard in self._bases.values()],
            "about": self._about.values,
            "steps": self._steps.values,
        }


def thinned(points: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The places of at most ``CURVE_POINTS`` points, evenly spread, the first and the last among them; shape [kept]."""
    return np.unique(np.linspace(0, points - 1, min(points, CURVE_POINTS)).round().astype(np.int64))
