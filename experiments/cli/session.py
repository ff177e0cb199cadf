"""The jobs of one command, and what became of them. Its method :meth:`Session.job` is what Hydra calls for every job.

Whatever starts a job (this process, a launcher that trains stacks, a cluster), its configuration is composed from its
overrides by :mod:`experiments.cli.expand`; what Hydra composes is what ``--cfg`` shows.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.analysis import overview
from experiments.blocks import ConfigError
from experiments.cli.expand import expand
from experiments.contract.config import Config
from experiments.paths import RUNS
from experiments.runs.run_files import Run
from ngn.files import FileError

if TYPE_CHECKING:
    from experiments.runs.outcome import Outcome


class RunFailed(RuntimeError):
    """A run that failed in another process than the one that reports (a cluster job)."""


def full_error() -> bool:
    """Whether errors that are written for the reader show their traceback, too."""
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


def foreseen(error: Exception) -> bool:
    """Whether an error is written for the reader, so that its message is enough."""
    if isinstance(error, (ConfigError, FileError)):
        return True
    from experiments.data.errors import DataError  # not earlier: only a run that got this far needs the readers
    from ngn.methods.base import CapacityExceeded

    return isinstance(error, (DataError, CapacityExceeded))


def write_folder(folder: Path, config: Config, overrides: Sequence[str]) -> None:
    """Write ``config.yaml``, the configuration that is trained, and ``overrides.yaml`` into a job's ``.hydra``."""
    folder.mkdir(parents=True, exist_ok=True)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml takes a tenth of the time, where it is installed
    for name, content in (("config", config.model_dump(mode="json")), ("overrides", list(overrides))):
        (folder / f"{name}.yaml").write_text(yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True))


def train(run: Run) -> Outcome | Exception:
    """Train one run, if it has no record; torch is first imported there."""
    from experiments.runs.launch import share

    return share([run])[run.id]


def _say(line: str) -> None:
    """Print a line. Whoever stops reading our lines (``| head``) does not stop the runs."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass
class Session:
    """The jobs of a command, and what they did.

    Attributes:
        runs: of the jobs, in their order; another process, to which a job may be sent, does not get them.
        labels: what each job alone has, such as ``schedule.lambda0=1e-4 seed=0``.
        command: what was typed.
        process: the process that reports.
        failed, diverged: a line for each.
        done: what has its record, in job order.
        ready: run id → outcome, or the exception, of what a launcher has trained before its job reports.
    """

    runs: list[Run]
    labels: list[str]
    command: str = "python run.py"
    process: int = field(default_factory=os.getpid)
    failed: list[str] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)
    done: list[Outcome] = field(default_factory=list)
    ready: dict[str, Outcome | Exception] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "runs": [], "ready": {}, "done": []}

    def job(self, settings: DictConfig) -> None:
        """One job, as Hydra starts it: compose it from its overrides, run it, report it."""
        hydra = HydraConfig.get()
        number = 0 if OmegaConf.is_missing(hydra.job, "num") else int(hydra.job.num)  # missing in a single run
        overrides = list(map(str, hydra.overrides.task))
        (job,) = expand(overrides)
        if hydra.output_subdir is not None:
            write_folder(Path(hydra.runtime.output_dir) / hydra.output_subdir, job.run.config, overrides)
        self.report(number, job.run)

    def report(self, number: int, run: Run) -> None:
        """Run a job, unless a launcher has, print a line, and note what went wrong.

        In a multirun the jobs after a failed one still run. Errors written for the reader show their message alone.

        Args:
            number: of the job, from 0.
        """
        several = len(self.labels) > 1
        prefix = f"[{number + 1}/{len(self.labels)}] {self.labels[number]}: " if several else ""
        try:
            outcome = self.ready.pop(run.id, None) or train(run)
            if isinstance(outcome, Exception):
                raise outcome
            _say(f"{prefix or f'{outcome.run_id}: '}{outcome.message}")
            self.done.append(outcome)
            if outcome.status == "diverged":
                self.diverged.append(f"{prefix}{outcome.run_id}")
        except Exception as error:
            elsewhere = os.getpid() != self.process
            for_reader = foreseen(error)
            if elsewhere and for_reader:
                raise RunFailed(str(error)) from None
            if elsewhere or (not several and (not for_reader or full_error())):
                raise
            if not for_reader or full_error():
                traceback.print_exception(error)
            else:
                print(f"{prefix}{error}", file=sys.stderr, flush=True)
            reason = str(error).splitlines()[0] if str(error) else "no message"
            self.failed.append(f"{prefix}{reason if for_reader else f'{type(error).__name__}: {reason}'}")

    def summary(self) -> None:
        """Print, last, a table of a multirun, what failed, what diverged, and how to train what came with the suite."""
        several = len(self.labels) > 1
        if several and any(outcome.path.exists() for outcome in self.done):
            table = overview.record_rows(outcome.path for outcome in self.done if outcome.path.exists())
            found = overview.grouped(table, overview.varied(table), overview.usual_columns(table))
            _say(f"medians:\n{overview.format_rows(found)}")
        for what, names in (("failed", self.failed), ("diverged", self.diverged)):
            if names and several:
                lines = "\n".join(f"  {name}" for name in names)
                print(f"{len(names)} of {len(self.labels)} runs {what}:\n{lines}", file=sys.stderr)
        came = sum(outcome.status == "reference" for outcome in self.done)
        if came:
            place = os.path.relpath(RUNS) if RUNS.is_relative_to(Path.cwd()) else RUNS
            what = "the run is" if not several else f"{came} of the runs are"
            print(f"{what} among the suite's own records; to train it yourself:", file=sys.stderr)
            print(f"  {self.command} {shlex.quote(f'results={place}')}", file=sys.stderr)

    def status(self) -> int:
        """The exit status of the command."""
        return 1 if self.failed else 3 if self.diverged else 0
