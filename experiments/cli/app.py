"""From a command line to runs: rewrite, check everything, then let Hydra start the jobs.

Exit status: 0 all runs are complete or were present; 1 a run failed; 2 the command was refused and nothing was started;
3 a run diverged; 130 interrupted.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Sequence

import hydra

from experiments import paths
from experiments.blocks import ConfigError
from experiments.cli import arguments, machine, presets, rewrite
from experiments.cli.expand import Job, expand, first_job, is_sweep
from experiments.cli.session import Session, full_error
from experiments.config.compose import selection
from experiments.runs.shutdown import shut_down
from ngn.train import interrupt


def prepare(argv: Sequence[str]) -> tuple[list[str], list[Job]]:
    """The arguments that Hydra gets for a command line, and the jobs; all of their settings have been checked.

    Raises:
        ConfigError: if anything in the command cannot run; nothing has been written.
        SystemExit: where the answer has been printed and there is nothing to start.
    """
    typed = arguments.split(argv)
    if typed.mode == "complete":
        if "COMP_LINE" in os.environ:
            line = os.environ["COMP_LINE"]
            known = rewrite.completions(line)
            if known:
                print(*known, sep="\n")
                raise SystemExit(0)
            os.environ["COMP_LINE"] = rewrite.completion_line(line)
        return list(argv), []
    overrides = presets.written_out(typed.overrides)
    for token in overrides:
        arguments.refuse_code(token)
    if typed.mode == "help":
        selection({})  # the help shows it
        return [*typed.flags, *(token for token in overrides if arguments.is_hydra(token))], []

    tokens = rewrite.rewrite(overrides)
    if typed.mode == "show":
        shown = first_job(tokens)
        expand(shown, complete=False)
        if shown != tokens:
            chosen = " ".join(token for token in shown if token not in tokens)
            print(f"several jobs; this is the first one's configuration ({chosen})", file=sys.stderr)
        return [*typed.flags, *shown], []

    jobs = expand(tokens)
    if typed.mode == "multirun" or is_sweep(tokens):
        if "--run" in typed.flags:
            raise ConfigError(f"--run: the command stands for {len(jobs):,} jobs; leave --run out")
        return ["--multirun", *tokens], jobs
    return [*typed.flags, *tokens], jobs


def start(session: Session) -> None:
    """Let Hydra read ``sys.argv`` and start the jobs, or show what it asks for."""
    hydra.main(version_base="1.3", config_path=str(paths.CONF), config_name="config")(session.job)()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (without the program's name); the exit status."""
    typed = list(sys.argv[1:] if argv is None else argv)
    try:
        rewritten, jobs = prepare(typed)
        machine.check(jobs, rewritten)
    except ConfigError as error:
        if full_error():
            traceback.print_exc()
        print(f"refused: {error}", file=sys.stderr)
        return 2
    program = sys.argv[0]
    command = shlex.join(["python", program, *typed])
    session = Session([job.run for job in jobs], [job.label for job in jobs], command)
    os.environ["NGN_SCRATCH"] = str(paths.SCRATCH)
    sys.argv = [program, *rewritten]
    try:
        with interrupt.handled():
            start(session)
    except KeyboardInterrupt as stopped:
        return shut_down(stopped, command)
    finally:
        session.summary()
    return session.status()
