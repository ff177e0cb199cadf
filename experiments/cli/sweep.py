"""The study and the folder of records of one ``scripts/sweep.py`` command, and the commands that only show them."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from experiments.analysis import overview
from experiments.analysis.frame import frame
from experiments.cli.arguments import refuse_code
from experiments.cli.expand import Job, expand
from experiments.cli.machine import warn_of_uncounted
from experiments.cli.pipes import print_line, room, show
from experiments.cli.rewrite import rewrite, tokens_of
from experiments.config.identity import Run
from experiments.core.blocks import ConfigError, control_in, visible
from experiments.core.needs import NOTHING
from experiments.core.paths import OUTPUT, RESULTS, RUNS, SCRATCH
from experiments.core.reading import storage_fault
from experiments.runs.stack import stacks_of
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps import settings, slurm, status
from experiments.runs.sweeps.local import Supervisor, visible_gpus
from experiments.runs.sweeps.worker import NOT_FAILED
from experiments.store.records import RecordError, Store
from experiments.studies import study
from experiments.studies.model import Study


class FileStudy(Study):
    """A study from a YAML file. Its records go to ``runs/``; what it needs of a machine is unknown.

    Raises:
        ConfigError: if the name of the file begins with a dot, such as ``..yaml``, or has a control character.
    """

    def __init__(self, path: Path) -> None:
        name = path.stem  # a folder gets it, for the plans and logs of the study
        if name.startswith(".") or control_in(name) is not None:
            raise ConfigError(f"{visible(path)}: a folder gets the name of this file; rename it, to mine.yaml")
        super().__init__(name, str(path), list, RUNS)

    @cached_property
    def jobs(self) -> list[Job]:
        """Every job, composed and checked; a ConfigError with the file, where a command line would be refused."""
        tokens = tokens_of(Path(self.title))
        for token in tokens:
            refuse_code(token)
        try:
            return expand(rewrite(tokens))
        except ConfigError as error:
            lists = [token.partition("=")[0] for token in tokens if "=[" in token]
            hint = f"\nTo run {lists[0]} with each of these values, write it below 'sweep:'." if lists else ""
            raise ConfigError(f"{self.title}: {error}{hint}") from None

    def runs(self, store: Store | None = None, foreseen: bool = False) -> Iterator[Run]:
        """Return every run."""
        return (job.run for job in self.jobs)


class Sweep:
    """One study and one folder of records.

    Args:
        word: the name of a study, or a YAML file.
        given: the parsed arguments of the command.

    Raises:
        ConfigError: if there is no such study.
    """

    def __init__(self, word: str, given: argparse.Namespace) -> None:
        try:
            self.study = FileStudy(Path(word)) if word.endswith((".yaml", ".yml")) else study(word)
        except KeyError as unknown:
            raise ConfigError(f"{unknown.args[0]}; or give a YAML file of your own") from None
        usual = next(self.study.runs()).root
        if usual == RUNS and not OUTPUT:
            usual = self.study.results
        self.word, self.again, self.device = word, given.again, given.device
        self.results = (given.results or usual).resolve()
        self.folder = plans.folder_of(self.study.name, self.results)
        self.data_root = None if given.data_root is None else str(given.data_root.resolve())
        self.model_path = None if given.model_path is None else str(Path(given.model_path).expanduser().resolve())
        self.needs = self.study.needs if given.device != "cpu" else NOTHING
        self.options = [] if given.results is None else ["--results", str(self.results)]
        self.options += [] if self.data_root is None else ["--data-root", self.data_root]
        self.options += [] if self.device == "auto" else ["--device", self.device]
        self.options += [] if self.model_path is None else [f"model.path={self.model_path}"]

    def command(self, verb: str) -> str:
        """Return a command on the same study, records, data and device."""
        return shlex.join(["python", "scripts/sweep.py", verb, self.word, *self.options])

    def runs(self) -> Iterator[Run]:
        """Yield every run, as the YAML files define it now."""
        models = set[str]()
        for run in self.study.runs(Store(self.results)):
            changed: dict[str, Any] = {"data_root": self.data_root, "device": self.device}
            if self.model_path is not None:
                model = run.config.model
                if model is None or model.package or model.name == "local" or len(models := models | {model.name}) > 1:
                    raise ConfigError(f"{self.study.name}: model.path= is for a study of one named language model")
                changed["model"] = model.model_copy(update={"path": self.model_path})
            yield run.with_execution(**changed)

    def require_cards(self) -> None:
        """Refuse a machine without the GPUs that the study needs: a ConfigError."""
        if self.needs.gpus and (lacking := self.needs.lacking([0] * len(visible_gpus()))) is not None:
            raise ConfigError(f"{lacking}; use --cluster slurm, or --device cpu if you can wait")

    @cached_property
    def view(self) -> status.View:
        """The present state of the runs, also of those in Slurm's queue."""
        jobs, queued = slurm.submitted(self.folder), dict[str, str]()
        alive, read = slurm.in_queue(jobs), cache(plans.read_plan)
        for job in (job for job in jobs if job.job in alive):
            try:
                queued |= dict.fromkeys(read(Path(job.plan)).tasks[job.task], job.job)
            except (RecordError, IndexError) as fault:
                print(f"job {job.job}: its runs are unknown; its plan is unreadable ({fault})", file=sys.stderr)
        return status.View(self.results, queued, status.failures(self.folder))

    @cached_property
    def wanted(self) -> list[Run]:
        """The runs that need training and are not in Slurm's queue."""
        wanted = status.runs_to_train(self.runs(), self.view, self.again)
        return [run for run in wanted if run.id not in self.view.queued]

    def told(self, what: str) -> str:
        """Return a phrase on the runs that need training, on the others of the study, and on the time."""
        known, store = {run.id for run in self.runs()}, Store(self.results)
        others = len(known) - len(self.wanted)
        rest = f" (others with a record or in Slurm's queue: {others})" if others else ""
        later = [run for run in self.study.runs(store, foreseen=True) if run.id not in known]
        more = f"; {len(later)} more follow from their records, {self.time(later)}" if later else ""
        return f"{what}{rest}, {self.time(self.wanted)}{more}"

    def time(self, runs: list[Run]) -> str:
        """Return a phrase on how long runs take on one worker, as far as the records here and in the folders tell."""
        places = {self.results, RESULTS, RUNS, SCRATCH / "results"}
        speeds = status.Speeds(*sorted(places), on_gpu=self.device != "cpu" and bool(visible_gpus()))
        each = [speeds.seconds(run.config) for run in runs]
        known = [seconds for seconds in each if seconds is not None]
        if not runs:
            return "nothing to do"
        if not known:
            return "no record shows how long they take"
        rest = f", and {len(each) - len(known)} runs of unknown speed" if len(known) < len(each) else ""
        return f"about {status.duration_text(sum(known))} on one worker{rest}"

    def doubtful(self) -> list[str]:
        """Return a line on each record that does not count."""
        states = ((run.id, self.view.state(run)) for run in self.runs())
        return [f"  {name}: {found.state}: {found.text}" for name, found in states if found.state in status.DOUBTFUL]


