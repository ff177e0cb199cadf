"""The outcome of a run: the results of its phases, its record, and the line that reports it."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.config import identity
from experiments.config.identity import Run, numerics, scientific
from experiments.core import checkpoint
from experiments.core.plugins import conf_folder
from experiments.data import DataError
from experiments.methods.fixed import MOST_NAMED
from experiments.runs.same import fault_of
from experiments.runs.stack import Stack
from experiments.store.provenance import code, conf_digest, keep_digests, machine, made_by, packages
from experiments.store.record import SCHEMA_VERSION, PrunesBackBlock, Result
from experiments.store.records import RecordError, Store, read_record
from ngn.files import remove

if TYPE_CHECKING:
    import torch

    from experiments.core.task import Task

log = logging.getLogger(__name__)

CURVE_TYPES: dict[str, type[np.generic]] = {"step": np.int32, "held_step": np.int32}
"""Curve → type, for stored curves that are not float32."""


@dataclass
class Phase:
    """The result of one phase of a stack.

    Attributes:
        results: one per run.
        curves: name → values, one dictionary per run.
        resumed: number of times the training was resumed.
        engine: what trained it, such as "torch" or the name of a kernel.
    """

    results: list[Result]
    curves: list[dict[str, np.ndarray]]
    resumed: int
    engine: str

    def save(self, path: Path, identity: checkpoint.Identity) -> None:
        """Save a finished phase, so that an interruption of a later phase does not lose it."""
        curves = [{name: curve.tolist() for name, curve in curves.items()} for curves in self.curves]
        checkpoint.write_sealed(path, {**vars(self), "curves": curves}, identity)

    @classmethod
    def load(cls, path: Path, identity: checkpoint.Identity) -> Phase | None:
        """Load a saved phase; None if there is none.

        If it is damaged or was trained by other code, it is removed with a warning, and None is returned.
        """
        try:
            content = checkpoint.read_sealed(path, identity)
        except FileNotFoundError:
            return None
        except (checkpoint.OtherIdentityError, *checkpoint.DAMAGE) as fault:
            log.warning("%s cannot be used (%s); its phase will be trained again", path, fault)
            remove(path)
            return None
        curves = [
            {name: np.asarray(curve, dtype=CURVE_TYPES.get(name, np.float32)) for name, curve in stored.items()}
            for stored in content["curves"]
        ]
        return cls(content["results"], curves, content["resumed"], content["engine"])


def prunes_back(grown: list[int], high: list[int], t: list[float], starts: list[float]) -> PrunesBackBlock:
    """Return the paper's verdict on a run started at high capacity.

    - yes: every rounded count is within one block of the grown one;
    - partial: not so, but every boundary ended more than one block below its start;
    - no: otherwise.

    Args:
        grown, high: counts per axis of the run grown from low, and of the one started at high capacity.
        t, starts: final and initial boundaries of the latter.
    """
    returned = all(abs(a - b) <= 1 for a, b in zip(grown, high, strict=True))
    moved = all(boundary < start - 1 for boundary, start in zip(t, starts, strict=True))
    return {"outcome": "yes" if returned else "partial" if moved else "no", "returned": returned, "moved": moved}


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    Attributes:
        status: "complete", "diverged" or "present" (the record existed already).
        path: the record's file.
        message: one line for the terminal.
    """

    run_id: str
    status: str
    path: Path
    message: str


