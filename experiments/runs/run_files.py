"""A run and its files: its record, its models, its checkpoints. No torch is imported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.config.identity import run_id
from experiments.contract.config import Config
from experiments.paths import RUNS, SCRATCH
from experiments.store.provenance import code
from experiments.store.records import Store


@dataclass(frozen=True)
class Run:
    """A configuration with its name and its folder, each found once: pass it on instead of the configuration.

    Attributes:
        config: the checked configuration.
        id: its name, :func:`~experiments.config.identity.run_id`.
    """

    config: Config
    id: str

    @staticmethod
    def of(config: Config) -> Run:
        """Name a configuration."""
        return Run(config, run_id(config))

    def carried_out(self, **settings: Any) -> Run:
        """Change settings that are no part of its identity, such as ``results`` or ``force``."""
        return Run(self.config.model_copy(update=settings), self.id)

    @cached_property
    def root(self) -> Path:
        """The folder of its record: as configured; else ``runs/`` for a full run of a clean tree, else scratch."""
        if self.config.results is not None:
            return Path(self.config.results).expanduser()
        return RUNS if self.config.profile == "full" and code().clean else SCRATCH / "results"

    @cached_property
    def store(self) -> Store:
        """The records of that folder."""
        return Store(self.root)

    @cached_property
    def path(self) -> Path:
        """The file of its record."""
        return self.store.path(self.id)

    def model_file(self, phase: str) -> Path:
        """The file of the truncated model of a phase, beside the record."""
        return self.path.with_suffix(f".{phase}.safetensors")


def runs_of(configs: Iterable[Config]) -> list[Run]:
    """Name several configurations."""
    return [Run.of(config) for config in configs]


def checkpoints() -> Path:
    """The folder that holds one folder per stack."""
    return SCRATCH / "checkpoints"


def checkpoints_named(name: str, root: Path) -> Path:
    """Where the stack of this name keeps its checkpoints; records of another folder are another training.

    The name may be a pattern, for all stacks whose records go to ``root``.
    """
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]
    return checkpoints() / f"{name}-{digest}"
