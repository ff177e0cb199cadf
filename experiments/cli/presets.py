"""Commands kept in a file: ``experiment=NAME`` on the command line, and own studies for ``scripts/sweep.py``.

# studies/prices.yaml
task: regression1d              # choices and settings, as on the command line
train.steps: 5000
seed: 0..2
sweep:                          # lists of values: all combinations are run
  schedule.lambda0: [1e-5, 1e-4, 1e-3]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.blocks import ConfigError
from experiments.cli.arguments import key_of, refuse_code
from experiments.cli.expand import Job, expand
from experiments.cli.rewrite import rewrite
from experiments.config.compose import file_of, nearest, options
from experiments.config.messages import read_yaml
from experiments.paths import RUNS
from experiments.runs.run_files import Run
from experiments.store.records import Store


def _word(value: Any) -> str:
    """A value of YAML as it is typed."""
    if isinstance(value, list):
        return f"[{','.join(map(_word, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_word(entry)}" for key, entry in value.items()) + "}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def tokens_of(path: Path) -> list[str]:
    """The overrides that a file stands for.

    Raises:
        ConfigError: naming the file, if it is none of this form.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    content = dict(read_yaml(path))
    swept = content.pop("sweep", None) or {}
    if not isinstance(swept, dict) or not all(isinstance(values, list) and values for values in swept.values()):
        raise ConfigError(f"{path}: below 'sweep:' stands a list of values for each key")
    return [f"{key}={_word(value)}" for key, value in content.items()] + [
        f"{key}={','.join(map(_word, values))}" for key, values in swept.items()
    ]


def written_out(overrides: Sequence[str]) -> list[str]:
    """A command in which ``experiment=NAME`` is replaced by what its file says and the command does not.

    Raises:
        ConfigError: on an unknown name, and on a file that is damaged.
    """
    names = [token.partition("=")[2] for token in overrides if key_of(token) == "experiment"]
    if not names:
        return list(overrides)
    known = options("experiment")
    if len(names) > 1 or names[0] not in known:
        hint = nearest(names[0], known)
        raise ConfigError(
            f"experiment={names[0]}: one of {', '.join(known)}, which are files of conf/experiment.{hint}"
        )
    typed = [token for token in overrides if key_of(token) != "experiment"]
    taken = {key_of(token).lstrip("+") for token in typed}
    return [token for token in tokens_of(file_of("experiment", names[0])) if key_of(token) not in taken] + typed


@dataclass(frozen=True)
class OwnStudy:
    """The runs of a file, as a :class:`experiments.studies.model.Study` has them; its records go to ``runs/``.

    Raises:
        ConfigError: as a command line would be refused, naming the file.
    """

    path: Path
    results: Path = RUNS

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.stem

    @property
    def title(self) -> str:
        """Where it is."""
        return str(self.path)

    @cached_property
    def jobs(self) -> list[Job]:
        """Every run, composed and checked."""
        tokens = tokens_of(self.path)
        for token in tokens:
            refuse_code(token)
        try:
            return expand(rewrite(tokens))
        except ConfigError as error:
            lists = [token.partition("=")[0] for token in tokens if "=[" in token]
            hint = f"\nIf {lists[0]} is to take these values in turn, write it below 'sweep:'." if lists else ""
            raise ConfigError(f"{self.path}: {error}{hint}") from None

    def runs(self, store: Store | None = None) -> Iterator[Run]:
        """Every run."""
        return (job.run for job in self.jobs)