def status_command(sweep: Sweep, given: argparse.Namespace) -> int:
    """Show the progress of the study; return 0 if it is complete."""
    counts, notes, left, undigested = Counter[str](), list[str](), list[Run](), 0
    for run in sweep.runs():  # one record at a time is in memory
        found = sweep.view.state(run)
        counts[found.state] += 1
        undigested += not found.digest
        if found.state in status.UNFINISHED:
            left.append(run)
        if found.state in ("failed", "diverged", *status.DOUBTFUL):
            notes.append(f"  {run.id}: {found.state}{f': {found.text}' if found.text else ''}")
    print(f"{sweep.study.name} ({sweep.study.title}): {counts['done']} of {counts.total()} runs done")
    print(f"  records in {sweep.results}")
    for state in status.STATES[1:]:
        if counts[state]:
            print(f"  {counts[state]:>7} {state}")
    if undigested:
        print(f"  {undigested:>7} of the records have no digest (made before 2026-11-28)")
    print("".join(f"{note}\n" for note in notes[: given.lines]), end="")
    if more := len(notes[given.lines :]):
        print(f"  and {more} more; --lines N shows more of them")
    if left:
        print(f"  left: {sweep.time(left)}")
    doubtful = sum(counts[state] for state in status.DOUBTFUL)
    if doubtful:
        print("  type --again refused --again stale to run these again")
    if given.strict and doubtful:
        print(f"refused: {doubtful} records do not count (--strict)", file=sys.stderr)
        return 1
    return 1 if left or doubtful else 0


