"""List the settings of every study from its composed configuration, each with its origin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from experiments.analysis.selection import Selection
from experiments.blocks import ConfigError
from experiments.config.compose import file_of
from experiments.config.identity import flatten, scientific
from experiments.config.messages import read_yaml
from experiments.contract.config import Config
from experiments.paths import CONF

PAPER, CHOSEN = "paper", "chosen"
_OF_THE_RUN = ("seed.value", "profile", "model", "model.name", "budget", "task.name", "gate.component", "method.name")
"""Keys that a table's title or a variant's name already says."""


@dataclass(frozen=True)
class Setting:
    """One key of a configuration. ``origin`` is ``paper`` or ``chosen``; ``source`` says where or how in a phrase."""

    key: str
    value: str
    origin: str
    source: str


@dataclass(frozen=True)
class Variant:
    """What the runs of a study change, compared with the table above them. ``runs`` counts every seed."""

    study: str
    changes: tuple[Setting, ...]
    runs: int


@dataclass(frozen=True)
class SettingsTable:
    """The standard settings of a task and gate, and the studies that differ from them.

    Attributes:
        like: an earlier table that differs in few settings; empty if there is none.
        shown: the settings that differ from ``like``; all settings if it is empty.
    """

    task: str
    gate: str
    settings: tuple[Setting, ...]
    variants: tuple[Variant, ...]
    like: str
    shown: tuple[Setting, ...]


Mark = tuple[str, str]
"""The origin that a comment gives: ``paper`` or ``chosen``, and a phrase, which may be empty."""


def _mark(comment: str) -> Mark | None:
    match = re.fullmatch(r"# (not from the )?paper(?:: (.+)|;.*)?", comment)
    return (CHOSEN if match[1] else PAPER, match[2] or "") if match else None


def _of_a_plugin(path: Path) -> bool:
    return not path.is_relative_to(CONF)


@cache
def marks(path: Path) -> Mapping[str, Mark]:
    """Dotted key → mark of the lines of a file: the comment behind a value, or above it, or behind its block's name.

    A line of a plug-in's file without a comment is not from the paper; its phrase names the file.
    """
    usual = (CHOSEN, f"{path.parent.name}/{path.name}") if _of_a_plugin(path) else None
    marked: dict[str, Mark] = {}
    block, of_block, above = "", None, None
    for line in path.read_text().splitlines():
        start, sharp, rest = line.partition("#")
        mark = _mark((sharp + rest).strip())
        entry = re.fullmatch(r"(  )?(\w+):(.*)", start.rstrip())
        if entry is None:
            above = mark
            continue
        indent, key, value = entry.groups()
        if indent is None and not value:
            block, of_block = key, mark
        else:
            own = mark or above or (of_block if indent else None) or usual
            if own is not None:
                marked[f"{block}.{key}" if indent else key] = own
        above = None
    return marked


def _files(config: Config) -> list[Path]:
    """Return the files that a configuration is merged from, the last first, without those that state no origins."""
    task, gate = config.task.name, config.gate.component
    chosen = (
        ("profile", config.profile),
        ("method", config.method.name),
        ("budget", config.budget),
        ("setting", f"{task}-{gate}"),
        ("model", "none" if config.model is None else config.model.name),
        ("gate", gate),
        ("task", task),
    )
    return [*(file_of(group, choice) for group, choice in chosen), CONF / "config.yaml"]


def _keys(path: Path) -> set[str]:
    """Return the dotted keys of a file, and of the blocks in it."""
    keys = flatten(read_yaml(path))
    return {".".join(parts[:n]) for parts in (key.split(".") for key in keys) for n in range(1, len(parts) + 1)}


def origin_of(key: str, config: Config) -> Mark:
    """Return (``paper`` or ``chosen``, phrase) for a dotted scientific key, from the comments of its files.

    The file that is merged last counts; where its mark has no phrase, that of an earlier file with the same mark holds.
    A key of a plug-in that stands in no file has the default of its settings class.

    Raises:
        ConfigError: if no file marks the key; the message names a file that sets it, and what to write there.
    """
    files = _files(config)
    parent = key.rpartition(".")[0]
    name = parent if parent.endswith("_shape") else "gate.kinds" if key.startswith("gate.kinds.") else key
    marked = [mark for path in files if (mark := marks(path).get(name)) is not None]
    phrases = [phrase for origin, phrase in marked if origin == marked[0][0] and phrase]
    if not phrases and any(map(_of_a_plugin, files)):
        return CHOSEN, "default"
    if not phrases:
        advice = "'# paper: where' or '# not from the paper: how'"
        setting = next((path for path in files if name in _keys(path)), files[-1])
        raise ConfigError(f"{setting}: '{name}' has no origin; write {advice} beside it")
    return marked[0][0], phrases[0]


def _shape(shape: Mapping[str, Any]) -> str:
    kind = str(shape["kind"])
    if kind == "power":
        return f"power {shape['power']:g}"
    if kind == "delayed_linear":
        return f"delayed linear, {shape['start']:g} to {shape['full']:g}"
    return kind


def value_text(value: Any) -> str:
    """Return a value as text: ``none`` for null, shapes of schedules in words."""
    if isinstance(value, Mapping) and "kind" in value:
        return _shape(value)
    if isinstance(value, Mapping):  # settings of kinds of groups
        own = {
            kind: [f"{key} {value_text(one)}" for key, one in keys.items() if one is not None]
            for kind, keys in value.items()
        }
        return "; ".join(f"{kind}: {', '.join(said)}" for kind, said in own.items())
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value_text(item) for item in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def used_keys(config: Config) -> dict[str, Any]:
    """Return dotted key → value for the keys that a run uses. The shape of a schedule is one value."""
    unused = config.method.unused
    found: dict[str, Any] = {}
    for block, content in scientific(config).items():
        entries = content if isinstance(content, Mapping) else {"": content}
        for name, value in entries.items():
            key = f"{block}.{name}" if name else block
            if key == "gate.kinds" and value is None:
                continue  # the groups of the model are alike
            if key not in unused and block not in unused:
                found[key] = value
    return found


def setting(config: Config, key: str, value: Any, text: str | None = None) -> Setting:
    """Make one line of a table."""
    leaf = f"{key}.kind" if isinstance(value, Mapping) else key
    return Setting(key, value_text(value) if text is None else text, *origin_of(leaf, config))


def _hashable(value: Any) -> Any:
    return tuple(sorted(flatten(value).items())) if isinstance(value, Mapping) else str(value)


def _spread(values: list[Any]) -> str:
    """Print several values of one key: a list if they are few, else their number and range."""
    if len(values) <= 6:
        return ", ".join(value_text(value) for value in values)
    try:
        ends = f"{value_text(min(values))} to {value_text(max(values))}"
    except TypeError:
        return f"{len(values)} values"
    return f"{len(values)} values, {ends}"


def _variants(study: str, base: Config, selections: Iterable[Selection]) -> list[Variant]:
    standard = used_keys(base)
    grouped: dict[tuple[str, ...], list[tuple[dict[str, Any], Config, int]]] = {}
    for selection in selections:
        config = selection.config(selection.seeds[0])
        keys = used_keys(config)
        changed = {key: value for key, value in keys.items() if standard.get(key) != value or key not in standard}
        for key in _OF_THE_RUN:
            if key != "method.name":
                changed.pop(key, None)
        # numbers that vary share one line; another method or shape of a schedule has its own
        kinds = tuple(
            f"{key}={_hashable(value)}" if not isinstance(value, (int, float)) else key
            for key, value in sorted(changed.items())
        )
        grouped.setdefault(kinds, []).append((changed, config, len(selection.seeds)))
    found = []
    for members in grouped.values():
        config = members[0][1]
        changes = []
        for key in members[0][0]:
            values = list({_hashable(changed[key]): changed[key] for changed, _, _ in members}.values())
            changes.append(setting(config, key, values[0], _spread(values) if len(values) > 1 else None))
        found.append(Variant(study, tuple(changes), sum(seeds for _, _, seeds in members)))
    return found


FEW = 12
"""A table that differs from an earlier one in at most so many settings shows only those."""


def _nearest(settings: tuple[Setting, ...], earlier: Iterable[SettingsTable]) -> tuple[str, tuple[Setting, ...]]:
    """Return the nearest table that is shown whole and has no further keys, and the settings that differ from it."""
    near = ("", settings)
    for table in earlier:
        differs = tuple(line for line in settings if line not in table.settings)
        if not table.like and {line.key for line in table.settings} <= {line.key for line in settings}:
            near = min(near, (f"{table.task}, {table.gate}", differs), key=lambda one: len(one[1]))
    return near if len(near[1]) <= FEW else ("", settings)


def settings_tables(studies: Mapping[str, Iterable[Selection]]) -> tuple[SettingsTable, ...]:
    """Make one table for each task and gate that a study uses, in order of appearance.

    Args:
        studies: name → selections; the standard settings are those of ``method=ngn schedule=paper``.
    """
    by_pair: dict[tuple[str, str], dict[str, list[Selection]]] = {}
    for name, selections in studies.items():
        for selection in selections:
            config = selection.config(selection.seeds[0])
            by_pair.setdefault((config.task.name, config.gate.component), {}).setdefault(name, []).append(selection)
    tables: list[SettingsTable] = []
    for (task, gate), used in by_pair.items():
        base = Selection.of({"task": task, "gate": gate, "method": "ngn", "schedule": "paper"}).config(0)
        lines = tuple(setting(base, key, value) for key, value in used_keys(base).items() if key not in _OF_THE_RUN)
        variants = [variant for name, selections in used.items() for variant in _variants(name, base, selections)]
        tables.append(SettingsTable(task, gate, lines, tuple(variants), *_nearest(lines, tables)))
    return tuple(tables)
