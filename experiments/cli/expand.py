"""All jobs of a command, composed and checked before the first one starts.

Hydra's own parser reads the overrides, so that what is checked is what Hydra will run; the merge is
:mod:`experiments.config.compose`, which is a hundred times faster than Hydra's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Glob,
    Override,
    OverrideType,
    QuotedString,
    RangeSweep,
    ValueType,
)
from hydra.errors import HydraException

from experiments.blocks import ConfigError, Incomplete
from experiments.cli.arguments import is_hydra
from experiments.config.compose import DESCRIBED, GROUPS, check, nearest, options, selection, set_key
from experiments.config.identity import run_id
from experiments.config.schema import MAX_JOBS, Config, legal_keys
from experiments.runs.stack import why_no_kernel
from experiments.tasks import GATES_OF_TASK

LARGEST_RANGE = 10_000_000
"""Values of one sweep; beyond it even ``allow_many_jobs`` is refused, since Hydra holds all jobs in memory."""


@dataclass(frozen=True)
class Job:
    """One job of a command: the overrides of its own, its configuration and its name."""

    overrides: tuple[str, ...]
    config: Config
    run_id: str

    @property
    def label(self) -> str:
        """What this job alone has, as it is typed."""
        return " ".join(self.overrides).replace("seed.value=", "seed=")


@lru_cache(maxsize=4096)
def parse(token: str) -> Override:
    """One override, read by Hydra's parser, which takes a millisecond; the jobs of a command share most of theirs.

    Raises:
        ConfigError: if it is none.
    """
    if "=" not in token and not token.startswith("~"):
        raise ConfigError(f"{token}: not understood; settings are written key=value (see: python run.py --help)")
    try:
        return OverridesParser.create().parse_override(token)
    except HydraException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{token}: not understood ({reason}); quote values with special characters") from None


def _plain(value: Any) -> Any:
    """A parsed value without Hydra's marks of quotation."""
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(entry) for key, entry in value.items()}
    return value


def _range_length(token: str, sweep: RangeSweep) -> int:
    start, stop, step = sweep.start, sweep.stop, sweep.step
    if start is None or stop is None or not all(math.isfinite(number) for number in (start, stop, step)):
        raise ConfigError(f"{token}: a range needs finite ends and a finite step")
    if step == 0:
        raise ConfigError(f"{token}: a range cannot have a step of 0")
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        span = range(start, stop, step)
        # len() refuses what does not fit a machine word
        return max(0, -((span.start - span.stop) // span.step))
    return max(0, math.ceil((Decimal(stop) - Decimal(start)) / Decimal(step)))


def count_of(override: Override) -> int:
    """How many jobs an override stands for, without writing them out.

    Raises:
        ConfigError: if it stands for none, or for values that cannot be counted.
    """
    token, value = str(override.input_line), override._value
    if override.value_type in (None, ValueType.ELEMENT):
        return 1
    if getattr(value, "shuffle", False):
        raise ConfigError(f"{token}: jobs run in the order written; shuffle(...) would only change their numbers")
    if isinstance(value, ChoiceSweep):
        count = len(value.list)
    elif isinstance(value, RangeSweep):
        count = _range_length(token, value)
    elif isinstance(value, Glob):
        count = len(_matches(override, value))
    else:
        raise ConfigError(f"{token}: an interval cannot be written out as jobs; give values, choice(...) or range(...)")
    if count == 0:
        raise ConfigError(f"{token}: the range is empty (the end of range(...) is exclusive)")
    return count


def _matches(override: Override, glob: Glob) -> list[str]:
    group = override.key_or_group
    if group not in GROUPS:
        raise ConfigError(f"{override.input_line}: glob(...) chooses among the files of a group; {group} is none")
    matches: list[str] = glob.filter(options(group))
    if not matches:
        raise ConfigError(f"{override.input_line}: matches none of the choices: {', '.join(options(group))}")
    return matches


def values(override: Override) -> Iterator[Any]:
    """The values of an override in the order written; one for a plain override."""
    value: Any = override._value
    if override.value_type in (None, ValueType.ELEMENT):
        yield _plain(value)
    elif isinstance(value, ChoiceSweep):
        yield from map(_plain, value.list)
    elif isinstance(value, RangeSweep):
        yield from value.range()
    else:
        yield from _matches(override, value)


def values_of(token: str) -> list[Any]:
    """The values of an override as typed, at most MAX_JOBS of them.

    Raises:
        ConfigError: if it is no override, or stands for none or too many values.
    """
    override = parse(token)
    if count_of(override) > MAX_JOBS:
        raise ConfigError(f"{token}: more than {MAX_JOBS:,} values")
    return list(values(override))


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


def _shown(key: str, value: Any) -> str:
    return f"{key}={Override._get_value_element_as_str(value)}"


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
            first.append(_shown(override.get_key_element(), next(values(override))))
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
        swept_values = tuple(_shown(k, v) for k, v, several in zip(keys, row, swept, strict=True) if several)
        try:
            config = check(merged)
            _runnable(config)
        except ConfigError as error:
            if isinstance(error, Incomplete) and not complete:
                continue
            where = f"\n(in the job with {' '.join(swept_values)})" if swept_values else ""
            raise ConfigError(f"{error}{where}") from None
        job = Job(swept_values, config, run_id(config))
        if job.run_id in seen:
            first = " ".join(seen[job.run_id].overrides)
            raise ConfigError(
                f"duplicate jobs: '{first}' and '{' '.join(swept_values)}' are the same run ({job.run_id}). "
                "A value is named twice, or the swept key does not change what this run computes"
            )
        seen[job.run_id] = job
        jobs.append(job)
    return jobs


def _runnable(config: Config) -> None:
    """How the run is carried out fits what is computed."""
    for key in ("results", "data_root"):
        # An empty name would mean the folder one calls from, which nobody means (``results=$UNSET``).
        if getattr(config, key) is not None and not getattr(config, key).strip():
            raise ConfigError(f"{key}: the name of the folder is empty; leave {key} out for the usual place")
    if config.engine == "fused" and (reason := why_no_kernel(config)) is not None:
        raise ConfigError(f"engine=fused: {reason}. Leave engine out, or use engine=torch")
