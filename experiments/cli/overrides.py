"""Parse one override, count its values, and list them.

Hydra's own parser reads it, so that the suite checks exactly what Hydra will run.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, Override, QuotedString, RangeSweep
from hydra.errors import HydraException

from experiments.config.compose import GROUPS, options
from experiments.core.blocks import ConfigError

ROWS = "rows"
"""The override whose values are rows: settings that vary together."""
ROWS_FORM = "rows={schedule.lambda0:1e-5,schedule.alpha_max:1e-5},{schedule.lambda0:1e-4,schedule.alpha_max:1e-4}"

LARGEST_RANGE = 1_000_000
"""Most values of one override, even with ``allow_many_jobs``, because Hydra keeps all jobs in memory."""


@lru_cache(maxsize=4096)
def parse(token: str) -> Override:
    """Parse an override with Hydra's parser, in a millisecond, and keep it; a ConfigError if it is not valid."""
    if "=" not in token and not token.startswith("~"):
        raise ConfigError(f"{token}: not understood; write settings as key=value (see: python run.py --help)")
    try:
        return OverridesParser.create().parse_override(token)
    except HydraException as error:
        reason, (key, _, value) = str(error).splitlines()[0], token.partition("=")
        twice = shlex.quote(f"{key}={json.dumps(value, ensure_ascii=False)}")
        raise ConfigError(
            f"{token}: not understood ({reason}). For a value with special characters, quote it for Hydra, and all of "
            f"it for the shell: {twice}"
        ) from None


def _plain(value: Any) -> Any:
    """Return a parsed value without Hydra's quotation marks."""
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(entry) for key, entry in value.items()}
    return value


def values(override: Override) -> list[Any]:
    """Return the values of an override in the written order, one if it is plain; a ConfigError if none or too many."""
    token, group, value = str(override.input_line), override.key_or_group, override.value()
    if getattr(value, "shuffle", False):
        raise ConfigError(f"{token}: remove shuffle(...); jobs run in the written order")
    if isinstance(value, ChoiceSweep):
        return [_plain(entry) for entry in value.list]
    if isinstance(value, Glob):
        if group not in GROUPS:
            raise ConfigError(f"{token}: glob(...) chooses files of a group, and {group} is not a group")
        if not (matches := value.filter(list(options(group)))):
            raise ConfigError(f"{token}: matches no choice; the choices are: {', '.join(options(group))}")
        return list(matches)
    if isinstance(value, IntervalSweep):
        raise ConfigError(f"{token}: an interval has no list of values; give values, choice(...) or range(...)")
    if not isinstance(value, RangeSweep):
        return [value]
    start, stop, step = value.start, value.stop, value.step
    if start is None or stop is None or not all(math.isfinite(number) for number in (start, stop, step)):
        raise ConfigError(f"{token}: a range needs finite ends and a finite step")
    if step == 0:
        raise ConfigError(f"{token}: a range cannot have a step of 0")
    count = math.ceil((Decimal(stop) - Decimal(start)) / Decimal(step))
    if count <= 0:
        raise ConfigError(f"{token}: the range is empty (the end of range(...) is exclusive)")
    if count > LARGEST_RANGE:
        raise ConfigError(f"{token}: {count:,} values exceed the limit of {LARGEST_RANGE:,}")
    return list(value.range())


def text_of(value: Any) -> str:
    """Return a value as a user would type it: text that Hydra would read as something else is quoted."""
    if isinstance(value, list):
        return f"[{','.join(map(text_of, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{text_of(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, str) and not _is_read_as(value):
        return '"' + value.replace('"', '\\"') + '"'
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _is_read_as(value: str) -> bool:
    try:
        read = parse(f"_={value}").value()
    except ConfigError:
        return False
    return isinstance(read, str) and read == value


def settings_of(override: Override, value: Any) -> list[tuple[str, Any]]:
    """Return a value of an override as (key, value) pairs: of a row several, else one; a ConfigError on other rows."""
    if override.key_or_group != ROWS:
        return [(override.key_or_group, value)]
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{override.input_line}: every row is a block of settings: {ROWS_FORM}")
    for key in map(str, value):
        if key in (ROWS, "seed") or key.startswith("hydra"):
            raise ConfigError(f"{override.input_line}: give {key}= beside rows=, not in a row")
    return [(str(key), entry) for key, entry in value.items()]
