"""All jobs of a command, composed and checked before the first one starts.

The merge is :mod:`experiments.config.compose`, which is a hundred times faster than Hydra's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override, OverrideType

from experiments.blocks import ConfigError, Incomplete
from experiments.cli.arguments import is_hydra
from experiments.cli.overrides import count_of, parse, shown, values
from experiments.config.compose import DESCRIBED, GROUPS, check, nearest, options, selection, set_key
from experiments.config.schema import MAX_JOBS, legal_keys
from experiments.contract.config import Config
from experiments.runs.run_files import Run
from experiments.runs.stack import why_no_kernel
from experiments.tasks import GATES_OF_TASK

LARGEST_RANGE = 10_000_000
"""Values of one sweep; beyond it even ``allow_many_jobs`` is refused, since Hydra holds all jobs in memory."""


@dataclass(frozen=True)
class Job:
    """One job of a command: the overrides of its own, and its run."""

    overrides: tuple[str, ...]
    run: Run

    @property
    def label(self) -> str:
        """What this job alone has, as it is typed."""
        return " ".join(self.overrides).replace("seed.value=", "seed=")


def _known() -> list[str]:
    """Every key that some task and gate have, and every group."""
    keys = set(GROUPS)
    for task, gates in GATES_OF_TASK.items():
        for gate in gates:
            keys.update(legal_keys(selection({"task": task, "gate": gate})))
    return sorted(keys)


def _legal(override: Override) -> None:
    token, key = override.input_line, override.key_or_group
    if override.package is not None:
        raise ConfigError(f"{token}: '@' is not available; every group has one place")
    if override.type == OverrideType.DEL:
        known = _known()
        hint = "" if key in known else f" Also, there is no key '{key}'.{nearest(key, known)}"
        raise ConfigError(f"{token}: settings cannot be removed; set the key to null where that is allowed.{hint}")
    if key == "setting":
        raise ConfigError(f"{token}: the setting follows from task= and gate=; choose those")
    group, _, name = key.partition(".")
    if name and DESCRIBED.get(group, ("",))[0] == name:
        raise ConfigError(f"{token}: chosen with all that belongs to it; write {group}=...")
    if key == "study":
        raise ConfigError(f"{token}: a study is many runs; python scripts/sweep.py run {str(token).partition('=')[2]}")
    if key == "seed.set":
        raise ConfigError(f"{token}: write the seeds as seed=0..9")
    if override.type == OverrideType.ADD:
        known = _known()
        hint = "drop the '+'" if key in known else f"unknown key '{key}'; keys cannot be added.{nearest(key, known)}"
        raise ConfigError(f"{token}: {hint}")


def _scan(token: str, value: Any) -> None:
    """Refuse interpolations: they would be resolved by Hydra after the check."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        _scan(token, name)
        _scan(token, entry)
    if isinstance(value, str) and "${" in value:
        raise ConfigError(f"{token}: references to other keys (${{...}}) are not available on the command line")


def parsed(tokens: Sequence[str]) -> list[Override]:
    """The overrides of the run's own settings, each a legal form, and how many jobs they stand for is within reason.

    Raises:
        ConfigError: on a form that is not available, and on more than MAX_JOBS jobs without ``allow_many_jobs=true``.
    """
    overrides = [parse(token) for token in tokens if not is_hydra(token)]
    for token in tokens:
        if is_hydra(token) and parse(token).is_sweep_override():
            raise ConfigError(f"{token}: settings of Hydra hold for all jobs and cannot be swept; quote the value")
    total, allow_many = 1, False
    for override in overrides:
        _legal(override)
        count = count_of(override)
        if count > LARGEST_RANGE:
            raise ConfigError(f"{override.input_line}: {count:,} values are more than any study needs")
        total *= count
        if override.key_or_group == "allow_many_jobs":
            allow_many = next(values(override)) is True
    if total > MAX_JOBS and not allow_many:
        raise ConfigError(f"these are {total:,} jobs; more than {MAX_JOBS:,} are run only with allow_many_jobs=true")
    return overrides