def table_command(sweep: Sweep, given: argparse.Namespace) -> int:
    """Show the results of the study by the settings that differ; return 0 if it is complete."""
    paths = [Store(sweep.results).path(run.id) for run in sweep.runs()]
    table, wanted = frame(path for path in paths if path.exists()), len(paths)
    if len(table):
        by = overview.telling(table)
        show(overview.table_of(overview.grouped(table, by, overview.usual_columns(table)), room()))
        print(overview.notes(table, by), end="")
    print(f"medians over the runs of each line; {len(table)} of {wanted} runs have their record")
    return 0 if len(table) == wanted else 1


def plan_of(sweep: Sweep, largest: int) -> plans.Plan | None:
    """Freeze the runs to do into a plan; return None if there are none."""
    if not sweep.wanted:
        return None
    try:
        path = plans.freeze(sweep.folder, sweep.study.name, sweep.results, sweep.wanted, largest, sweep.needs)
    except OSError as fault:
        raise ConfigError(storage_fault(fault) or str(fault)) from None
    plan = plans.read_plan(path)
    warn_of_uncounted(run.with_execution(results=str(sweep.results)) for run in sweep.wanted)
    needs = f"; each needs {sweep.needs}" if str(sweep.needs) else ""
    told = sweep.told(f"{plan.runs} runs in {len(plan.tasks)} tasks")
    print(f"{sweep.study.name}: {told}{needs}\n  {path}")
    return plan


def dry_run(sweep: Sweep, cluster: settings.Cluster) -> int:
    """Print the runs to do, what Slurm would get, and an estimated time; start nothing."""
    lines = [run.id for run in sweep.wanted]
    if cluster.kind == "slurm" and lines:
        tasks = len(stacks_of(sweep.wanted, cluster.runs_per_task))
        lines.append(slurm.script(sweep.folder, sweep.study.name, sweep.needs, tasks, cluster))
    print("".join(f"{line}\n" for line in lines), end="")
    print(f"{sweep.told(f'{len(sweep.wanted)} runs')}; nothing was started", file=sys.stderr)
    return 0


def run_here(plan: plans.Plan, tasks: list[int], cluster: settings.Cluster) -> int:
    """Run tasks of a plan on this machine; return the exit status."""
    outcomes: dict[str, str] = {}

    def report(task: int, runs: dict[str, str]) -> None:
        outcomes.update(runs)
        kinds = {status if status in NOT_FAILED else "failed" for status in runs.values()}
        print_line(f"[{len(outcomes)}/{plan.runs}] task {task}: {len(runs)} runs {' and '.join(sorted(kinds))}")

    Supervisor(plan, tasks, cluster, report).run()
    failed = [name for name, status in outcomes.items() if status not in NOT_FAILED]
    held, diverged = ([name for name in outcomes if outcomes[name] == status] for status in ("held", "diverged"))
    for what, names in (("failed", failed), ("held by another sweep", held), ("diverged", diverged)):
        if names:
            lines = "\n".join(f"  {name}: {outcomes[name]}" if names is failed else f"  {name}" for name in names)
            print(f"{len(names)} of {plan.runs} runs {what}:\n{lines}", file=sys.stderr)
    missing = {name for names in plan.tasks for name in names} - {path.stem for path in Store(plan.results).paths()}
    return 1 if failed or missing else 3 if diverged else 0
