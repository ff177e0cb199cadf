"""Parse seeds: ``3``, ``0..9`` (inclusive), ``0,2,5..7``, ``range(0,10)`` (exclusive), or a named set."""

from __future__ import annotations

import re
from pathlib import Path

from experiments.config.messages import read_yaml
from experiments.core.blocks import ConfigError

_SPAN = re.compile(r"^(-?\d+)\.\.(-?\d+)$")
_RANGE = re.compile(r"^range\((-?\d+)(?:,(-?\d+))?(?:,(-?\d+))?\)$")
_FORMS = "write one seed (3), an inclusive range (0..9), a list (0,2,5..7), range(0,10), or a named set"


class TooManySeeds(ConfigError):
    """More seeds than the limit. It is raised before listing them."""


def parse_seeds(text: str, limit: int = 10_000_000) -> list[int]:
    """Return the seeds in ``text``, in the written order.

    Raises:
        ConfigError: on other text, a negative seed, a reversed or empty range, or a repeated seed.
    """
    seeds: list[int] = []
    whole = _RANGE.match(text.replace(" ", ""))
    if whole:
        numbers = [int(part) for part in whole.groups() if part is not None]
        if len(numbers) == 3 and numbers[2] == 0:
            raise ConfigError(f"seed={text}: a range cannot have a step of 0")
        seeds = list(range(*numbers)[: limit + 1])
        if not seeds:
            raise ConfigError(f"seed={text}: the range is empty (its end is exclusive)")
    else:
        for part in text.split(","):
            part = part.strip()
            span = _SPAN.match(part)
            if span:
                first, last = int(span[1]), int(span[2])
                if last < first:
                    raise ConfigError(f"seed={text}: the range {part} is reversed; write {last}..{first}")
                if last - first >= limit:
                    raise TooManySeeds(f"seed={text}: the range {part} has more than {limit:,} seeds")
                seeds += range(first, last + 1)
            elif re.fullmatch(r"-?\d+", part):
                seeds.append(int(part))
            else:
                raise ConfigError(f"seed={text}: {part!r} is not a seed; {_FORMS}")
    if any(seed < 0 for seed in seeds):
        raise ConfigError(f"seed={text}: seeds start at 0")
    seen: set[int] = set()
    for seed in seeds:
        if seed in seen:
            raise ConfigError(f"seed={text}: seed {seed} occurs twice; give each seed once")
        seen.add(seed)
    return seeds


def looks_numeric(text: str) -> bool:
    """Return whether ``text`` is meant as numbers, not as the name of a set."""
    return bool(re.match(r"^\s*(-?\d|range\s*\()", text))


def named_sets(*folders: Path) -> dict[str, str]:
    """Return name → seeds of every file in ``seed/`` of the folders. A file has the form ``seed: {set: 0..9}``."""
    found: dict[str, str] = {}
    for path in sorted(path for folder in folders for path in (folder / "seed").glob("*.yaml")):
        block = read_yaml(path).get("seed")
        if not isinstance(block, dict) or "set" not in block:
            raise ConfigError(f"{path}: write a set of seeds as `seed: {{set: 0..9}}`")
        found[path.stem] = str(block["set"])
    return found