def is_sweep(tokens: Sequence[str]) -> bool:
    """Whether an override of the run's own settings names several values."""
    return any(parse(token).is_sweep_override() for token in tokens if not is_hydra(token))


def first_job(tokens: Sequence[str]) -> list[str]:
    """The overrides of the first job of a command, and those of Hydra."""
    first = []
    for token in tokens:
        override = parse(token)
        if is_hydra(token) or not override.is_sweep_override():
            first.append(token)
        else:
            first.append(shown(override.get_key_element(), next(values(override))))
    return first


def _compose(keys: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    choices: dict[str, str] = {}
    changes: dict[str, Any] = {}
    for key, value in zip(keys, row, strict=True):
        if key in GROUPS:
            if isinstance(value, (dict, list)) or value is None:
                raise ConfigError(f"{key}: takes the name of one choice: {', '.join(options(key))}")
            choices[key] = str(value)
        else:
            changes[key] = value
    merged = selection(choices)
    for key, value in changes.items():
        set_key(merged, key, value)
    return merged


def expand(tokens: Sequence[str], complete: bool = True) -> list[Job]:
    """Every job of a command, composed and checked, in Hydra's order.

    Args:
        tokens: the overrides, rewritten (:func:`experiments.cli.rewrite.rewrite`); those of Hydra are passed over.
        complete: False to pass over configurations to which something has to be added before they can run.

    Raises:
        ConfigError: on the first job that cannot run, and on two jobs that are the same run.
    """
    overrides = parsed(tokens)
    keys = [override.key_or_group for override in overrides]
    swept = [override.is_sweep_override() for override in overrides]
    jobs: list[Job] = []
    seen: dict[str, Job] = {}
    for row in itertools.product(*(list(values(override)) for override in overrides)):
        for override, value in zip(overrides, row, strict=True):
            _scan(str(override.input_line), value)
        merged = _compose(keys, row)
        swept_values = tuple(shown(k, v) for k, v, several in zip(keys, row, swept, strict=True) if several)
        try:
            config = check(merged)
            _runnable(config)
        except ConfigError as error:
            if isinstance(error, Incomplete) and not complete:
                continue
            where = f"\n(in the job with {' '.join(swept_values)})" if swept_values else ""
            raise ConfigError(f"{error}{where}") from None
        job = Job(swept_values, Run.of(_from_here(config)))
        if job.run.id in seen:
            first = " ".join(seen[job.run.id].overrides)
            raise ConfigError(
                f"duplicate jobs: '{first}' and '{' '.join(swept_values)}' are the same run ({job.run.id}). "
                "A value is named twice, or the swept key does not change what this run computes"
            )
        seen[job.run.id] = job
        jobs.append(job)
    return jobs


def _from_here(config: Config) -> Config:
    """The configuration whose relative folders are relative to where the command was given."""
    folders = {
        name: str(Path(value).expanduser().resolve())
        for name in ("results", "data_root")
        if (value := getattr(config, name)) is not None
    }
    return config.model_copy(update=folders)


def _runnable(config: Config) -> None:
    """How the run is carried out fits what is computed."""
    for key in ("results", "data_root"):
        # An empty name would mean the folder one calls from, which nobody means (``results=$UNSET``).
        if getattr(config, key) is not None and not getattr(config, key).strip():
            raise ConfigError(f"{key}: the name of the folder is empty; leave {key} out for the usual place")
    if config.logger in ("tensorboard", "wandb") and find_spec(config.logger) is None:
        raise ConfigError(f"logger={config.logger}: needs a package: pip install {config.logger}")
    if config.engine == "fused" and (reason := why_no_kernel(config)) is not None:
        raise ConfigError(f"engine=fused: {reason}. Leave engine out, or use engine=torch")
