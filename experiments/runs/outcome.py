"""What became of a run: its record, and the line that reports it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.config.identity import scientific
from experiments.config.numerics import numerics
from experiments.methods.fixed import MOST_NAMED
from experiments.paths import RESULTS
from experiments.runs import run_files
from experiments.runs.result import Phase
from experiments.runs.run_files import Run
from experiments.runs.stack import Stack
from experiments.store.provenance import code_block, conf_digest, machine, packages
from experiments.store.record import SCHEMA_VERSION, ExecutionBlock, Record
from experiments.store.records import Store, read

if TYPE_CHECKING:
    import torch

    from experiments.contract.task import Task


@dataclass(frozen=True)
class Outcome:
    """What became of a run: ``complete``, ``diverged``, ``present`` when its record was there already, or ``reference``
    when it is among those that came with the suite."""

    run_id: str
    status: str
    path: Path
    message: str


def _near(path: Path) -> str:
    """A path for a reader: relative to where the command was given, if it is below that."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def present(run: Run) -> Outcome | None:
    """The outcome of a run that has its record already, and is not to be run again.

    Raises:
        RecordError: if the record is damaged.
    """
    record = None if run.config.force else run.store.get(run.id)
    if record is None:
        return None
    path, now = run.path, numerics(run.config)
    then = record["code"]["numerics"]
    stale = "" if then == now else f" STALE: it is of numerics {then} and this code has {now}, so no table counts it;"
    again = "runs it again"
    if run.config.save == "deployed" and not list(path.parent.glob(f"{path.stem}.*.safetensors")):
        again = "trains it again and keeps its models, which are not beside it"
    return Outcome(run.id, "present", path, f"already in {_near(path)};{stale} force=true {again}")


def reference(run: Run) -> Outcome | None:
    """The outcome of a run that has a record among the suite's own, and none where its own would be.

    Whoever names a folder (``results=runs``) or asks for ``force=true`` trains it. Records of other
    numerics do not count.
    """
    if run.config.results is not None or run.config.force or run.root != run_files.RUNS or run.path.exists():
        return None
    suite = Store(RESULTS)
    record, path = suite.get(run.id), suite.path(run.id)
    if record is None or record["code"]["numerics"] != numerics(run.config):
        return None
    return Outcome(run.id, "reference", path, f"came with the suite: {summary(record)} in {_near(path)}")


def write(
    stack: Stack,
    r: int,
    phases: Mapping[str, Phase],
    task: Task[Any],
    device: torch.device,
    started: datetime.datetime,
    seconds: float,
) -> Outcome:
    """Write the record of replica ``r`` of a stack whose phases are trained.

    Args:
        started, seconds: when the training of the stack began, and this run's share of its wall time.

    Raises:
        RecordError: if the record is not legal, or something else has its name.
    """
    import torch  # not earlier: to see that nothing is left to train takes none of it

    run, results = stack.runs[r], {name: phase.results[r] for name, phase in phases.items()}
    execution: ExecutionBlock = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "engine": "+".join(sorted({phase.engine for phase in phases.values() if phase.engine})),
        "replicas": len(stack),
        "threads": torch.get_num_threads(),
        "resumed": sum(phase.resumed for phase in phases.values()),
    }
    if run.config.tag is not None:
        execution["tag"] = run.config.tag
    if (conf := conf_digest()) is not None:
        execution["conf"] = conf
    record = Record(
        schema=SCHEMA_VERSION,
        run_id=run.id,
        status="complete" if all(result.complete for result in results.values()) else "diverged",
        config=scientific(run.config),
        phases=results,
        time={"started": started.isoformat(timespec="seconds"), "seconds": round(seconds, 3)},
        execution=execution,
        hardware=machine(),
        packages=packages(),
        data=task.info.block(),
        base=None if task.base_info is None else task.base_info.block(),
        code=code_block(numerics(run.config)),
    ).json()
    curves = {f"{n}.{key}": v for n, phase in phases.items() for key, v in phase.curves[r].items()}
    new = run.store.write(record, curves, replace=run.config.force)
    note = "" if new else " (another process had written it first)"
    if not new:
        read(run.path)  # else what was trained here is the only one, and is kept
    return Outcome(run.id, record["status"], run.path, f"{summary(record)} -> {_near(run.path)}{note}")


def summary(record: dict[str, Any]) -> str:
    """One line on what a run found."""
    parts = []
    for name, phase in record["phases"].items():
        if phase["status"] != "complete":
            parts.append(f"{name} diverged" + (f" at step {phase['diverged_at']}" if "diverged_at" in phase else ""))
            continue
        score = next(iter(phase["truncated"]))
        form = "{:.2e}" if score.endswith("mse") else "{:.4f}" if score.startswith("bits") else "{:.2f}"
        size = ", ".join(f"{t:.2f}" for t in phase["t"]) if "t" in phase else ", ".join(map(str, phase["count"]))
        if len(phase["count"]) > MOST_NAMED:
            size = f"{sum(phase.get('t', phase['count'])):g} over {len(phase['count'])}"
        each = [f"{mode} {form.format(phase[mode][score])}" for mode in ("soft", "truncated") if mode in phase]
        back = f", prunes back: {phase['prunes_back']['outcome']}" if "prunes_back" in phase else ""
        parts.append(f"{name} {'t' if 't' in phase else 'count'} = {size}, {', '.join(each)}{back}")
    return "; ".join(parts) + f" ({record['time']['seconds']:.1f} s)"
