"""A run and the paths of its files: record, models, checkpoints. Imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.config.identity import run_id
from experiments.core.config import Config
from experiments.core.paths import RUNS, SCRATCH
from experiments.store.provenance import code
from experiments.store.records import Store


@dataclass(frozen=True)
class Run:
    """A configuration with its run id and its folder. Both are computed once, so pass a ``Run`` on, not its parts.

    Attributes:
        config: the checked configuration.
        id: its name, :func:`~experiments.config.identity.run_id`.
    """

    config: Config
    id: str

    @staticmethod
    def of(config: Config) -> Run:
        """Make the run of a configuration."""
        return Run(config, run_id(config))

    def with_execution(self, **settings: Any) -> Run:
        """Return the run with other execution settings, which are no part of its identity: ``results``, ``force``."""
        return Run(self.config.model_copy(update=settings), self.id)

    @cached_property
    def root(self) -> Path:
        """The folder of the records: ``results=``, or ``runs/`` for a full run of a clean tree, or scratch."""
        if self.config.results is not None:
            return Path(self.config.results).expanduser()
        return RUNS if self.config.profile == "full" and code().clean else SCRATCH / "results"

    @cached_property
    def path(self) -> Path:
        """The file of the record."""
        return Store(self.root).path(self.id)

    def model_file(self, phase: str) -> Path:
        """Return the file of a phase's truncated model, beside the record."""
        return self.path.with_suffix(f".{phase}.safetensors")


def runs_of(configs: Iterable[Config]) -> list[Run]:
    """Make the runs of several configurations."""
    return [Run.of(config) for config in configs]


def checkpoints_named(name: str, root: Path) -> Path:
    """Return the folder of checkpoints of the stack ``name`` whose records go to ``root``.

    ``name`` may be a glob pattern. Stacks with records in different folders never share checkpoints.
    """
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]
    return SCRATCH / "checkpoints" / f"{name}-{digest}"
