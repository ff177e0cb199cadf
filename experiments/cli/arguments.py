"""Split the arguments into Hydra's flags and overrides, and limit which settings of Hydra may change.

The configuration is closed: no value may name code to import or run. Hydra allows it elsewhere (``_target_``,
callbacks, logging handlers, search paths, pickled re-runs). So this module lists the settings of Hydra that may change.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

import ngn
from experiments.core.blocks import ConfigError
from experiments.core.packages import EXTRAS, missing, sentence

CommandMode = Literal["run", "multirun", "show", "help", "complete"]

OPEN_KEYS = (
    "hydra.run.dir",
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.output_subdir",
    "hydra.verbose",
    "hydra.job_logging.root.level",
    "hydra.hydra_logging.root.level",
)
"""Settings of Hydra that may be overridden, besides those of launchers and sweepers."""
OPEN_GROUPS = {
    "hydra/launcher": ("basic", "pack", "joblib", "submitit_local", "submitit_slurm"),
    "hydra/sweeper": ("checked", "optuna"),
    "hydra/sweeper/sampler": ("tpe", "random", "cmaes", "nsgaii", "motpe", "grid"),
    "hydra/job_logging": ("default", "disabled", "none"),
    "hydra/hydra_logging": ("default", "disabled", "hydra_debug", "none"),
    "hydra/output": ("default",),
    "hydra/help": ("default", "ngn"),
}
"""Groups of Hydra and their allowed choices. A free name such as ``../x`` could load any file."""
PLUGINS = {"joblib": "hydra-joblib-launcher", "optuna": "hydra-optuna-sweeper"}
"""Choice → the package of its plug-in, which no extra installs."""
CODE_KEYS = ("setup", "teardown", "python", "additional_parameters", "srun_args", "custom_search_space")
"""Settings of launchers and sweepers that name commands, programs or code to run."""

CLOSED_KEYS = {
    "hydra.callbacks": "callbacks are not allowed: no configuration value may name code to import or run",
    "hydra/callbacks": "callbacks are not allowed: no configuration value may name code to import or run",
    "hydra.sweeper.params": "type the values as settings, such as schedule.lambda0=1e-5,1e-4",
    "hydra.mode": "not allowed: for a multirun, add -m or give several values",
    "hydra.job.chdir": "not allowed: relative folders are always relative to the working directory",
}
"""Beginning of a setting of Hydra → why it cannot be overridden, and what to do instead."""
CLOSED = ("--config-path", "--config-name", "--experimental-rerun")
"""Flags of Hydra that would load another main file, or a pickled one."""
FLAGS = ["--help", "--list", "--watch", "--version", "--cfg", "--package", "--info", "--run", "--multirun",
         "--config-dir", "--hydra-help"]  # fmt: skip
"""The flags that a refusal names."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        from experiments.config.compose import nearest

        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown == message:
            raise ConfigError(message.removeprefix("argument "))
        raise ConfigError(f"{unknown}: no such flag.{nearest(unknown, FLAGS)} The flags are: {', '.join(FLAGS)}")


_PARSER = _Parser(add_help=False, allow_abbrev=False)
_PARSER.add_argument("overrides", nargs="*")
for _names in ("--help -h", "--run -r", "--multirun -m", "--shell-completion -sc"):
    _PARSER.add_argument(*_names.split(), action="store_true")
for _name in ("--resolve", "--hydra-help", "--list", "--watch", "--version"):
    _PARSER.add_argument(_name, action="store_true")
for _names in ("--package -p", "--config-dir -cd", "--config-path -cp", "--config-name -cn", "--experimental-rerun"):
    _PARSER.add_argument(*_names.split())
_PARSER.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
_SHOWN = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_PARSER.add_argument("--info", "-i", choices=_SHOWN, nargs="?", const="all")


