"""The jobs of one command and their outcomes. Hydra calls :meth:`Session.job` for every job.

This process, a launcher that trains stacks, or another process may start a job. A job of the command has its checked
:class:`Run` from the start. A job that a sweeper makes up, or that runs in another process, is checked when it starts.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.cli.expand import Job, expand, run_of
from experiments.cli.pipes import print_line, room
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.reading import storage_fault
from experiments.data import DataError
from experiments.store.records import read_record
from ngn.files import FileError

if TYPE_CHECKING:
    from experiments.runs.outcome import RunOutcome


log = logging.getLogger(__name__)
LINES = logging.getLogger("experiments.outcome")
"""What becomes of a job, for the log in its folder (``conf/config.yaml``)."""


class RunFailed(RuntimeError):
    """A run failed in another process than the reporting one (a cluster job)."""


def wants_tracebacks() -> bool:
    """Return whether errors that are written for the reader should also show their traceback."""
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


def is_for_reader(error: Exception) -> bool:
    """Return whether an error is written for the reader, so that its message suffices."""
    if isinstance(error, (ConfigError, FileError, DataError)):
        return True
    from ngn.methods.base import CapacityExceeded  # imports torch

    return isinstance(error, CapacityExceeded)


def write_folder(folder: Path, config: Config, hydra: DictConfig, overrides: Sequence[str]) -> None:
    """Write ``config.yaml``, the trained configuration, ``hydra.yaml`` and ``overrides.yaml``, as Hydra does.

    If this cannot be done, there is a warning: the record holds the configuration, too.
    """
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml, if installed, is ten times as fast
    settings = OmegaConf.to_container(hydra, enum_to_str=True)
    assert isinstance(settings, dict)
    files = {
        "config": config.model_dump(mode="json"),
        "hydra": {"hydra": {key: value for key, value in settings.items() if key not in ("help", "hydra_help")}},
        "overrides": list(overrides),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / f"{name}.yaml").write_text(yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True))
    except OSError as fault:
        fault.filename = str(folder)
        log.warning("%s", storage_fault(fault) or fault)


@dataclass
class Session:
    """The jobs of a command and their outcomes.

    Attributes:
        jobs: the jobs of the command, in order. Their labels alone are sent to other processes.
        several: whether the command has several jobs, or a sweeper that makes them up.
        fixed: the overrides that all jobs have, which no line repeats.
        process: id of the process that reports.
        failed: reason → the failed jobs.
        diverged: one line for each diverged job.
        done: outcomes with a record, in job order.
        labels: in another process, what distinguishes each job.
    """

    jobs: list[Job]
    several: bool = False
    fixed: tuple[str, ...] = ()
    process: int = field(default_factory=os.getpid)
    failed: dict[str, list[str]] = field(default_factory=dict)
    diverged: list[str] = field(default_factory=list)
    done: list[RunOutcome] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "jobs": [], "labels": self.labels or [job.label for job in self.jobs], "done": []}

    def of(self, number: int, overrides: Sequence[str]) -> Job:
        """Return a job by its number; a job that a sweeper makes up is composed and added."""
        if number == len(self.jobs):
            (job,) = expand(overrides)
            label = " ".join(token for token in overrides if token not in self.fixed).replace("seed.value=", "seed=")
            self.jobs.append(replace(job, label=label))
        return self.jobs[number]

    def job(self, settings: DictConfig) -> Any:
        """Do one job, as Hydra starts it: train its run, report it, and return what a search optimises."""
        from experiments.runs.launch import share  # imported here: not every command has a job

        hydra = HydraConfig.get()
        number = 0 if OmegaConf.is_missing(hydra.job, "num") else int(hydra.job.num)  # missing in a single run
        if number < len(self.jobs):
            job = self.jobs[number]
        else:
            told = self.labels[number] if number < len(self.labels) else " ".join(hydra.overrides.task)
            run = run_of(OmegaConf.to_container(settings, resolve=True))  # type: ignore[arg-type]
            job = Job(told.replace("seed.value=", "seed="), (), run)
        return self.report(number, job, share([job.run])[job.run.id], hydra)

    def report(self, number: int, job: Job, outcome: RunOutcome | Exception, hydra: HydraConf | None = None) -> Any:
        """Print a line on a job that ended, and collect failures.

        In a multirun, jobs after a failed one still run. Errors written for the reader show only their message.

        Args:
            number: index of the job, from 0.
            outcome: that of its run, or the error that stopped it.
            hydra: Hydra's settings.

        Returns:
            the truncated score and the size of the learned model, for a sweeper with two directions; the score alone
            for other sweepers; NaN if there is none.
        """
        total = max(len(self.jobs), len(self.labels), number + 1)
        prefix = f"[{number + 1}/{total}] {job.label}: " if self.several else ""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            line = f"{prefix or f'{outcome.run_id}: '}{outcome.message}"
            if hydra is not None:
                LINES.info("%s", line)
            if self.several and len(line) > (width := room()):
                line = f"{line[: width - 1]}…"  # the record and the table at the end have the rest
            print_line(line)
            self.done.append(outcome)
            if outcome.status == "diverged":
                self.diverged.append(f"{prefix}{outcome.run_id}")
            if hydra is None or "direction" not in hydra.sweeper:
                return None
            return _objective(outcome, two=OmegaConf.is_list(hydra.sweeper.direction))
        except Exception as error:
            elsewhere = os.getpid() != self.process
            for_reader = is_for_reader(error)
            if hydra is not None:
                LINES.error("%s%s", prefix, error)
            if elsewhere and for_reader:
                raise RunFailed(str(error)) from None
            if elsewhere or (not self.several and (not for_reader or wants_tracebacks())):
                raise
            reason = str(error).splitlines()[0] if str(error) else "no message"
            reason = reason if for_reader else f"{type(error).__name__}: {reason}"
            if reason not in self.failed:  # all runs on a full disk fail for one reason, which is told once
                if not for_reader or wants_tracebacks():
                    traceback.print_exception(error)
                else:
                    print(f"{prefix}{error}", file=sys.stderr, flush=True)
            self.failed.setdefault(reason, []).append(prefix)
            return float("nan")

    def summary(self) -> None:
        """Print the end of a command: its table, committed and published numbers, and what failed or diverged."""
        here = [outcome.path for outcome in self.done] if self.done or self.failed else None
        made = [path for path in here or [job.run.path for job in self.jobs] if path.is_file()]
        if made and (len(self.jobs) > 1 or any(job.run.config.profile == "full" for job in self.jobs)):
            from experiments.cli.recorded import closing  # imported here: jobs in other processes do not need it

            print_line(*closing([(job.label, job.run) for job in self.jobs], made))
        count = sum(map(len, self.failed.values()))
        more = {reason: f" (and {len(jobs) - 1} more)" for reason, jobs in self.failed.items() if jobs[1:]}
        failed = [f"{jobs[0]}{reason}{more.get(reason, '')}" for reason, jobs in self.failed.items()]
        for what, number, lines in (("failed", count, failed), ("diverged", len(self.diverged), self.diverged)):
            if number and self.several:
                told = "".join(f"\n  {line}" for line in lines)
                print(f"{number} of {len(self.jobs)} runs {what}:{told}", file=sys.stderr)


def _objective(outcome: RunOutcome, two: bool) -> Any:
    """Return what a sweeper optimises: the score, or also the size."""
    phase = next(iter(read_record(outcome.path)["phases"].values()))
    if phase["status"] != "complete":
        return float("nan")
    values = (float(next(iter(phase["truncated"].values()))), float(sum(phase["count"])))
    return values if two else values[0]
