"""The jobs of one command and their outcomes. Hydra calls :meth:`Session.job` for every job.

This process, a launcher that trains stacks, or a cluster may start a job. In all cases,
:mod:`experiments.cli.expand` composes its configuration from its overrides. ``--cfg`` shows what Hydra composes.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.blocks import ConfigError
from experiments.cli.expand import expand
from experiments.cli.pipes import print_line, room
from experiments.contract.config import Config
from experiments.runs.run_files import Run
from ngn.files import FileError, storage_fault

if TYPE_CHECKING:
    from experiments.runs.outcome import RunOutcome


log = logging.getLogger(__name__)


class RunFailed(RuntimeError):
    """A run failed in another process than the reporting one (a cluster job)."""


def wants_tracebacks() -> bool:
    """Return whether errors that are written for the reader should also show their traceback."""
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


def is_for_reader(error: Exception) -> bool:
    """Return whether an error is written for the reader, so that its message suffices."""
    if isinstance(error, (ConfigError, FileError)):
        return True
    from experiments.data.errors import DataError  # imported here: other commands do not need the readers
    from ngn.methods.base import CapacityExceeded

    return isinstance(error, (DataError, CapacityExceeded))


def write_folder(folder: Path, config: Config, overrides: Sequence[str]) -> None:
    """Write ``config.yaml``, the trained configuration, and ``overrides.yaml`` into a job's ``.hydra`` folder.

    If this cannot be done, there is a warning: the record holds the configuration, too.
    """
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml, if installed, is ten times as fast
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("config", config.model_dump(mode="json")), ("overrides", list(overrides))):
            (folder / f"{name}.yaml").write_text(yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True))
    except OSError as fault:
        fault.filename = str(folder)
        log.warning("%s", storage_fault(fault) or fault)


def train(run: Run) -> RunOutcome | Exception:
    """Train one run if it has no record. Only training imports torch."""
    from experiments.runs.launch import share

    return share([run])[run.id]


def _fitted(line: str, several: bool) -> str:
    """Cut one of several lines on a terminal to its width. The record and the table at the end have the rest."""
    width = room()
    return f"{line[: width - 1]}…" if several and len(line) > width and sys.stdout.isatty() else line


@dataclass
class Session:
    """The jobs of a command and their outcomes.

    Attributes:
        runs: the runs of the jobs, in order. They are not sent to other processes.
        labels: the overrides that distinguish each job, such as ``schedule.lambda0=1e-4 seed=0``.
        process: id of the process that reports.
        failed: reason → the failed jobs.
        diverged: one line for each diverged job.
        done: outcomes with a record, in job order.
        ready: run id → outcome or exception of a run that a launcher trained before its job reports.
    """

    runs: list[Run]
    labels: list[str]
    process: int = field(default_factory=os.getpid)
    failed: dict[str, list[str]] = field(default_factory=dict)
    diverged: list[str] = field(default_factory=list)
    done: list[RunOutcome] = field(default_factory=list)
    ready: dict[str, RunOutcome | Exception] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "runs": [], "ready": {}, "done": []}

    def job(self, settings: DictConfig) -> None:
        """Do one job, as Hydra starts it: compose it from its overrides, run it, report it."""
        hydra = HydraConfig.get()
        number = 0 if OmegaConf.is_missing(hydra.job, "num") else int(hydra.job.num)  # missing in a single run
        overrides = list(map(str, hydra.overrides.task))
        (job,) = expand(overrides)
        if hydra.output_subdir is not None:
            write_folder(Path(hydra.runtime.output_dir) / hydra.output_subdir, job.run.config, overrides)
        self.report(number, job.run)

    def report(self, number: int, run: Run) -> None:
        """Run a job unless a launcher already has, print a line, and collect failures.

        In a multirun, jobs after a failed one still run. Errors written for the reader show only their message.

        Args:
            number: index of the job, from 0.
        """
        several = len(self.labels) > 1
        prefix = f"[{number + 1}/{len(self.labels)}] {self.labels[number]}: " if several else ""
        try:
            outcome = self.ready.pop(run.id, None) or train(run)
            if isinstance(outcome, Exception):
                raise outcome
            print_line(_fitted(f"{prefix or f'{outcome.run_id}: '}{outcome.message}", several))
            self.done.append(outcome)
            if outcome.status == "diverged":
                self.diverged.append(f"{prefix}{outcome.run_id}")
        except Exception as error:
            elsewhere = os.getpid() != self.process
            for_reader = is_for_reader(error)
            if elsewhere and for_reader:
                raise RunFailed(str(error)) from None
            if elsewhere or (not several and (not for_reader or wants_tracebacks())):
                raise
            reason = str(error).splitlines()[0] if str(error) else "no message"
            reason = reason if for_reader else f"{type(error).__name__}: {reason}"
            if reason in self.failed:
                pass  # all runs on a full disk fail for one reason, which has been told
            elif not for_reader or wants_tracebacks():
                traceback.print_exception(error)
            else:
                print(f"{prefix}{error}", file=sys.stderr, flush=True)
            self.failed.setdefault(reason, []).append(prefix)

    def summary(self) -> None:
        """Print the end of a command's output.

        It has a table of a multirun, the committed and published numbers of the same runs, and the runs that failed or
        diverged.
        """
        several = len(self.labels) > 1
        made = [outcome.path for outcome in self.done if outcome.path.exists()]
        if made:
            from experiments.cli.recorded import closing  # imported here: jobs in other processes do not need it

            if told := closing(list(zip(self.labels, self.runs, strict=True)), made):
                print_line(told)
        count = sum(map(len, self.failed.values()))
        more = {reason: f" (and {len(jobs) - 1} more)" for reason, jobs in self.failed.items() if jobs[1:]}
        failed = [f"{jobs[0]}{reason}{more.get(reason, '')}" for reason, jobs in self.failed.items()]
        for what, number, lines in (("failed", count, failed), ("diverged", len(self.diverged), self.diverged)):
            if number and several:
                told = "".join(f"\n  {line}" for line in lines)
                print(f"{number} of {len(self.labels)} runs {what}:{told}", file=sys.stderr)

    def status(self) -> int:
        """Return the exit status of the command."""
        return 1 if self.failed else 3 if self.diverged else 0
