"""A study and a folder of records, as ``scripts/sweep.py`` is asked for them."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

from experiments.blocks import ConfigError
from experiments.cli.presets import OwnStudy
from experiments.paths import OUTPUT, RESULTS, RUNS, SCRATCH
from experiments.runs.run_files import Run
from experiments.store.records import RecordError, Store
from experiments.studies import study
from experiments.sweeps import plan as plans
from experiments.sweeps import slurm, status


class Sweep:
    """One study and one folder of records."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        try:
            self.study = OwnStudy(Path(name)) if name.endswith((".yaml", ".yml")) else study(name)
        except KeyError as unknown:
            raise ConfigError(f"{unknown.args[0]}; or a YAML file of your own") from None
        self.word = name
        usual = next(self.study.runs()).root
        if usual == RUNS and not OUTPUT:
            usual = self.study.results
        self.results = (given.results or usual).resolve()
        self.folder = plans.folder_of(self.study.name, self.results)
        self.strict, self.again = given.strict, given.again
        self.data_root = None if given.data_root is None else str(given.data_root.resolve())
        self.device = given.device
        self.options = [] if given.results is None else ["--results", str(self.results)]
        self.options += [] if self.data_root is None else ["--data-root", self.data_root]
        self.options += [] if self.device == "auto" else ["--device", self.device]

    def command(self, verb: str) -> str:
        """A command on the same study, records, data and device."""
        return shlex.join(["python", "scripts/sweep.py", verb, self.word, *self.options])

    def runs(self) -> Iterator[Run]:
        """Every run, as the YAML files say now."""
        for run in self.study.runs(Store(self.results)):
            yield run.carried_out(data_root=self.data_root, device=self.device)

    def queued(self) -> dict[str, str]:
        """Run id → Slurm task, of what is in Slurm's queue."""
        jobs = slurm.submitted(self.folder)
        alive = slurm.in_queue(jobs)
        queued: dict[str, str] = {}
        read = cache(plans.read)
        for job in jobs:
            if job.job in alive:
                try:
                    queued |= dict.fromkeys(read(Path(job.plan)).tasks[job.task], job.job)
                except (RecordError, IndexError) as fault:
                    print(f"job {job.job}: which runs it trains is not known ({fault})", file=sys.stderr)
        return queued

    @cached_property
    def view(self) -> status.View:
        """What is known about the runs now."""
        return status.View(self.results, self.queued(), status.failures(self.folder))

    @cached_property
    def speeds(self) -> status.Speeds:
        """Speeds from the records of this folder, and of the usual ones."""
        places = {self.results, RESULTS, RUNS, SCRATCH / "results"}
        return status.Speeds(Store(place) for place in sorted(places))

    def wanted(self) -> list[Run]:
        """What has to be run and is not in Slurm's queue."""
        return [run for run in status.wanting(self.runs(), self.view, self.again) if run.id not in self.view.queued]

    def estimate(self, runs: list[Run]) -> str:
        """How long runs take on one worker, as far as records tell."""
        each = [self.speeds.seconds(run.config) for run in runs]
        known = [seconds for seconds in each if seconds is not None]
        if not runs:
            return "nothing to do"
        if not known:
            return "no record tells how long they take"
        rest = f", and {len(each) - len(known)} runs of unknown speed" if len(known) < len(each) else ""
        return f"about {status.in_words(sum(known))} on one worker{rest}"

    def refuse_doubtful(self) -> None:
        """With ``--strict``: no sweep over records that do not count.

        Raises:
            ConfigError: naming them.
        """
        progress = status.progress(self.runs(), self.view, self.speeds)
        bad = [f"  {name}: {state}: {text}" for name, state, text in progress.notes if state in ("stale", "refused")]
        if bad:
            raise ConfigError("records that do not count (--again runs them anew):\n" + "\n".join(bad))
