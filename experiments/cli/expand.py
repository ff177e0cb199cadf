"""Compose and check all jobs of a command before the first one starts.

:mod:`experiments.config.compose` does the merging; it is a hundred times faster than Hydra.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override, OverrideType

from experiments.cli.arguments import is_hydra
from experiments.cli.overrides import ROWS, ROWS_FORM, parse, settings_of, text_of, values
from experiments.config.compose import DESCRIBED, GROUPS, check, nearest, options, selection, set_key
from experiments.config.identity import Run
from experiments.config.schema import MAX_JOBS, legal_keys
from experiments.core.blocks import ConfigError, Incomplete
from experiments.core.packages import EXTRAS, missing, sentence
from experiments.core.paths import CONF
from experiments.runs.stack import why_no_kernel
from experiments.tasks import GATES_OF_TASK


@dataclass(frozen=True)
class Job:
    """One job of a command.

    Attributes:
        label: the overrides that distinguish it from the other jobs, as typed; empty for a single job.
        tokens: all of its overrides, from which Hydra composes it in another process.
        run: its run, composed and checked.
    """

    label: str
    tokens: tuple[str, ...]
    run: Run


INSTEAD = {
    "setting": "task= and gate= determine the setting; choose those",
    "study": "use python scripts/sweep.py run {} for a whole study",
    "seed.set": "write the seeds as seed=0..9",
}
"""Key that is no setting of a run → what to type instead."""


def _known_keys() -> list[str]:
    """Return every group, and every key that any task and gate have."""
    keys = set(GROUPS)
    for task, gates in GATES_OF_TASK.items():
        for gate in gates:
            keys.update(legal_keys(selection({"task": task, "gate": gate})))
    return sorted(keys)


def _refuse_unavailable(override: Override) -> None:
    """Refuse overrides in a form that is not available."""
    token, key = override.input_line, override.key_or_group
    if override.package is not None:
        raise ConfigError(f"{token}: '@' is not available; remove it")
    if override.type == OverrideType.DEL:
        known = _known_keys()
        hint = "" if key in known else f" Also, there is no key '{key}'.{nearest(key, known)}"
        raise ConfigError(f"{token}: settings cannot be removed; set the key to null where that is allowed.{hint}")
    group, _, name = key.partition(".")
    if name and DESCRIBED.get(group, ("",))[0] == name:
        raise ConfigError(f"{token}: this name comes with other settings; write {group}=...")
    if key in INSTEAD:
        raise ConfigError(f"{token}: {INSTEAD[key].format(str(token).partition('=')[2])}")
    if override.type == OverrideType.ADD:
        known = _known_keys()
        hint = "remove the '+'" if key in known else f"unknown key '{key}'; keys cannot be added.{nearest(key, known)}"
        raise ConfigError(f"{token}: {hint}")


def parse_all(tokens: Sequence[str]) -> list[Override]:
    """Parse the overrides of the run's settings; a ConfigError on a form that is not available, or on too many jobs."""
    overrides, total = [], 1
    for token in tokens:
        override = parse(token)
        if is_hydra(token):
            if override.is_sweep_override():
                raise ConfigError(f"{token}: settings of Hydra apply to all jobs and cannot be swept; quote the value")
            continue
        _refuse_unavailable(override)
        if "${" in token:  # Hydra would resolve it only after the check
            raise ConfigError(f"{token}: references to other keys (${{...}}) are not available on the command line")
        total *= len(values(override))
        overrides.append(override)
    allowed = any(token.replace(" ", "").lower().lstrip("+") == "allow_many_jobs=true" for token in tokens)
    if total > MAX_JOBS and not allowed:
        raise ConfigError(f"the command has {total:,} jobs; for more than {MAX_JOBS:,}, add allow_many_jobs=true")
    return overrides


