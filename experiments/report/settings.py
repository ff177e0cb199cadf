"""The settings of every task and gate of the studies, and the files of ``conf/`` whose comments give their origins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from experiments.analysis.selection import Selection
from experiments.config.compose import folders, options
from experiments.config.identity import identity_keys


@dataclass(frozen=True)
class Settings:
    """The settings of a task and gate under ``method=ngn schedule=paper``.

    Attributes:
        values: every key that a run's identity holds, as YAML.
        files: what they are merged from. A later file counts.
    """

    task: str
    gate: str
    values: str
    files: tuple[Path, ...]


def settings_of(selections: Iterable[Selection]) -> tuple[Settings, ...]:
    """Return the settings of each task and gate, in order of appearance."""
    configs = (selection.config(selection.seeds[0]) for selection in selections)
    pairs = dict.fromkeys((config.task.name, config.gate.component) for config in configs)
    return tuple(_settings(task, gate) for task, gate in pairs)


def _settings(task: str, gate: str) -> Settings:
    config = Selection.of({"task": task, "gate": gate, "method": "ngn", "schedule": "paper"}).config(0)
    model = "none" if config.model is None else config.model.name
    choices = {"task": task, "gate": gate, "model": model, "setting": f"{task}-{gate}", "method": "ngn"}
    files = folders()[0] / "config.yaml", *(options(group)[choice] for group, choice in choices.items())
    return Settings(task, gate, yaml.safe_dump(identity_keys(config), allow_unicode=True), files)