def relative(path: Path) -> str:
    """Return a path as text, relative to the working directory if it lies below it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def present(run: Run) -> tuple[Run, RunOutcome | Exception | None]:
    """Return a run and its outcome, if it has a record; None if it has none or ``force=true`` asks for a new one.

    The outcome is an error if the record, or data on this machine, are damaged, or if the record does not count.
    Records in ``scratch/results/`` are trials, of changed sources or smoke runs. If one does not count, the run is
    returned with ``force=true``.
    """
    if run.config.force:
        return run, None
    anew, path = "add force=true to run it again and replace that file", run.path
    try:
        if (record := Store(run.root).get(run.id)) is None:
            return run, None
        fault = fault_of(record, run.config, run.root, allow_dirty=True)
    except RecordError as refused:
        return run, RecordError(f"{refused}; {anew}")
    except DataError as damaged:
        return run, damaged
    if fault is not None and run.root == identity.SCRATCH / "results":
        log.warning("%s: its record %s; training it anew", run.id, fault.text)
        return run.with_execution(force=True), None
    if fault is not None:
        return run, RecordError(f"{relative(path)}: {fault.text}; {anew}")
    again = "to run it again"
    if run.config.save == "deployed" and not list(path.parent.glob(f"{path.stem}.*.safetensors")):
        again = "to train it again and save its models, which are missing"
    return run, RunOutcome(run.id, "present", path, f"already in {relative(path)}; add force=true {again}")


def write(
    stack: Stack,
    r: int,
    phases: Mapping[str, Phase],
    task: Task[Any],
    device: torch.device,
    started: datetime.datetime,
    seconds: float,
) -> RunOutcome:
    """Write the record of replica ``r`` of a trained stack.

    Args:
        started: when the training of the stack began.
        seconds: this run's share of the wall time.

    Raises:
        RecordError: if the record is invalid, or if another record has its name.
    """
    import torch  # imported here: a command whose runs are all present needs no torch

    run = stack.runs[r]
    results: dict[str, Any] = {name: phase.results[r] for name, phase in phases.items()}
    order = Result.__annotations__  # of the keys in a record
    execution = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "engine": "+".join(sorted({phase.engine for phase in phases.values() if phase.engine})),
        "replicas": len(stack),
        "threads": torch.get_num_threads(),
        "resumed": sum(phase.resumed for phase in phases.values()),
    }
    if task.scan is not None:
        execution["scan"] = task.scan
    if run.config.tag is not None:
        execution["tag"] = run.config.tag
    if (conf := conf_folder()) is not None:
        execution["conf"] = conf_digest(conf)
    blocks = {key: vars(info) for key, info in (("data", task.info), ("base", task.base_info)) if info is not None}
    tree = {"commit": code().commit, "clean": code().clean, "source": code().source}
    record: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "run_id": run.id,
        "status": "complete" if all(result["status"] == "complete" for result in results.values()) else "diverged",
        "config": scientific(run.config),
        "phases": {name: {key: entry[key] for key in order if key in entry} for name, entry in results.items()},
        "time": {"started": started.isoformat(timespec="seconds"), "seconds": round(seconds, 3)},
        "execution": execution,
        "hardware": machine(),
        "packages": packages(),
        **blocks,
        "code": {**tree, **made_by(), "numerics": numerics(run.config)},
    }
    curves = {f"{n}.{key}": v for n, phase in phases.items() for key, v in phase.curves[r].items()}
    keep_digests(run.root)
    new = Store(run.root).write(record, curves, replace=run.config.force)
    note = "" if new else " (another process had written it first)"
    if not new:
        read_record(run.path)  # raises if the other record is damaged, so that this training's checkpoints are kept
    return RunOutcome(run.id, record["status"], run.path, f"{summary(record)} -> {relative(run.path)}{note}")


def summary(record: dict[str, Any]) -> str:
    """Summarise a record in one line: size and scores of each phase, and the time of all."""
    parts = []
    for name, phase in record["phases"].items():
        if phase["status"] != "complete":
            parts.append(f"{name} diverged" + (f" at step {phase['diverged_at']}" if "diverged_at" in phase else ""))
            continue
        score = next(iter(phase["truncated"]))
        form = "{:.2e}" if score.endswith("mse") else "{:.4f}" if score.startswith("bits") else "{:.2f}"
        count, learned = phase["count"], "t = " if "integer" in phase else ""  # a boundary, which may be an integer
        size = ", ".join(f"{t:.2f}" for t in phase["t"]) if learned else ", ".join(map(str, count))
        if len(count) > MOST_NAMED:
            size = f"{sum(phase['t'] if learned else count):g} over {len(count)}"
        named = learned or ("count = " if "t" not in phase else "size " if len(count) == 1 else "sizes ")
        each = [f"{mode} {form.format(phase[mode][score])}" for mode in ("soft", "truncated") if mode in phase]
        back = f", prunes back: {phase['prunes_back']['outcome']}" if "prunes_back" in phase else ""
        if members := phase.get("members"):
            each += [f"{form.format(member['scores'][score])} at {share} %" for share, member in members.items()]
        parts.append(f"{name} {named}{size}, {', '.join(each)}{back}")
    replicas, share = record["execution"]["replicas"], record["time"]["seconds"]  # the runs of a stack share its time
    together = "" if replicas == 1 else f" for {replicas} runs together"
    return f"{'; '.join(parts)} ({replicas * share:.1f} s{together})"
