"""Rewrite a command for Hydra: its file, seeds such as ``seed=0..9``, and the ``gate=`` and ``model=`` of a task.

A file has a command: ``experiment=NAME`` on the command line, and your own studies for ``scripts/sweep.py``.

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

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cli.arguments import key_of
from experiments.cli.expand import first_job
from experiments.cli.overrides import LARGEST_RANGE, ROWS, parse, text_of, values
from experiments.config.compose import DEFAULT_CHOICES, nearest, options, require_choice, usual_gate
from experiments.config.identity import flatten
from experiments.config.messages import read_yaml
from experiments.core.blocks import ConfigError
from experiments.tasks import GATES_OF_TASK, TASKS

VERBOSE = "hydra.verbose=[experiments,ngn]"
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
    """Return the overrides in a file; a ConfigError if it is missing or does not have this form."""
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
    """Add the overrides of ``experiment=NAME`` whose keys are not typed; a ConfigError on an unknown name or file."""

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


def seeds_of(text: str) -> list[int]:
    """Return the seeds of ``seed=<text>``, in the written order.

    The forms are 3, 0..9 (inclusive), range(0,10) (exclusive), the name of a set, and lists such as 0,2,5..7 or ten,20.

    Raises:
        ConfigError: on other text, on negative and repeated seeds, and on more than LARGEST_RANGE.
    """
    sets, seeds, parts = options("seed"), list[int](), text.split(",")
    for at, path in ((at, sets[part.strip()]) for at, part in enumerate(parts) if part.strip() in sets):
        block = read_yaml(path).get("seed")
        if not isinstance(block, dict) or "set" not in block:
            raise ConfigError(f"{path}: write a set of seeds as `seed: {{set: 0..9}}`")
        parts[at] = str(block["set"])
    for word in map(str, values(parse(f"seed={','.join(parts)}"))):
        span = re.fullmatch(r"(-?\d+)(?:\.\.(-?\d+))?", word)
        if span is None:
            raise ConfigError(
                f"seed={text}: {word!r} is neither a seed nor a named set.{nearest(word, list(sets))} The sets are: "
                f"{', '.join(sets)}. Write numbers as 3, 0..9, 0,2,5..7 or range(0,10)"
            )
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first:
            raise ConfigError(f"seed={text}: the range {word} is reversed; write {last}..{first}")
        if last - first + len(seeds) >= LARGEST_RANGE:
            raise ConfigError(f"seed={text}: more than {LARGEST_RANGE:,} seeds")
        seeds += range(first, last + 1)
    if min(seeds) < 0:
        raise ConfigError(f"seed={text}: seeds start at 0")
    if len({*seeds}) < len(seeds):
        twice = next(seed for at, seed in enumerate(seeds) if seed in seeds[:at])
        raise ConfigError(f"seed={text}: seed {twice} occurs twice; give each seed once")
    return seeds


def seed_token(seeds: Sequence[int]) -> str:
    """Return the Hydra override for these seeds; consecutive seeds become a range."""
    if len(seeds) == 1:
        return f"seed.value={seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seed.value=range({seeds[0]},{seeds[-1] + 1})"
    return "seed.value=" + ",".join(map(str, seeds))


def _usual(tokens: Sequence[str]) -> list[str]:
    """Return ``gate=`` and ``model=`` where the tasks need them and none is typed; a ConfigError if they share none."""
    typed = {key_of(token): token for token in tokens}
    chosen = {key: [*map(str, values(parse(typed[key])))] for key in ("task", "model", "profile") if key in typed}
    tasks = chosen.get("task", ())
    for task in tasks:
        require_choice("task", task)
    added, start = [], f"task={','.join(tasks)}: "
    if tasks and "gate" not in typed:
        common = [gate for gate in GATES_OF_TASK[tasks[0]] if all(gate in GATES_OF_TASK[task] for task in tasks)]
        if not common:
            fits = "; ".join(f"{task}: {', '.join(GATES_OF_TASK[task])}" for task in tasks)
            raise ConfigError(f"{start}no gate fits all of these tasks ({fits}). Use one command per task")
        usual = {usual_gate(tasks[0], model) for model in chosen.get("model", ["none"])} & {*common}
        added.append(f"gate={usual.pop() if len(usual) == 1 else common[0]}")
    if tasks and "model" not in typed:
        smoke = {profile == "smoke" for profile in chosen.get("profile", [DEFAULT_CHOICES["profile"]])}
        needed = {"none" if small else TASKS[task].usual_model for task in tasks for small in smoke}
        if len(needed) > 1:
            names = ", ".join(sorted(needed))
            raise ConfigError(f"{start}the jobs need different models ({names}). Use one command per task")
        added += [f"model={name}" for name in needed - {"none"}]
    return added


def rewrite(overrides: Sequence[str]) -> list[str]:
    """Write seeds as ``seed.value``, add the task's gate and model; a ConfigError if a key is wrong, or there twice."""
    tokens: list[str] = []
    seen: dict[str, str] = {}
    for typed in overrides:
        token, key = typed, typed.partition("=")[0].strip()
        if token.replace(" ", "").lower() == "hydra.verbose=true":
            token = VERBOSE  # "true" would also show the search for Hydra's plugins, and every package's own log
        if key.lstrip("+~") == "seed" and key != "seed":
            raise ConfigError(f"{token}: write seed=... without a prefix")
        if key == "seed" and "=" not in token:
            raise ConfigError(f"{token}: write seed=3, seed=0..9, seed=0,2,5..7, seed=range(0,10) or seed=ten")
        if key == "seed":
            token = seed_token(seeds_of(token.split("=", 1)[1].strip()))
        key = key_of(token)
        if key in seen:
            raise ConfigError(f"{key} is given twice: {seen[key]} and {typed}")
        seen[key] = typed
        tokens += first_job([token]) if key == ROWS and not parse(token).is_sweep_override() else [token]
    return [*tokens, *_usual(tokens)]


def completion_line(line: str) -> str:
    """Rewrite a line under completion, if it is understood, so that Hydra can compose all words but the last."""
    words = line.split()
    last = [] if line.endswith(" ") or not words else [words.pop()]
    program = [word for word in words if "=" not in word]
    settings = [word for word in words if "=" in word and key_of(word) != "seed"]
    try:
        settings = first_job(rewrite(settings))
    except ConfigError:
        return line
    return " ".join([*program, *settings, *last]) + ("" if last else " ")
