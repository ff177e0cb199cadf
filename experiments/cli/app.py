"""From a command line to runs: rewrite the arguments, check all jobs, then let Hydra start them.

Exit status:

- 0: all runs are complete, or had records already;
- 1: a run failed;
- 2: the command was refused, and nothing was started;
- 3: a run diverged;
- 130: interrupted.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.cli import arguments, machine, rewrite
from experiments.cli.expand import Job, expand, first_job
from experiments.cli.session import Session, wants_tracebacks
from experiments.config.compose import selection
from experiments.core import interrupt, paths
from experiments.core.blocks import ConfigError
from experiments.core.interrupt import shut_down
from experiments.runs.outcome import present

SEARCH = "hydra/sweeper=optuna"
"""The override of a command whose sweeper makes up its jobs."""


def prepare(argv: Sequence[str]) -> tuple[list[str], list[Job]]:
    """Return the arguments for Hydra and the jobs of a command line, after checking all settings.

    Raises:
        ConfigError: if a part of the command cannot run. Nothing has been written then.
        SystemExit: if the command only prints something, which has been done.
    """
    mode, flags, given = arguments.split(argv)
    if mode == "complete":
        if "COMP_LINE" in os.environ:
            os.environ["COMP_LINE"] = rewrite.completion_line(os.environ["COMP_LINE"])
        return list(argv), []
    overrides = rewrite.expand_experiment(given)
    for token in overrides:
        arguments.refuse_code(token)
    if mode == "help":
        selection({})  # the help shows the defaults, so they must compose
        return [*flags, *(token for token in overrides if arguments.is_hydra(token))], []

    tokens = rewrite.rewrite(overrides)
    if mode == "show":
        shown = first_job(tokens)
        expand(shown, complete=False)
        if shown != tokens:
            chosen = " ".join(token for token in shown if token not in tokens)
            print(f"the command has several jobs; this is the configuration of the first ({chosen})", file=sys.stderr)
        return [*flags, *shown], []

    if any(map(arguments.is_hydra, tokens)):
        arguments.refuse_unknown_settings(tokens)
    if SEARCH in tokens:  # it makes up its jobs; the first values stand for all
        return ["--multirun", *tokens], expand(first_job(tokens))
    jobs = expand(tokens)
    if mode == "multirun" or any(job.label for job in jobs):
        if "--run" in flags:
            raise ConfigError(f"--run: the command has {len(jobs):,} jobs; remove --run")
        return ["--multirun", *tokens], jobs
    return [*flags, *tokens], jobs


def start(session: Session) -> Any:
    """Return what lets Hydra read ``sys.argv`` and start the jobs, or print what the flags ask for."""
    import hydra

    os.environ["NGN_SCRATCH"] = str(paths.SCRATCH)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(paths.ROOT), os.environ.get("PYTHONPATH"))))
    return hydra.main(version_base="1.3", config_path=str(paths.CONF), config_name="config")(session.job)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (without the program's name). Return the exit status."""
    typed = list(sys.argv[1:] if argv is None else argv)
    try:
        rewritten, jobs = prepare(typed)
        if any(job.run.config.show for job in jobs):
            from experiments.cli import recorded  # imported here: its tables take time

            verbose = any(token.startswith("hydra.verbose=") for token in rewritten)
            return recorded.show([(job.label, job.run) for job in jobs], verbose)
        search = SEARCH in rewritten
        trials = paths.SCRATCH / "results"  # whose records are trained anew where they do not count
        jobs = [replace(job, run=present(job.run)[0]) if job.run.root == trials else job for job in jobs]
        missing = [job.run for job in jobs if search or job.run.config.force or not job.run.path.is_file()]
        if missing:
            machine.check(missing, rewritten)
            machine.require_room(missing, rewritten)
    except ConfigError as error:
        if wants_tracebacks():
            traceback.print_exc()
        print(f"refused: {error}", file=sys.stderr)
        return 2
    long = [] if search else [run for run in missing if run.config.profile == "full"]
    if long:
        from experiments.cli import recorded

        print(recorded.forecast(long), end="", file=sys.stderr, flush=True)
        machine.warn_of_uncounted(long)
    session = Session([] if search else jobs, "--multirun" in rewritten, tuple(rewritten))
    sys.argv = [sys.argv[0], *rewritten]
    try:
        with interrupt.handled():
            if jobs and not missing:
                from experiments.runs.launch import share  # imported here: not every command has a job

                outcomes = share([job.run for job in jobs])  # nothing starts: there are no folders of jobs
                for number, job in enumerate(jobs):
                    session.report(number, job, outcomes[job.run.id])
            else:
                start(session)()
    except KeyboardInterrupt as stopped:
        return shut_down(stopped, shlex.join(["python", sys.argv[0], *typed]))
    finally:
        session.summary()
    return 1 if session.failed else 3 if session.diverged else 0
