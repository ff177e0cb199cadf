"""From a command line to runs: rewrite, check everything, then let Hydra start the jobs.

Exit status: 0 all runs are complete or were present; 1 a run failed; 2 the command was refused and nothing was started;
3 a run diverged; 130 interrupted.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.blocks import ConfigError
from experiments.cli import arguments, rewrite
from experiments.cli.expand import Job, expand, first_job, is_sweep, needs_cuda
from experiments.config import compose
from experiments.config.identity import run_id
from experiments.config.schema import Config
from experiments.store.records import RecordError
from ngn.train import interrupt

ROOT = compose.CONF.parent


class RunFailed(RuntimeError):
    """A run that failed in another process than the one that reports (a cluster job)."""


@dataclass
class Session:
    """The jobs of this command, and what they did.

    Attributes:
        process: the process that reports; a job may run in another one.
        jobs: how many there are.
        failed, diverged: a line for each.
        configs: the jobs' configurations, in job order.
        ready: run id → outcome, or the exception, of what a launcher has trained ahead of its job.
    """

    process: int = 0
    jobs: int = 1
    failed: list[str] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)
    configs: list[Config] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)

    def status(self) -> int:
        """The exit status of the command."""
        return 1 if self.failed else 3 if self.diverged else 0


_session = Session()


def _execute(config: Config) -> Iterable[Any]:
    """The outcome of one configuration: trained ahead with its pack, or else here; torch is first imported here."""
    name = run_id(config)
    if name in _session.ready:
        done = _session.ready.pop(name)
        if isinstance(done, Exception):
            raise done
        return [done]
    from experiments.runs.launch import launch

    return launch([config])


def train_ahead(first: int, count: int) -> None:
    """Train ``count`` jobs from number ``first`` as stacks; each job then picks up its own outcome."""
    from experiments.runs.launch import share

    _session.ready.update(share(_session.configs[first : first + count]))


def train_elsewhere(first: int, count: int, train: Callable[[list[Config]], dict[str, Any]]) -> None:
    """Like :func:`train_ahead`, by ``train``: configurations → run id to outcome or exception."""
    _session.ready.update(train(_session.configs[first : first + count]))


def _full_error() -> bool:
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


def _foreseen(error: Exception) -> bool:
    """Whether an error is written for the reader, so that its message is enough."""
    if isinstance(error, (ConfigError, RecordError)):
        return True
    from experiments.data.source import DataError  # not earlier: only a run that got this far needs the readers

    return isinstance(error, DataError)


def _anchored(config: Config) -> Config:
    """Relative folders made absolute, from the folder the command was given in."""
    folders = {
        name: str(Path(value).expanduser().resolve())
        for name in ("results", "data_root")
        if (value := getattr(config, name)) is not None
    }
    return config.model_copy(update=folders)


def _say(line: str) -> None:
    """Print a line. Whoever stops reading our lines (``| head``) does not stop the runs."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def finish(number: int, overrides: Sequence[str]) -> None:
    """Report job ``number`` (from 0) of this command, whose configuration has been checked."""
    _run_one(_session.configs[number], number + 1, " ".join(overrides), _session, _execute)


def _checked(settings: DictConfig) -> Config:
    nested = OmegaConf.to_container(settings, resolve=True)
    if not isinstance(nested, dict):
        raise ConfigError("a configuration is a mapping of keys to values")
    return _anchored(compose.check({str(key): value for key, value in nested.items()}))


