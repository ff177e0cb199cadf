"""Commands in a file: ``experiment=NAME`` on the command line, and your own studies for ``scripts/sweep.py``.

# studies/prices.yaml
task: regression1d              # choices and settings, as on the command line
train.steps: 5000
seed: 0..2
sweep:                          # lists of values: every combination is one run
  gate.t0: [1e-4, 4]
rows:                           # settings that vary together: every row with every combination
- {schedule.lambda0: 1e-5, schedule.alpha_max: 1e-5}
- {schedule.lambda0: 1e-4, schedule.alpha_max: 1e-4}
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cli.arguments import key_of
from experiments.cli.overrides import ROWS, text_of
from experiments.config.compose import nearest, options
from experiments.config.identity import flatten
from experiments.config.messages import read_yaml
from experiments.core.blocks import ConfigError

ROWS_YAML = "rows: [{schedule.lambda0: 1e-5, schedule.alpha_max: 1e-5}, {...}]"


def _word(value: Any) -> str:
    """Return a YAML value as a user would type it; text may be any form of the command line, such as ``0..9``."""
    return value if isinstance(value, str) else text_of(value)


def _default(path: Path, entry: Any) -> str:
    """Return an entry of Hydra's ``defaults:`` as a choice: ``{override /task: cora}`` as ``task=cora``."""
    name, choice = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else ("", None)
    if not str(name).startswith("override ") or not isinstance(choice, str):
        raise ConfigError(f"{path}: an entry of 'defaults:' is a choice of a group: `- override /task: cora`")
    return f"{name.removeprefix('override ').strip().lstrip('/')}={choice}"


def tokens_of(path: Path) -> list[str]:
    """Return the overrides in a file.

    Raises:
        ConfigError: if the file is missing or does not have this form.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    content = dict(read_yaml(path))
    swept, rows = content.pop("sweep", None) or {}, content.pop(ROWS, None) or []
    defaults, hydra = content.pop("defaults", None) or [], flatten(content.pop("hydra", None) or {})
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row for row in rows):
        raise ConfigError(f"{path}: 'rows:' needs a list of settings that vary together: {ROWS_YAML}")
    if isinstance(swept, list):
        raise ConfigError(f"{path}: rows of settings that vary together go below 'rows:': {ROWS_YAML}")
    if not isinstance(swept, dict) or not all(isinstance(values, list) and values for values in swept.values()):
        raise ConfigError(f"{path}: every key below 'sweep:' needs a list of values, such as [1, 2]")
    several = {**swept, ROWS: rows} if rows else swept
    params, single = "sweeper.params.", dict[str, Any]()
    for key, value in content.items():
        single |= {f"{key}.{name}": entry for name, entry in value.items()} if isinstance(value, dict) else {key: value}
    for key, value in hydra.items():
        single[key.removeprefix(params) if key.startswith(params) else f"hydra.{key}"] = value
    return [
        *(_default(path, entry) for entry in defaults if entry != "_self_"),
        *(f"{key}={_word(value)}" for key, value in single.items()),
        *(f"{key}={','.join(map(_word, values))}" for key, values in several.items()),
    ]


def expand_experiment(overrides: Sequence[str]) -> list[str]:
    """Replace ``experiment=NAME`` by the overrides of its file. Overrides of the command have precedence.

    Raises:
        ConfigError: on an unknown name or a damaged file.
    """

    chosen = [token for token in overrides if key_of(token) == "experiment"]  # Hydra's users write +experiment
    names = [token.partition("=")[2] for token in chosen]
    if not names:
        return list(overrides)
    known = options("experiment")
    if len(names) > 1 or names[0] not in known:
        hint = nearest(names[0], list(known))
        raise ConfigError(f"experiment={names[0]}: must be one file of conf/experiment: {', '.join(known)}.{hint}")
    typed = [token for token in overrides if token not in chosen]
    taken = {*map(key_of, typed)}
    return [token for token in tokens_of(known[names[0]]) if key_of(token) not in taken] + typed
