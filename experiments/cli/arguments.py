"""What was typed, split into Hydra's flags and overrides, and which of Hydra's own settings may be changed.

The configuration is closed: no value may name code to import or run, and no file outside ``conf/`` takes part. Hydra
itself allows both (``_target_``, callbacks, logging handlers, search paths, pickled re-runs), so its settings are open
one by one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import ngn
from experiments.blocks import ConfigError

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
"""Settings of Hydra that may be overridden, besides those of the launcher."""
OPEN_GROUPS = {
    "hydra/launcher": ("basic", "pack", "pack_slurm", "submitit_local", "submitit_slurm"),
    "hydra/job_logging": ("default", "disabled", "none", "stdout"),
    "hydra/hydra_logging": ("default", "disabled", "hydra_debug", "none"),
    "hydra/output": ("default",),
    "hydra/help": ("default", "ngn"),
}
"""Groups of Hydra and their choices. The list is closed: a name such as ``../x`` would bring in a foreign file."""
SHELL_KEYS = ("setup", "teardown", "python", "additional_parameters", "srun_args")
"""Settings of cluster launchers that hold commands or programs to run."""


@dataclass(frozen=True)
class Arguments:
    """A command line: what is asked for, Hydra's flags that say so, and the overrides."""

    mode: CommandMode
    flags: tuple[str, ...]
    overrides: tuple[str, ...]


def split(argv: Sequence[str]) -> Arguments:
    """Sort a command line (without the program's name) into flags and overrides, in whatever order they stand.

    Raises:
        ConfigError: on flags that would bring in other configuration files or a pickled configuration.
        SystemExit: from argparse, with status 2, on flags that Hydra does not have; with 0 after ``--version`` and
            ``--list``.
    """
    from hydra._internal.utils import get_args_parser

    if "--list" in argv:
        if len(argv) > 1:
            raise ConfigError("--list: stands alone, and lists the studies; --help lists choices and settings")
        from experiments.cli import listing

        try:
            listing.show()
            sys.stdout.flush()
        except BrokenPipeError:  # as of `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)
    if "--version" in argv:
        print(f"ngn-suite {ngn.__version__}")
        raise SystemExit(0)
    args = get_args_parser().parse_intermixed_args(list(argv))
    closed = {
        "--config-dir": args.config_dir,
        "--config-path": args.config_path,
        "--config-name": args.config_name,
        "--experimental-rerun": args.experimental_rerun,
    }
    for flag, value in closed.items():
        if value is not None:
            raise ConfigError(f"{flag}: not available; a run is configured by conf/ and by key=value alone")

    overrides = tuple(args.overrides)
    if args.shell_completion:
        return Arguments("complete", ("--shell-completion",), overrides)
    if args.help:
        return Arguments("help", ("--help",), overrides)
    if args.hydra_help:
        return Arguments("help", ("--hydra-help",), overrides)
    if args.cfg is not None and args.info is not None:
        raise ConfigError("--cfg and --info cannot be asked for together")
    if args.cfg is not None:
        package = ("--package", args.package) if args.package else ()
        resolve = ("--resolve",) if args.resolve else ()
        return Arguments("show", ("--cfg", args.cfg, *package, *resolve), overrides)
    if args.info is not None:
        return Arguments("show", ("--info", args.info), overrides)
    if args.run and args.multirun:
        raise ConfigError("--run and --multirun cannot be asked for together")
    if args.multirun:
        return Arguments("multirun", (), overrides)
    return Arguments("run", ("--run",) if args.run else (), overrides)


def key_of(token: str) -> str:
    """The key of an override as typed, prefixes (``+``, ``++``, ``~``) included."""
    return token.split("=", 1)[0].strip()


def is_hydra(token: str) -> bool:
    """Whether an override changes a setting of Hydra rather than of the run."""
    return re.match(r"(hydra)([./@=]|$)", key_of(token).lstrip("+~")) is not None


def refuse_code(token: str) -> None:
    """Refuse an override that could name code to import or run.

    Raises:
        ConfigError: naming the override.
    """
    if "_target_" in token:
        raise ConfigError(f"{token}: '_target_' is refused: no configuration value may name code to import or run")
    if not is_hydra(token):
        return
    key = key_of(token).lstrip("+")
    if key.startswith(("hydra.callbacks", "hydra/callbacks")):
        raise ConfigError(f"{token}: callbacks are refused: no configuration value may name code to import or run")
    if key in ("hydra/sweeper", "hydra.sweeper.params"):
        raise ConfigError(
            f"{token}: refused: a multirun is checked before it starts, so its values are in the command; "
            "examples/search.py has a search by Optuna"
        )
    if key == "hydra.mode":
        raise ConfigError(f"{token}: write -m (or give several values) for a multirun, and neither for one run")
    if key == "hydra.job.chdir":
        raise ConfigError(f"{token}: refused: relative folders are always relative to where you call from")
    if key in OPEN_GROUPS:
        choice, choices = token.partition("=")[2], OPEN_GROUPS[key]
        if choice not in choices:
            raise ConfigError(f"{token}: the choices of {key} are: {', '.join(choices)}")
        if choice.startswith("submitit") and find_spec("hydra_plugins.hydra_submitit_launcher") is None:
            raise ConfigError(f"{token}: needs a plugin of Hydra: pip install hydra-submitit-launcher")
        return
    if key in OPEN_KEYS:
        return
    if re.fullmatch(r"hydra\.launcher\.\w+", key) and key.rsplit(".", 1)[1] not in SHELL_KEYS and "${" not in token:
        return
    raise ConfigError(
        f"{token}: this setting of Hydra is not open, since some of them can name code to run. "
        f"What stays open: {', '.join((*OPEN_KEYS, *OPEN_GROUPS))}, and plain values of hydra.launcher.*"
    )