def _run_one(
    settings: DictConfig | Config,
    number: int,
    overrides: str,
    session: Session,
    runner: Callable[[Config], Iterable[Any]],
) -> None:
    """One job: check, run, print one line an outcome, and note what went wrong.

    In a multirun the jobs after a failed one still run. Errors written for the reader show their message alone.
    """
    several = session.jobs > 1
    prefix = f"[{number}/{session.jobs}] " if several else ""
    which = f"[{number}/{session.jobs} {overrides}] " if several else ""
    try:
        for outcome in runner(settings if isinstance(settings, Config) else _checked(settings)):
            _say(f"{prefix}{outcome.message}")
            if outcome.status == "diverged":
                session.diverged.append(f"{which}{outcome.run_id}")
    except Exception as error:
        elsewhere = os.getpid() != session.process
        foreseen = _foreseen(error)
        if elsewhere and foreseen:
            raise RunFailed(str(error)) from None
        if elsewhere or (not several and (not foreseen or _full_error())):
            raise
        if not foreseen or _full_error():
            traceback.print_exc()
        else:
            print(f"{prefix}{error}", file=sys.stderr, flush=True)
        reason = str(error).splitlines()[0] if str(error) else "no message"
        session.failed.append(f"{which}{reason if foreseen else f'{type(error).__name__}: {reason}'}")


@hydra.main(version_base="1.3", config_path=str(compose.CONF), config_name="config")
def job(settings: DictConfig) -> None:
    """What Hydra calls for every job of a command."""
    chosen = HydraConfig.get()
    # in a single run the number is missing
    number = 1 if OmegaConf.is_missing(chosen.job, "num") else int(chosen.job.num) + 1
    _run_one(settings, number, " ".join(map(str, chosen.overrides.task)), _session, _execute)


def _check_device(jobs: Sequence[Job], tokens: Sequence[str]) -> None:
    if needs_cuda(jobs, tokens):
        import torch  # only asked for by device=cuda

        if not torch.cuda.is_available():
            raise ConfigError(
                "device=cuda: torch finds no CUDA device on this machine; leave device out, or device=cpu"
            )


def prepare(argv: Sequence[str]) -> tuple[list[str], list[Config]]:
    """The arguments that Hydra gets for a command line, and the jobs' configurations; everything has been checked.

    Raises:
        ConfigError: if anything in the command cannot run; nothing has been written.
    """
    given = arguments.split(argv)
    if given.mode == "complete":
        if "COMP_LINE" in os.environ:
            os.environ["COMP_LINE"] = rewrite.completion_line(os.environ["COMP_LINE"])
        return list(argv), []
    for token in given.overrides:
        arguments.refuse_code(token)
    if given.mode == "help":
        return [*given.flags, *(token for token in given.overrides if arguments.is_hydra(token))], []

    tokens = rewrite.rewrite(given.overrides)
    if given.mode == "show":
        shown = first_job(tokens)
        expand(shown, checked=False)
        if shown != tokens:
            own = " ".join(token for token in shown if token not in tokens)
            print(f"several jobs; this is the first one's configuration ({own})", file=sys.stderr)
        return [*given.flags, *shown], []

    jobs = expand(tokens)
    _check_device(jobs, tokens)
    if given.mode == "multirun" or is_sweep(tokens):
        if "--run" in given.flags:
            raise ConfigError(f"--run: the command stands for {len(jobs):,} jobs; leave --run out")
        return ["--multirun", *tokens], [_anchored(job.config) for job in jobs]
    return [*given.flags, *tokens], [_anchored(job.config) for job in jobs]


def _summary(session: Session) -> None:
    for what, names in (("failed", session.failed), ("diverged", session.diverged)):
        if names and session.jobs > 1:
            lines = "\n".join(f"  {name}" for name in names)
            print(f"{len(names)} of {session.jobs} runs {what}:\n{lines}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (without the program's name); the exit status."""
    global _session
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        rewritten, configs = prepare(given)
    except ConfigError as error:
        if _full_error():
            traceback.print_exc()
        print(f"refused: {error}", file=sys.stderr)
        return 2
    _session = Session(process=os.getpid(), jobs=max(1, len(configs)), configs=configs)
    os.environ["NGN_ROOT"] = str(ROOT)
    program = sys.argv[0]
    sys.argv = [program, *rewritten]
    try:
        with interrupt.handled():
            job()
    except KeyboardInterrupt as stopped:
        return interrupt.leave(stopped, shlex.join(["python", program, *given]))
    finally:
        _summary(_session)
    return _session.status()