def split(argv: Sequence[str]) -> tuple[CommandMode, list[str], list[str]]:
    """Return the mode, the flags for Hydra and the overrides of a command line without the program's name.

    They may stand in any order. ``--config-dir`` takes the place of ``$NGN_CONF``.

    Raises:
        ConfigError: on unknown flags, and on those that would load another main file or a pickled one.
        SystemExit: with status 0, after ``--version``.
    """
    args = _PARSER.parse_intermixed_args(list(argv))
    if args.list or args.watch:
        raise ConfigError(f"--{'list' if args.list else 'watch'}: takes no other arguments; see --help")
    if args.version:
        print(f"ngn-suite {ngn.__version__}")
        raise SystemExit(0)
    for flag in CLOSED:
        if getattr(args, flag[2:].replace("-", "_")) is not None:
            raise ConfigError(f"{flag}: not available; conf/, --config-dir and key=value arguments configure a run")
    if args.config_dir is not None:
        folder = Path(args.config_dir).expanduser().absolute()
        if not folder.is_dir():
            raise ConfigError(f"--config-dir: there is no folder {folder}")
        os.environ["NGN_CONF"] = str(folder)

    if args.shell_completion:
        return "complete", ["--shell-completion"], args.overrides
    if args.help or args.hydra_help:
        return "help", ["--help" if args.help else "--hydra-help"], args.overrides
    for one, other in (("cfg", "info"), ("run", "multirun")):
        if getattr(args, one) and getattr(args, other):
            raise ConfigError(f"--{one} and --{other} cannot be used together: give one of them")
    if args.cfg is not None:
        package = ["--package", args.package] if args.package else []
        return "show", ["--cfg", args.cfg, *package, *(["--resolve"] if args.resolve else [])], args.overrides
    if args.info is not None:
        return "show", ["--info", args.info], args.overrides
    return "multirun" if args.multirun else "run", ["--run"] if args.run else [], args.overrides


def key_of(token: str) -> str:
    """Return the key of an override, without its prefix (``+``, ``++``, ``~``)."""
    return token.partition("=")[0].strip().lstrip("+~")


def is_hydra(token: str) -> bool:
    """Return whether an override changes a setting of Hydra, not of the run."""
    return re.match(r"hydra([./@]|$)", key_of(token)) is not None


def refuse_code(token: str) -> None:
    """Refuse an override that could name code to import or run: a ConfigError with the override."""
    if "_target_" in token:
        raise ConfigError(f"{token}: '_target_' is not allowed: no configuration value may name code to import or run")
    if not is_hydra(token):
        return
    key = "" if token.startswith("~") else key_of(token)
    for closed, why in CLOSED_KEYS.items():
        if key.startswith(closed):
            raise ConfigError(f"{token}: {why}")
    if key in OPEN_GROUPS:
        choice, choices = token.partition("=")[2], OPEN_GROUPS[key]
        if choice not in choices:
            raise ConfigError(f"{token}: the choices of {key} are: {', '.join(choices)}")
        if choice.startswith("submitit") and (name := missing(*EXTRAS["cluster"])):
            raise ConfigError(sentence(token, name))
        if choice in PLUGINS and missing(f"hydra_plugins.{PLUGINS[choice].replace('-', '_')}"):
            raise ConfigError(f"{token} needs the package {PLUGINS[choice]}: pip install {PLUGINS[choice]}")
        return
    plain = re.fullmatch(r"hydra\.(?:launcher|sweeper|sweeper\.sampler)\.(\w+)", key)
    if key in OPEN_KEYS or (plain and plain[1] not in CODE_KEYS and "${" not in token):
        return
    raise ConfigError(
        f"{token}: not allowed, because some settings of Hydra can name code to run. "
        f"Allowed: {', '.join((*OPEN_KEYS, *OPEN_GROUPS))}, and plain values of hydra.launcher.* and hydra.sweeper.*"
    )


def refuse_unknown_settings(tokens: Sequence[str]) -> None:
    """Refuse settings of launchers and sweepers that the chosen one lacks: a ConfigError with those that it has."""
    chosen = {"hydra/launcher": "pack", "hydra/sweeper": "checked"}
    chosen |= {key_of(token): token.partition("=")[2] for token in tokens if key_of(token) in chosen}
    for token in tokens:
        plugin = re.fullmatch(r"hydra[./](launcher|sweeper)[./](\w+)(\.\w+)?", key_of(token))
        if plugin is None:
            continue
        from hydra.core.config_store import ConfigStore
        from hydra.core.plugins import Plugins

        Plugins.instance()  # they store their settings
        choice = chosen[f"hydra/{plugin[1]}"]
        known = {str(key) for key in ConfigStore.instance().load(f"hydra/{plugin[1]}/{choice}.yaml").node}
        known -= {"_target_", "defaults", "params", *CODE_KEYS}
        if plugin[2] not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ConfigError(f"{token}: hydra/{plugin[1]}={choice} has no setting '{plugin[2]}'; {has}")
