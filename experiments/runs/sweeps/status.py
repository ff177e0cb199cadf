"""The progress of a study: the state of every run, and an estimate of the remaining time. Imports no torch.

All states together need one listing of a folder, and reading one record per run that has one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pydantic import ValidationError

from experiments.config.identity import Run
from experiments.core.blocks import visible
from experiments.core.config import Config, TaskSettings
from experiments.core.paths import RESULTS
from experiments.core.reading import read_regular
from experiments.core.training import Train
from experiments.runs.same import fault_of
from experiments.store.leases import Leases
from experiments.store.provenance import machine
from experiments.store.records import HIDDEN, MAX_FILE_BYTES, RecordError, Store, read_record

STATES = ("done", "diverged", "running", "waiting", "failed", "missing", "stale", "refused")
"""The states in the order shown. waiting: in Slurm's queue; missing: no process has it; stale: by an older numerics
version, other sources or other data; refused: its record does not count (damaged, from uncommitted code, or of another
configuration)."""
UNFINISHED, DOUBTFUL = ("running", "waiting", "failed", "missing"), ("stale", "refused")
Kind = tuple[str, str, str | None, str, str, bool, int]
"""Task, gate, model, method, profile, whether sizes are committed (another engine may train those), and phases. The
entries that determine the speed most come first."""
SAMPLE = 10
"""Most records to read per kind of run id (task, gate, method, size), to estimate speeds."""
ENGINES = {"torch", "fused"}
"""The present engines. Records of other engines give no speeds."""


@dataclass
class State:
    """The state of a run, and one line with the reason."""

    state: str
    text: str = ""
    digest: bool = True
    """Whether its record has a digest of its contents; older ones have none."""


class Sample(NamedTuple):
    """A recorded run.

    Attributes:
        seconds: of the run per step and phase, including loading and scoring. Steps are counted for the usual number of
            samples. The true number may differ, but cancels in estimates.
        engines: those of its phases.
        device: "cpu", or the name of the GPU.
        cpu: name of the processor.
        together: number of runs trained together.
        peak: memory of the process in MiB.
    """

    seconds: float
    engines: frozenset[str]
    device: str
    cpu: str
    together: int
    peak: float


def _kind(config: Mapping[str, Any], phases: int) -> Kind:
    model, commits = (config.get("model") or {}).get("name"), config["schedule"].get("commit") is not None
    alike = (config["task"]["name"], config["gate"]["component"], model, config["method"]["name"])
    return (*alike, config["profile"], commits, phases)


def _samples(folder: Path, task: TaskSettings) -> Iterator[tuple[Kind, Sample]]:
    """Read a few records of each kind of run id, spread evenly from first to last."""
    alike: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.json"), key=str):
        alike[path.stem.rsplit("-s", 1)[0]].append(path)
    for path in (path for paths in alike.values() for path in paths[:: -(-len(paths) // SAMPLE)]):
        try:
            record = read_record(path)
            steps = Train.model_validate(record["config"]["train"]).steps_on(task.usual_samples)
        except (RecordError, ValidationError):  # the state of its run reports a damaged record
            continue
        phases, how = record["phases"].values(), record["execution"]
        trained = sum(phase["seconds"] for phase in phases) / how["replicas"]
        took = max(trained, record["time"]["seconds"])  # a resumed run's time covers only its last part
        engines, cpu = frozenset(how["engine"].split("+")), record["hardware"].get("cpu", "cpu")
        peak = max(phase.get("peak_memory_mib") or 0.0 for phase in phases)
        if engines <= ENGINES:
            each = took / steps / len(phases)
            yield _kind(record["config"], len(phases)), Sample(each, engines, how["device"], cpu, how["replicas"], peak)


class Speeds:
    """Estimates of time and memory of a run alone on a worker, from records of its kind in some folders.

    The time is from the records made most alike: on a GPU or not, then with this machine's processor or not.
    """

    def __init__(self, *folders: Path, on_gpu: bool = False) -> None:
        self.folders, self.on_gpu = folders, on_gpu
        self._samples: dict[str, dict[Kind, list[Sample]]] = {}
        self._rates: dict[Kind, float | None] = {}

    def samples(self, config: Config, alike: int) -> list[list[Sample]]:
        """Return samples of each kind whose first ``alike`` entries are those of a run."""
        task = config.task
        if task.name not in self._samples:
            kinds = self._samples[task.name] = defaultdict(list)
            for kind, sample in chain.from_iterable(_samples(folder / task.name, task) for folder in self.folders):
                kinds[kind].append(sample)
        wanted = self._kind(config)[:alike]
        return [found for kind, found in self._samples[task.name].items() if kind[:alike] == wanted]

    @staticmethod
    def _kind(config: Config) -> Kind:
        model, commits = config.model.name if config.model else None, config.schedule.commit is not None
        alike = (config.task.name, config.gate.component, model, config.method.name)
        return (*alike, config.profile, commits, config.trainings)

    def memory(self, config: Config) -> float | None:
        """Return the peak memory of the process in MiB, or None if no record tells."""
        return max((sample.peak for found in self.samples(config, 5) for sample in found), default=0.0) or None

    def seconds(self, config: Config) -> float | None:
        """Return the seconds that a run takes, by records or else by its task; None if neither tells."""
        if (kind := self._kind(config)) not in self._rates:
            near = next(filter(None, (self.samples(config, entries) for entries in range(7, 2, -1))), ())
            self._rates[kind] = median(map(self._typical, near)) if near else None
        if (rate := self._rates[kind]) is None:
            return config.task.seconds(config)
        return rate * config.train.steps_on(config.task.usual_samples) * config.trainings

    def _typical(self, found: list[Sample]) -> float:
        alike = [((one.device != "cpu") == self.on_gpu, one.cpu == machine()["cpu"]) for one in found]
        best = max(alike)
        return median(one.seconds for one, each in zip(found, alike, strict=True) if each == best)


@dataclass
class View:
    """A folder of records with its leases, its failures and Slurm's queue, from which runs get their states.

    Attributes:
        results: folder of the records.
        queued: run id → Slurm task, for runs in the queue.
        failures: run id → its error, in one line.
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
        """Return the state of one run."""
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
            record = read_record(self.store.path(run.id))
        except RecordError as error:
            return State("refused", str(error))
        # Only ``results/``, from which the paper is built, refuses records of uncommitted code. It needs no data here.
        own = self.results.resolve() == RESULTS
        if (fault := fault_of(record, run.config, None if own else self.results, allow_dirty=not own)) is not None:
            return State("stale" if fault.kind in ("numerics", "changed") else "refused", fault.text)
        complete, digest = record["status"] == "complete", "sha256" in record
        return State("done", "", digest) if complete else State("diverged", "according to its record", digest)


def failures(folder: Path) -> dict[str, str]:
    """Return run id → its error and machine, in one line, of every failed run."""
    errors = {}
    for path in (folder / "failures").glob("*.json"):
        try:
            note = json.loads(read_regular(path, MAX_FILE_BYTES))
            errors[str(note["run_id"])] = visible(f"{note['error']} ({note['where']})")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            errors[path.stem] = f"the reason is unknown, because {path} is damaged"
    return errors


def runs_to_train(runs: Iterable[Run], view: View, again: Iterable[str] = ()) -> Iterator[Run]:
    """Yield the runs without a record and, with ``force=true``, those in a state of ``again``."""
    repeat = set(again)
    for run in runs:
        if run.id not in view.records:
            yield run
        elif repeat and view.state(run).state in repeat:
            yield run.with_execution(force=True)


def duration_text(seconds: float) -> str:
    """Return a duration as text, such as ``1.5 h``."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
