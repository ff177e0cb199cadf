"""Compose a checked configuration from choices and overrides, without Hydra.

Multiruns, studies and tables have thousands of runs. This module merges the same files as Hydra, in about a millisecond
per run. It composes every run, including those of the command line; ``--cfg`` and ``--info`` show Hydra's composition.
A test holds the two equal.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from experiments.config.messages import explain, read_yaml
from experiments.config.rival_target import with_target
from experiments.config.schema import CheckedConfig, legal_keys
from experiments.core.blocks import Closed, ConfigError, Incomplete
from experiments.core.config import Config
from experiments.core.paths import CONF
from experiments.core.plugins import conf_folder, plugin_folders
from experiments.methods import METHODS
from experiments.tasks import COMPONENTS, GATES_OF_TASK, TASKS
from experiments.tasks.language.components import with_blocks

GROUPS = ("task", "gate", "model", "setting", "budget", "method", "schedule", "seed", "profile", "logger")
"""Configuration groups in the order of the defaults list in ``conf/config.yaml``: later files take precedence."""
DESCRIBED: dict[str, tuple[str, Mapping[str, type[Closed]]]] = {
    "task": ("name", TASKS),
    "gate": ("component", COMPONENTS),
    "method": ("name", METHODS),
}
"""Group whose choices have their own keys → the key with the name of the settings class, and these classes by name."""
SYNONYMS = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "iterations": "steps",
    "max_steps": "steps",
    "num_epochs": "epochs",
    "wd": "weight_decay",
    "max_grad_norm": "clip",
    "grad_clip": "clip",
    "lambda": "lambda0",
    "alpha": "alpha_max",
    "beta": "beta_start",
    "hidden_size": "width",
    "dataset": "task",
    "seeds": "seed",
    "data_dir": "data_root",
    "output_dir": "results",
}
"""The name of a key in other programs → the last part of the key here."""
DEFAULT_CHOICES = {
    "task": "regression1d",
    "budget": "paper",
    "method": "ngn",
    "schedule": "paper",
    "seed": "one",
    "profile": "full",
    "logger": "none",
}


def nearest(word: str, legal: list[str]) -> str:
    """Return `` Did you mean 'x'?``, or an empty text if no legal name is similar."""
    close = difflib.get_close_matches(word, legal, n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown_key(key: str, config: Mapping[str, Any]) -> str:
    """Return ``unknown key 'x'.`` with a suggestion: a key with the same last part, else the nearest key."""
    legal, message = legal_keys(dict(config)), f"unknown key '{key}'."
    owners: dict[str, list[str]] = {}
    for group, (_, classes) in DESCRIBED.items():
        for choice, field in ((choice, field) for choice, each in classes.items() for field in each.model_fields):
            if f"{group}.{field}" not in legal:
                owners.setdefault(f"{group}.{field}", []).append(f"{group}={choice}")
    if key in owners:
        return f"{message} It is a setting of {' or '.join(owners[key])}"
    last = key.rpartition(".")[2]
    last = SYNONYMS.get(last, last)
    for meant in (name for name in legal if name.rpartition(".")[2] == last and name.count(".") < 2):
        return f"{message} Did you mean '{meant}'?"
    for meant, choices in owners.items():
        if meant.rpartition(".")[2] == last:
            return f"{message} Did you mean '{meant}' (a setting of {' or '.join(choices)})?"
    return message + nearest(key, legal)


_load = cache(read_yaml)


def _merge(into: dict[str, Any], *more: Mapping[str, Any]) -> dict[str, Any]:
    """Merge blocks into the first, and return it. The others stay as they are: blocks are copied, lists are shared."""
    for key, value in (item for extra in more for item in extra.items()):
        known = into.get(key)
        into[key] = _merge(known if isinstance(known, dict) else {}, value) if isinstance(value, dict) else value
    return into


def folders() -> list[Path]:
    """Return the folders of settings; a ConfigError if one is missing, or $NGN_CONF has a choice of the suite."""
    given = conf_folder()
    for variable, folder in [("NGN_PLUGINS", folder) for folder in plugin_folders()] + [("NGN_CONF", given)]:
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"{variable}: there is no folder {folder}; correct or unset {variable}")
    known = [CONF, *(folder / "conf" for folder in plugin_folders())]
    if given is None:
        return known
    for path in sorted(given.glob("*/**/*.yaml")):
        group = path.parent.relative_to(given).as_posix()
        if group not in (*GROUPS, "experiment"):
            raise ConfigError(
                f"NGN_CONF: {path}: there is no group {group}; the groups are {', '.join(GROUPS)} and experiment"
            )
        if any((folder / group / path.name).exists() for folder in known):
            raise ConfigError(f"NGN_CONF: {path}: the suite already has {group}={path.stem}; rename your file")
    return [*known, given]


@cache
def options(group: str) -> dict[str, Path]:
    """Return the choices of a configuration group, sorted, with their files, from all folders."""
    files = [path for folder in folders() for path in (folder / group).glob("*.yaml")]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def _plugin_of(path: Path) -> Path | None:
    """Return the plug-in that contains a file; None for a file of the suite."""
    return next((folder for folder in plugin_folders() if path.is_relative_to(folder)), None)


def require_choice(group: str, choice: str) -> None:
    """Refuse a choice without a file or a settings class: a ConfigError with the missing part, or the nearest name."""
    legal, (key, classes) = options(group), DESCRIBED.get(group, ("", {}))
    half = f"{group}={choice} is incomplete (see docs/extending.md)"
    if choice not in legal and choice in classes:
        module = classes[choice].__module__
        plugin = _plugin_of(Path(str(sys.modules[module].__file__)))
        file = (plugin / "conf" if plugin else CONF) / group / f"{choice}.yaml"
        raise ConfigError(f"{half}: {module} has its settings class; write {file}")
    if choice not in legal:
        listed = f" The choices are: {', '.join(legal)}"
        new = f". To add one, write conf/schedule/{choice or 'NAME'}.yaml" if group == "schedule" else ""
        raise ConfigError(f"{group}={choice}: no such {group}.{nearest(choice, list(legal))}{listed}{new}")
    if not key:
        return
    file = legal[choice]
    block = _load(file).get(group)
    name = block.get(key) if isinstance(block, dict) else None
    if name != choice and (group != "method" or name is None):
        raise ConfigError(f"{half}: {file} must contain `{group}: {{{key}: {choice}}}`")
    if name not in classes:
        package = (_plugin_of(file) or Path("experiments")) / ("methods" if group == "method" else "tasks")
        raise ConfigError(f"{half}: {file} exists, but {package} has no settings class for '{name}'")


def usual_gate(task: str, model: str) -> str:
    """Return the default of ``gate=``: the first that fits the task; with a model, the first for finished modules."""
    fitting = GATES_OF_TASK[task]
    finished = [gate for gate in fitting if COMPONENTS[gate].given] if model != "none" else []
    return (finished or fitting)[0]


def with_defaults(choices: Mapping[str, str]) -> dict[str, str]:
    """Add the defaults of other groups; a ConfigError on an unknown group or choice, or a gate that does not fit."""
    full = {**DEFAULT_CHOICES, **choices}
    require_choice("task", full["task"])
    # smoke runs use a small built-in model
    full.setdefault("model", "none" if full["profile"] == "smoke" else TASKS[full["task"]].usual_model)
    if TASKS[full["task"]].usual_model == "none":  # check now: such tasks lack the keys that these files set
        given = any(COMPONENTS[gate].given for gate in GATES_OF_TASK[full["task"]])
        for group, nothing in (("model", "none"), ("budget", "paper")):
            if full[group] != nothing and not (group == "model" and given):
                raise ConfigError(
                    f"{group}={full[group]}: task={full['task']} adapts no pretrained model; remove {group}="
                )
    for group, choice in full.items():
        if group not in GROUPS or group == "setting":
            raise ConfigError(f"unknown group '{group}'.{nearest(group, list(GROUPS))}")
        require_choice(group, choice)
    fitting = GATES_OF_TASK[full["task"]]
    if "gate" not in full:
        full["gate"] = usual_gate(full["task"], full["model"])
    if full["gate"] not in fitting:
        raise ConfigError(
            f"gate={full['gate']} does not fit task={full['task']}; the gates that fit are: {', '.join(fitting)}"
        )
    if full["model"] != "none" and TASKS[full["task"]].usual_model == "none" and not COMPONENTS[full["gate"]].given:
        right = usual_gate(full["task"], full["model"])
        raise ConfigError(f"model={full['model']}: gate={full['gate']} has no finished module; use gate={right}")
    full["setting"] = f"{full['task']}-{full['gate']}"
    if full["setting"] not in options("setting"):
        file = options("task")[full["task"]].parents[1] / "setting" / f"{full['setting']}.yaml"
        raise ConfigError(f"task={full['task']} gate={full['gate']} has no settings; write {file}")
    return full


@lru_cache(maxsize=256)
def _selection(choices: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    chosen = dict(choices)
    base = {key: value for key, value in _load(CONF / "config.yaml").items() if key not in ("defaults", "hydra")}
    return _merge({}, base, *(_load(options(group)[chosen[group]]) for group in GROUPS))


def selection(choices: Mapping[str, str]) -> dict[str, Any]:
    """Return the merged, unchecked configuration of some choices. The caller may change its blocks."""
    return _merge({}, _selection(tuple(sorted(with_defaults(choices).items()))))


def set_key(config: dict[str, Any], key: str, value: Any) -> None:
    """Set an existing dotted key; a ConfigError with the nearest legal key if there is none."""
    *blocks, last = key.split(".")
    place: Any = config
    for part in blocks:
        place = place.get(part) if isinstance(place, dict) else None
    if not isinstance(place, dict) or last not in place:
        raise ConfigError(unknown_key(key, config))
    if isinstance(place[last], dict) and isinstance(value, Mapping):
        for name, entry in value.items():
            set_key(config, f"{key}.{name}", entry)
    else:
        place[last] = value


def check(nested: Mapping[str, Any]) -> Config:
    """Return the typed configuration; a ConfigError with a line for each wrong key, an Incomplete if some only lack."""
    method, gate = nested["method"], nested["gate"]
    if isinstance(method, Mapping) and method.get("like") is not None and method.get("target") is None:
        nested = with_target(nested)
    if isinstance(gate, Mapping) and isinstance(start := gate.get("t0"), Mapping):
        nested = {**nested, "gate": {**gate, "t0": start.get(nested["budget"])}}
    if isinstance(gate, Mapping) and gate.get("component") == "prune" and not gate.get("kinds"):
        nested = with_blocks(nested)
    nested = {**nested, "seed": {k: v for k, v in dict(nested["seed"]).items() if k != "set"}}
    try:
        return CheckedConfig.model_validate(nested)
    except ValidationError as error:
        kind = Incomplete if all(fault["type"] == "incomplete" for fault in error.errors()) else ConfigError
        blocks = [(nested[name], key) for name, key in (("task", "name"), ("gate", "component"))]
        choice = "-".join(str(block.get(key)) if isinstance(block, Mapping) else "" for block, key in blocks)
        file = str(options("setting").get(choice, f"conf/setting/{choice}.yaml"))  # that has the settings, or will
        raise kind(explain(error, nested, lambda key: unknown_key(key, nested), file)) from None


def compose(choices: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Return the checked configuration of a run: ``compose({"task": "cora"}, {"seed.value": 3})``.

    Args:
        choices: group → choice. Other groups have their defaults, and the default gate is the task's first.
        overrides: dotted key → value.

    Raises:
        ConfigError: if a setting is unknown, has the wrong type, is out of range or does not fit the others.
    """
    merged = selection(choices or {})
    for key, value in (overrides or {}).items():
        set_key(merged, key, value)
    return check(merged)
