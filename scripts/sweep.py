"""Run the studies behind tables and figures, here or on a Slurm cluster.

    python scripts/sweep.py plan schedules                    # freeze the missing runs and estimate their time
    python scripts/sweep.py run schedules                     # run it here; --detach leaves the terminal at once
    python scripts/sweep.py run schedules --cluster slurm partition=gpu     # submit it, and return
    python scripts/sweep.py status schedules                  # its progress; `table` shows its results
    python scripts/sweep.py run mine.yaml                     # a study of your own; its records go to runs/
    python scripts/sweep.py run lora_llama3 model.path=FOLDER   # with the pretrained model of a local folder
    timeout 25m python scripts/sweep.py run schedules decay learners        # several in turn, for 25 minutes

`run` first plans the runs that no active plan covers. Repeat the same command to continue. See docs/study.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse
import shlex
import subprocess
from collections.abc import Callable
from functools import partial

from experiments.cli.machine import check_packages, data_sets_of, faults_of
from experiments.cli.pipes import exit_with
from experiments.cli.sweep import Sweep, dry_run, plan_of, run_here, status_command, table_command
from experiments.config.identity import Run
from experiments.core import interrupt
from experiments.core.blocks import ConfigError
from experiments.core.interrupt import shut_down
from experiments.data import DataError, data_root, sets
from experiments.data.fetch import fetch
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps import settings, slurm
from experiments.store.records import RecordError, Store
from experiments.studies import STUDIES


def _provide(sweep: Sweep, runs: list[Run], local: bool, fetches: bool) -> None:
    """Check cards and packages, and fetch data and models if these are there; a ConfigError names all that is missing.

    Everything is fetched here, where there is a network; compute nodes need none.
    """
    root = data_root(sweep.data_root)
    lacking = faults_of(sweep.require_cards, *(partial(check_packages, run.config) for run in runs)) if local else []
    names = sorted(set().union(*(data_sets_of(run.config) for run in runs))) if fetches else []
    models = {model for run in runs if (model := run.config.model) and model.data is None and model.package is None}
    checks: list[Callable[[], object]] = [partial(sets.require_files, name, root) for name in names]
    if not lacking:
        checks = [partial(fetch, name, root, sets.ORIGINS[name], lambda *_: None) for name in names]
    if models and fetches:
        from experiments.tasks.language.base import find_folder  # imports torch

        checks += [partial(find_folder, model, root, fetch=not lacking) for model in models]
    if lacking := [*lacking, *faults_of(*checks)]:
        raise ConfigError(f"{sweep.study.name}: " + "\n".join(lacking))


def train_command(sweep: Sweep, given: argparse.Namespace) -> int:
    """Freeze the missing runs. `run` also runs them: here until they are done, or on Slurm without waiting."""
    if given.strict and (bad := sweep.doubtful()):
        raise ConfigError("records that do not count (add --again to run them again):\n" + "\n".join(bad))
    cluster = settings.load_cluster(given.cluster, given.settings)
    if given.dry_run:
        return dry_run(sweep, cluster)
    if given.command == "plan":
        if plan_of(sweep, cluster.runs_per_task) is None:
            print(f"{sweep.study.name}: nothing is missing")
        return 0
    _provide(sweep, sweep.wanted, cluster.kind == "local", given.plan is None)
    if given.plan is None:
        plan = plan_of(sweep, cluster.runs_per_task)
    else:
        plan = plans.read_plan(given.plan)
        if plan.results != sweep.results.resolve():  # one from another machine would write where nobody looks
            raise ConfigError(
                f"{given.plan} is for records in {plan.results}, but here they go to {sweep.results}; make a plan here "
                f"({sweep.command('plan')}), or give the other folder: --results {plan.results}"
            )
    for name in sweep.view.leased & sweep.view.records:
        sweep.view.leases.clear(name)  # left by processes that were killed after writing a record
    if plan is None:
        doubtful = len(sweep.doubtful())
        wrong = f", but {doubtful} records do not count: {sweep.command('status')}" if doubtful else ""
        print(f"{sweep.study.name}: nothing is missing{', the rest is queued' if sweep.view.queued else ''}{wrong}")
        return 1 if doubtful else 0
    unfinished = [n for n, names in enumerate(plan.tasks) if not set(names) <= sweep.view.records or sweep.again]
    if cluster.kind == "slurm":
        jobs = slurm.submit(plan, unfinished, cluster)
        arrays = sorted({job.job.partition("_")[0] for job in jobs})
        print(f"submitted {len(jobs)} array tasks as {', '.join(arrays)}; {sweep.command('status')}")
        if given.plan is None and sweep.study.has_second_pass(Store(sweep.results)):
            again = ["scripts/sweep.py", "run", sweep.word, *sweep.options, "--cluster", given.cluster, *given.settings]
            waited = [*(job.job for job in jobs), *sweep.view.queued.values()]
            then = slurm.submit_after(waited, again, plan, cluster)
            print(f"submitted the runs that follow from their records as {then}, once all have succeeded")
        return 0
    if given.detach:
        return _leave_running(sweep, plan, given)
    return run_here(plan, unfinished, cluster)


def _leave_running(sweep: Sweep, plan: plans.Plan, given: argparse.Namespace) -> int:
    """Run a frozen plan in a separate process that outlives this terminal; write its output to a file."""
    words = ["run", sweep.word, *given.settings, "--cluster", given.cluster, "--plan", str(plan.path)]
    words += sweep.options if given.results is not None else ["--results", str(sweep.results), *sweep.options]
    words += [word for state in sweep.again for word in ("--again", state)]
    log = plan.path.with_suffix(".log")
    with log.open("ab") as out:
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    print(f"running as process {child.pid}; its output goes to\n  {log}")
    print(f"{sweep.command('status')}; kill {child.pid} saves and stops it")
    return 0


def _one(sweep: Sweep, given: argparse.Namespace) -> int:
    """Run the command on one study. What it lacks, or an error in its records, does not stop the next study."""
    try:
        return COMMANDS[given.command](sweep, given)
    except ConfigError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    except (RecordError, DataError) as error:
        print(f"{sweep.study.name}: {error}", file=sys.stderr)
        return 1


def _worst(statuses: list[int]) -> int:
    """Combine the exit statuses of several studies."""
    return next(status for status in (2, 1, 3, 0) if status in statuses)


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 0 complete or submitted, 1 incomplete, 2 refused, 3 diverged, 130 Ctrl-C."""
    listed = "\n".join(f"  {s.name:16} {s.title}" for s in STUDIES.values())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"studies:\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="STUDY | KEY=VALUE",
        help="studies of those below, or YAML files; settings of the cluster, such as workers=4; model.path=FOLDER",
    )
    parser.add_argument("--cluster", default="local", help=f"of {', '.join(settings.CLUSTERS)}, or a YAML file")
    parser.add_argument("--plan", type=Path, help="run: a frozen plan instead of a new one")
    parser.add_argument("--dry-run", action="store_true", help="only show the runs, their time, and Slurm's script")
    parser.add_argument("--detach", action="store_true", help="run here, but leave the terminal at once")
    parser.add_argument("--strict", action="store_true", help="refuse stale and other records that do not count")
    parser.add_argument(
        "--again", action="append", default=[], choices=["stale", "refused", "diverged"], help="run these anew"
    )
    parser.add_argument("--results", type=Path, metavar="DIR", help="folder of the records")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="folder of the data sets")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--lines", type=int, default=20, help="status: lines on single runs (20)")
    words = sys.argv[1:] if argv is None else argv
    given = parser.parse_intermixed_args(words)
    model = "model.path="
    given.model_path = next((w.removeprefix(model) for w in given.words if w.startswith(model)), None)
    given.settings = [word for word in given.words if "=" in word and not word.startswith(model)]
    names = [word for word in given.words if "=" not in word]
    if not names or (len(names) > 1 and (given.plan or given.detach)):
        parser.error("name a study" if not names else "--plan and --detach take one study")
    try:
        with interrupt.handled():
            studies = [Sweep(name, given) for name in names]  # check all studies before any starts
            return _worst([_one(sweep, given) for sweep in studies])
    except ConfigError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        return shut_down(stopped, shlex.join(["python", "scripts/sweep.py", *words]))


COMMANDS = {"plan": train_command, "run": train_command, "status": status_command, "table": table_command}

if __name__ == "__main__":
    exit_with(main)
