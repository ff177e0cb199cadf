"""How far a study is: every run's state, and how long the rest will take. Imports no torch.

A state costs one look into a folder for all runs, and one record's reading for a run that has one.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import ValidationError

from experiments.analysis.collect import fault_of
from experiments.contract.config import Config, TaskSettings
from experiments.contract.training import Train
from experiments.paths import RESULTS
from experiments.runs.run_files import Run
from experiments.store.leases import Leases
from experiments.store.records import HIDDEN, RecordError, Store, read

STATES = ("done", "diverged", "running", "waiting", "failed", "missing", "stale", "refused")
"""In the order shown. waiting: in Slurm's queue; missing: nobody has it; stale: of older numerics; refused: a record
that does not count (damaged, of uncommitted code, of another configuration)."""
UNFINISHED = ("running", "waiting", "failed", "missing")
Kind = tuple[str, str, str | None, str, str, bool, int]
"""Task, gate, model, method, profile, whether sizes are committed (other engines train those), phases: what tells most
of a speed first."""
SAMPLE = 10
"""At most so many records of each kind of name (task, gate, method, size) tell speeds."""
ENGINES = {"torch", "fused"}
"""Those that there are today; how fast another was says nothing."""


@dataclass
class State:
    """What became of a run, and a line on why."""

    state: str
    text: str = ""


@dataclass
class StudyProgress:
    """The states of a study's runs.

    Attributes:
        counts: how many runs are in each state.
        notes: (run id, state, line) of what a reader has to know; at most ``limit`` are kept.
        left_seconds: single-worker seconds of what is unfinished, by its own kind's speed, as far as one is known.
        unknown: unfinished runs of whose kind no record tells a speed.
        more: notes that were not kept.
    """

    counts: Counter[str] = field(default_factory=Counter)
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    left_seconds: float = 0.0
    unknown: int = 0
    more: int = 0


def _sample(folder: Path) -> Iterator[Path]:
    """A few records of each kind of name, from first to last."""
    alike: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        alike[path.stem.rsplit("-s", 1)[0]].append(path)
    for paths in alike.values():
        yield from paths[:: -(-len(paths) // SAMPLE)]


class Speeds:
    """What a run takes alone on a worker, from the records of its kind."""

    def __init__(self, stores: Iterable[Store]) -> None:
        self.roots = [store.root for store in stores]
        self._seconds: dict[str, dict[Kind, float]] = {}
        self._peaks: dict[Kind, float] = defaultdict(float)

    def _kind(self, config: Mapping[str, Any], phases: int) -> Kind:
        model, commits = (config.get("model") or {}).get("name"), config["schedule"].get("commit") is not None
        alike = (config["task"]["name"], config["gate"]["component"], model, config["method"]["name"])
        return (*alike, config["profile"], commits, phases)

    def _kind_of(self, config: Config) -> Kind:
        plain = config.method.sizes(config.gate) is not None
        phases = 1 if plain else len(config.phases) + len(config.continue_with)
        model, commits = config.model.name if config.model else None, config.schedule.commit is not None
        alike = (config.task.name, config.gate.component, model, config.method.name)
        return (*alike, config.profile, commits, phases)

    def _of(self, task: TaskSettings) -> dict[Kind, float]:
        """Kind → seconds of a run for each step and phase, with loading and scoring.

        Steps are those of the usual number of samples, which need not be what the machine had: they cancel.
        """
        if task.name not in self._seconds:
            seen: dict[Kind, list[float]] = defaultdict(list)
            for root in self.roots:
                for path in _sample(root / task.name):
                    try:
                        record = read(path)
                        steps = Train.model_validate(record["config"]["train"]).steps_on(task.usual_samples)
                    except (RecordError, ValidationError):
                        continue  # it is counted where the state of its run is
                    if not ENGINES.issuperset(record["execution"]["engine"].split("+")):
                        continue
                    phases = record["phases"].values()
                    kind = self._kind(record["config"], len(phases))
                    self._peaks[kind] = max(self._peaks[kind], *(p.get("peak_memory_mib") or 0.0 for p in phases))
                    trained = sum(p["seconds"] for p in phases) / record["execution"]["replicas"]
                    took = max(trained, record["time"]["seconds"])  # of a resumed run that is its last stretch
                    seen[kind].append(took / steps / len(phases))
            self._seconds[task.name] = {kind: median(each) for kind, each in seen.items()}
        return self._seconds[task.name]

    def memory(self, config: Config) -> float | None:
        """Peak memory of the process, MiB, or None if no record tells."""
        self._of(config.task)
        kind = self._kind_of(config)
        return max((peak for k, peak in self._peaks.items() if k[:5] == kind[:5]), default=0.0) or None

    def seconds(self, config: Config) -> float | None:
        """How long a run takes, or None if no record tells."""
        known, kind = self._of(config.task), self._kind_of(config)
        for alike in range(len(kind), 2, -1):
            if near := [each for k, each in known.items() if k[:alike] == kind[:alike]]:
                return median(near) * config.train.steps_on(config.task.usual_samples) * kind[-1]
        return None


@dataclass
class View:
    """What is known outside of the records: who runs what, what failed, what is queued.

    Attributes:
        queued: run id → its Slurm task, of those that are in the queue.
        failures: run id → the last line of its failure.
    """

    results: Path
    queued: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.leases = Leases(self.results)
        self.leased = {path.stem for path in (self.results / HIDDEN).glob("*.lease")}
        self.store = Store(self.results)
        self.records = {path.stem for path in self.store.paths()}

    def state(self, run: Run) -> State:
        """The state of one run."""
        name = run.id
        if name in self.records:
            return self._recorded(run)
        if name in self.leased and (owner := self.leases.owner(name)) is not None:
            return State("running", str(owner))
        if name in self.failures:
            return State("failed", self.failures[name])
        if name in self.queued:
            return State("waiting", f"Slurm job {self.queued[name]}")
        return State("missing")

    def _recorded(self, run: Run) -> State:
        try:
            record = read(self.store.path(run.id))
        except RecordError as error:
            return State("refused", str(error))
        # Only the folder that the paper is built from refuses records of uncommitted code.
        fault = fault_of(record, run.config, run.id, allow_dirty=self.results.resolve() != RESULTS)
        if fault is not None:
            return State("stale" if fault.kind == "numerics" else "refused", fault.text)
        return State("done") if record["status"] == "complete" else State("diverged", "its record says so")


def failures(folder: Path) -> dict[str, str]:
    """Run id → the last line of its failure."""
    errors = {}
    for path in (folder / "failures").glob("*.json"):
        try:
            note = json.loads(path.read_bytes())
            errors[str(note["run_id"])] = f"{note['error']} ({note['where']})"
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            errors[path.stem] = f"why is not known: {path} is damaged"
    return errors


def progress(runs: Iterable[Run], view: View, speeds: Speeds, limit: int = 20) -> StudyProgress:
    """The states of runs, counted; one record is in memory at a time."""
    counted = StudyProgress()
    for run in runs:
        state = view.state(run)
        counted.counts[state.state] += 1
        if state.state in UNFINISHED:
            seconds = speeds.seconds(run.config)
            counted.left_seconds += seconds or 0.0
            counted.unknown += seconds is None
        if state.state in ("failed", "stale", "refused", "diverged"):
            if len(counted.notes) < limit:
                counted.notes.append((run.id, state.state, state.text))
            else:
                counted.more += 1
    return counted


def wanting(runs: Iterable[Run], view: View, again: Iterable[str] = ()) -> Iterator[Run]:
    """What has to be run: runs without a record, and those in a state of ``again``, by force."""
    repeat = set(again)
    for run in runs:
        if run.id not in view.records:
            yield run
        elif repeat and view.state(run).state in repeat:
            yield run.with_execution(force=True)


def in_words(seconds: float) -> str:
    """A duration for a reader."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
