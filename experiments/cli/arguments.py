"""Split the arguments into Hydra's flags and overrides, and limit which settings of Hydra may change.

The configuration is closed: no value may name code to import or run, and only files in ``conf/`` count. Hydra allows
both elsewhere (``_target_``, callbacks, logging handlers, search paths, pickled re-runs). So this module lists the
settings of Hydra that are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

import ngn
from experiments.blocks import ConfigError
from experiments.packages import EXTRAS, missing, sentence

CommandMode = Literal["run", "multirun", "show", "help", "complete"]

OPEN_KEYS = (
    "hydra.run.dir",
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.output_subdir",
    "hydra.verbose",
    "hydra.job_logging.root.level",
    "hydra.hydra_logging.root.level",
    "hydra.sweeper.max_batch_size",
)
"""Settings of Hydra that may be overridden, besides those of launchers."""
OPEN_GROUPS = {
    "hydra/launcher": ("basic", "pack", "pack_slurm", "submitit_local", "submitit_slurm"),
    "hydra/job_logging": ("default", "disabled", "none", "stdout"),
    "hydra/hydra_logging": ("default", "disabled", "hydra_debug", "none"),
    "hydra/output": ("default",),
    "hydra/help": ("default", "ngn"),
}
"""Groups of Hydra and their allowed choices. A free name such as ``../x`` could load any file."""
SHELL_KEYS = ("setup", "teardown", "python", "additional_parameters", "srun_args")
"""Settings of cluster launchers that name commands or programs to run."""

FLAGS = ["--help", "--list", "--version", "--cfg", "--package", "--info", "--run", "--multirun", "--hydra-help"]
"""The flags that a refusal names."""


@dataclass(frozen=True)
class Arguments:
    """A command line: its mode, the flags for Hydra, and the overrides."""

    mode: CommandMode
    flags: tuple[str, ...]
    overrides: tuple[str, ...]


def _refuse_flags(message: str) -> NoReturn:
    from experiments.config.compose import nearest

    unknown = message.removeprefix("unrecognized arguments: ")
    if unknown == message:
        raise ConfigError(message.removeprefix("argument "))
    raise ConfigError(f"{unknown}: no such flag.{nearest(unknown, FLAGS)} The flags are: {', '.join(FLAGS)}")


def split(argv: Sequence[str]) -> Arguments:
    """Split a command line (without the program's name) into flags and overrides, in any order.

    Raises:
        ConfigError: on unknown flags, and on those that would load other configuration files or a pickled one.
        SystemExit: with status 0, after ``--version`` and ``--list``.
    """
    from hydra._internal.utils import get_args_parser

    if "--list" in argv:
        if len(argv) > 1:
            raise ConfigError("--list: takes no other arguments; it lists the studies, --help the choices and settings")
        from experiments.cli import listing

        listing.show()
        raise SystemExit(0)
    if "--version" in argv:
        print(f"ngn-suite {ngn.__version__}")
        raise SystemExit(0)
    parser = get_args_parser()
    parser.error = _refuse_flags  # type: ignore[method-assign]  # Hydra's usage names closed flags, and not --list
    args = parser.parse_intermixed_args(list(argv))
    closed = {
        "--config-dir": args.config_dir,
        "--config-path": args.config_path,
        "--config-name": args.config_name,
        "--experimental-rerun": args.experimental_rerun,
    }
    for flag, value in closed.items():
        if value is not None:
            raise ConfigError(f"{flag}: not available; only conf/ and key=value arguments configure a run")

    overrides = tuple(args.overrides)
    if args.shell_completion:
        return Arguments("complete", ("--shell-completion",), overrides)
    if args.help:
        return Arguments("help", ("--help",), overrides)
    if args.hydra_help:
        return Arguments("help", ("--hydra-help",), overrides)
    if args.cfg is not None and args.info is not None:
        raise ConfigError("--cfg and --info cannot be used together: give one of them")
    if args.cfg is not None:
        package = ("--package", args.package) if args.package else ()
        resolve = ("--resolve",) if args.resolve else ()
        return Arguments("show", ("--cfg", args.cfg, *package, *resolve), overrides)
    if args.info is not None:
        return Arguments("show", ("--info", args.info), overrides)
    if args.run and args.multirun:
        raise ConfigError("--run and --multirun cannot be used together: give one of them")
    if args.multirun:
        return Arguments("multirun", (), overrides)
    return Arguments("run", ("--run",) if args.run else (), overrides)


def key_of(token: str) -> str:
    """Return the key of an override as typed, with its prefix (``+``, ``++``, ``~``)."""
    return token.split("=", 1)[0].strip()


def is_hydra(token: str) -> bool:
    """Return whether an override changes a setting of Hydra, not of the run."""
    return re.match(r"(hydra)([./@=]|$)", key_of(token).lstrip("+~")) is not None


def refuse_code(token: str) -> None:
    """Refuse an override that could name code to import or run.

    Raises:
        ConfigError: with the override.
    """
    if "_target_" in token:
        raise ConfigError(f"{token}: '_target_' is not allowed: no configuration value may name code to import or run")
    if not is_hydra(token):
        return
    key = key_of(token).lstrip("+")
    if key.startswith(("hydra.callbacks", "hydra/callbacks")):
        raise ConfigError(f"{token}: callbacks are not allowed: no configuration value may name code to import or run")
    if key in ("hydra/sweeper", "hydra.sweeper.params"):
        raise ConfigError(
            f"{token}: not allowed: all jobs are checked before the first one starts, so the command must name their "
            "values. For a search with Optuna, see examples/search.py"
        )
    if key == "hydra.mode":
        raise ConfigError(f"{token}: not allowed: for a multirun, add -m or give several values")
    if key == "hydra.job.chdir":
        raise ConfigError(f"{token}: not allowed: relative folders are always relative to the working directory")
    if key in OPEN_GROUPS:
        choice, choices = token.partition("=")[2], OPEN_GROUPS[key]
        if choice not in choices:
            raise ConfigError(f"{token}: the choices of {key} are: {', '.join(choices)}")
        if choice.startswith("submitit") and (name := missing(*EXTRAS["cluster"])):
            raise ConfigError(sentence(token, name))
        return
    if key in OPEN_KEYS:
        return
    if re.fullmatch(r"hydra\.launcher\.\w+", key) and key.rsplit(".", 1)[1] not in SHELL_KEYS and "${" not in token:
        return
    raise ConfigError(
        f"{token}: not allowed, because some settings of Hydra can name code to run. "
        f"Allowed: {', '.join((*OPEN_KEYS, *OPEN_GROUPS))}, and plain values of hydra.launcher.*"
    )
