"""From a selection to its usable records, and to everything that was wrong with the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.analysis.selection import Selection, configurations, keys_of
from experiments.config.identity import flatten, identity_keys
from experiments.config.numerics import numerics
from experiments.config.schema import Config
from experiments.store.records import RecordError, Store


@dataclass(frozen=True)
class Problem:
    """Why a number is not printed.

    ``kind`` is one of missing, damaged, foreign, dirty, numerics, data, diverged, unmeasured, no study; ``where`` names
    the run, or the row that has none.
    """

    kind: str
    where: str
    text: str

    @property
    def refused(self) -> bool:
        """Whether a record is there that must not be used."""
        return self.kind in ("damaged", "foreign", "dirty", "numerics", "data", "unmeasured")

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class Run:
    """One usable record, and the records that belong to it."""

    seed: int
    run_id: str
    record: Mapping[str, Any]
    companions: Mapping[str, Run] = field(default_factory=dict)


@dataclass(frozen=True)
class Collected:
    """The usable runs of a selection in the order of its seeds, and the problems of the others.

    ``companion_problems`` concern only the numbers that need that companion.
    """

    wanted: int
    runs: tuple[Run, ...]
    problems: tuple[Problem, ...]
    companion_problems: Mapping[str, tuple[Problem, ...]]


def fault_of(
    record: Mapping[str, Any],
    config: Config,
    where: str,
    allow_dirty: bool = False,
    keys: Mapping[str, Any] | None = None,
) -> Problem | None:
    """Why a legal record does not count as the run of ``config``, or None if it does.

    Args:
        keys: the configuration's :func:`experiments.config.identity.identity_keys`, where they are known already.
    """
    stored = flatten(record["config"])
    for key, value in (identity_keys(config) if keys is None else keys).items():
        if key not in stored or stored[key] != value:
            return Problem("foreign", where, f"holds another configuration than its name says ({key})")
    wanted = numerics(config)
    if record["code"]["numerics"] != wanted:
        stale = f"numerics {record['code']['numerics']}, this code has {wanted}; run it again with force=true"
        return Problem("numerics", where, stale)
    if record["data"]["name"] != config.task.name:
        return Problem("data", where, f"was trained on {record['data']['name']}, not on {config.task.name}")
    if not record["code"]["clean"] and not allow_dirty:
        return Problem("dirty", where, "was made by uncommitted code; commit, and run it again with force=true")
    return None


def same_data(runs: list[Run]) -> tuple[list[Run], list[Problem]]:
    """The runs that saw the data that most of them saw, and what is wrong with the others."""
    digests = Counter(run.record["data"]["sha256"] for run in runs)
    if len(digests) < 2:
        return runs, []
    common = digests.most_common(1)[0][0]
    odd = [run for run in runs if run.record["data"]["sha256"] != common]
    text = "was trained on other data than the other seeds (another sha256)"
    return [run for run in runs if run not in odd], [Problem("data", run.run_id, text) for run in odd]


class Reader:
    """Reads each record of a store at most once.

    Args:
        allow_dirty: also take records of uncommitted code (for a look at one's own runs, never for the paper's file).
    """

    def __init__(self, store: Store, allow_dirty: bool = False) -> None:
        self.store = store
        self.allow_dirty = allow_dirty
        self._runs: dict[str, Run | Problem] = {}
        self._collected: dict[Selection, Collected] = {}

    @property
    def seen(self) -> Mapping[str, Run | Problem]:
        """Run id → the run, or why it does not count, of all that were asked for so far."""
        return self._runs

    def _run(self, selection: Selection, seed: int, config: Config, run_id: str) -> Run | Problem:
        if run_id not in self._runs:
            self._runs[run_id] = self._read(selection, seed, config, run_id)
        return self._runs[run_id]

    def _read(self, selection: Selection, seed: int, config: Config, run_id: str) -> Run | Problem:
        try:
            record = self.store.get(run_id)
        except RecordError as error:
            where = self.store.path(run_id)
            return Problem("damaged", run_id, str(error).removeprefix(f"{where}: "))
        if record is None:
            return Problem("missing", run_id, "not run")
        fault = fault_of(record, config, run_id, self.allow_dirty, keys_of(selection, seed))
        return fault or Run(seed, run_id, record)

    def collect(self, selection: Selection) -> Collected:
        """The records of a selection. Their absence or damage is reported, never raised."""
        if selection not in self._collected:
            self._collected[selection] = self._collect(selection)
        return self._collected[selection]

    def _collect(self, selection: Selection) -> Collected:
        runs: list[Run] = []
        problems: list[Problem] = []
        beside: dict[str, list[Problem]] = {name: [] for name, _ in selection.companions}
        for seed, config, run_id in configurations(selection):
            found = self._run(selection, seed, config, run_id)
            if isinstance(found, Problem):
                problems.append(found)
                continue
            companions: dict[str, Run] = {}
            for name, find in selection.companions:
                if found.record["status"] != "complete":
                    beside[name].append(Problem("diverged", run_id, "training diverged, so nothing follows from it"))
                    continue
                companion = find(selection, seed, found.record)
                ((other_seed, other_config, other_id),) = configurations(companion)
                other = self._run(companion, other_seed, other_config, other_id)
                if isinstance(other, Problem):
                    beside[name].append(other)
                else:
                    companions[name] = other
            runs.append(Run(seed, run_id, found.record, companions))
        alike, odd = same_data(runs)
        return Collected(
            len(selection.seeds),
            tuple(alike),
            tuple(problems + odd),
            {name: tuple(found) for name, found in beside.items()},
        )
