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
from experiments.cli import arguments, rewrite
from experiments.cli.expand import Job, expand, first_job, is_sweep, needs_cuda
from experiments.cli.session import Session, configuration, full_error
from ngn.train import interrupt


def _check_device(jobs: Sequence[Job], tokens: Sequence[str]) -> None:
    if needs_cuda(jobs, tokens):
        import torch  # only asked for by device=cuda

        if not torch.cuda.is_available():
            raise ConfigError(
                "device=cuda: torch finds no CUDA device on this machine; leave device (or engine=cuda_graph) out"
            )


def _check_output() -> None:
    """A checkout that is shared or read-only needs one other folder."""
    place = next(folder for folder in (paths.SCRATCH, *paths.SCRATCH.parents) if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise ConfigError(f"{place}: cannot be written; name a folder for all output: NGN_OUTPUT=DIR python run.py ...")


def prepare(argv: Sequence[str]) -> tuple[list[str], list[Job]]:
    """The arguments that Hydra gets for a command line, and the jobs; everything has been checked.

    Raises:
        ConfigError: if anything in the command cannot run; nothing has been written.
    """
    typed = arguments.split(argv)
    if typed.mode == "complete":
        if "COMP_LINE" in os.environ:
            os.environ["COMP_LINE"] = rewrite.completion_line(os.environ["COMP_LINE"])
        return list(argv), []
    for token in typed.overrides:
        arguments.refuse_code(token)
    if typed.mode == "help":
        return [*typed.flags, *(token for token in typed.overrides if arguments.is_hydra(token))], []

    tokens = rewrite.rewrite(typed.overrides)
    if typed.mode == "show":
        shown = first_job(tokens)
        expand(shown, checked=False)
        if shown != tokens:
            chosen = " ".join(token for token in shown if token not in tokens)
            print(f"several jobs; this is the first one's configuration ({chosen})", file=sys.stderr)
        return [*typed.flags, *shown], []

    jobs = expand(tokens)
    _check_device(jobs, tokens)
    _check_output()
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
    except ConfigError as error:
        if full_error():
            traceback.print_exc()
        print(f"refused: {error}", file=sys.stderr)
        return 2
    session = Session([configuration(job) for job in jobs])
    os.environ["NGN_SCRATCH"] = str(paths.SCRATCH)
    program = sys.argv[0]
    sys.argv = [program, *rewritten]
    try:
        with interrupt.handled():
            start(session)
    except KeyboardInterrupt as stopped:
        return interrupt.leave(stopped, shlex.join(["python", program, *typed]))
    finally:
        session.summary()
    return session.status()