def first_job(tokens: Sequence[str]) -> list[str]:
    """Return the overrides of the first job of a command, and those of Hydra."""
    first: list[str] = []
    for token in tokens:
        override = parse(token)
        if is_hydra(token) or not (override.is_sweep_override() or override.key_or_group == ROWS):
            first.append(token)
        else:
            value: Any = override.value()
            value = value.start if isinstance(value, IntervalSweep) else values(override)[0]
            first += _typed(settings_of(override, value))
    return first


def _typed(settings: Sequence[tuple[str, Any]]) -> list[str]:
    """Return settings as a user would type them."""
    return [f"{key}={text_of(value)}" for key, value in settings]


def _compose(settings: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    choices: dict[str, str] = {}
    changes: dict[str, Any] = {}
    for key, value in settings:
        if key in choices or key in changes:
            raise ConfigError(f"{key} is given twice: in a row and beside it")
        if key not in GROUPS:
            changes[key] = value
        elif isinstance(value, (dict, list)) or value is None:
            rows = f". To vary several settings together, type {ROWS_FORM}" if isinstance(value, dict) else ""
            raise ConfigError(f"{key}: must be one of: {', '.join(options(key))}{rows}")
        else:
            choices[key] = str(value)
    merged = selection(choices)
    for key, value in changes.items():
        set_key(merged, key, value)
    return merged


def expand(tokens: Sequence[str], complete: bool = True) -> list[Job]:
    """Compose and check every job of a command, in Hydra's order.

    Args:
        tokens: the overrides from :func:`experiments.cli.rewrite.rewrite`; those of Hydra are ignored.
        complete: False skips configurations that lack a required setting.

    Raises:
        ConfigError: on the first job that cannot run, and on two jobs with the same run.
    """
    overrides = parse_all(tokens)
    jobs: dict[str, Job] = {}
    for row in itertools.product(*([settings_of(each, value) for value in values(each)] for each in overrides)):
        settings, typed, told = list[tuple[str, Any]](), list[str](), list[str]()
        for override, part in zip(overrides, row, strict=True):
            settings += part
            typed += _typed(part) if override.is_sweep_override() else [str(override.input_line)]
            told += _typed(part) if override.is_sweep_override() else []
        merged, label = _compose(settings), " ".join(told)
        try:
            run = run_of(merged)
        except ConfigError as error:
            if isinstance(error, Incomplete) and not complete:
                continue
            where = f"\n(in the job with {label})" if label else ""
            files = [options(key)[str(value)] for key, value in settings if key in GROUPS]
            added = [file for file in files if not file.is_relative_to(CONF)]
            named = any(str(file.parents[1]) in str(error) for file in added)  # where to write, or what is wrong
            also = f"\n(with your {', '.join(map(str, added))})" if added and not named else ""
            raise ConfigError(f"{error}{where}{also}") from None
        job = Job(label.replace("seed.value=", "seed="), tuple(typed), run)
        if run.id in jobs:
            raise ConfigError(
                f"duplicate jobs: '{jobs[run.id].label}' and '{job.label}' are the same run ({run.id}). "
                "Either a value occurs twice, or the swept key does not change this run"
            )
        jobs[run.id] = job
    return list(jobs.values())


def run_of(merged: Mapping[str, Any]) -> Run:
    """Return the run of a merged configuration, with absolute folders; a ConfigError if it cannot run."""
    config, folders = check(merged), dict[str, str]()
    for key in ("results", "data_root"):
        if (value := getattr(config, key)) is not None:
            # An empty name would mean the working directory. It is a mistake, such as ``results=$UNSET``.
            if not value.strip():
                raise ConfigError(f"{key}: the name of the folder is empty; remove {key}= for the default folder")
            folders[key] = str(Path(value).expanduser().resolve())
    if config.logger in EXTRAS["logging"] + EXTRAS["mlflow"] and missing(config.logger):
        raise ConfigError(sentence(f"logger={config.logger}", config.logger))
    if config.engine == "fused" and (reason := why_no_kernel(config)) is not None:
        raise ConfigError(f"engine=fused: {reason}. Remove engine=, or use engine=torch")
    return Run.of(config.model_copy(update=folders))
