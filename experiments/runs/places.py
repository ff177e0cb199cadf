"""Where a run's record, models and checkpoints go; what is in ``RESULTS`` came with the suite."""

from __future__ import annotations

import hashlib
from pathlib import Path

from experiments.config.identity import run_id
from experiments.config.schema import Config
from experiments.paths import RUNS, SCRATCH
from experiments.runs.stack import Stack
from experiments.store.provenance import code
from experiments.store.records import Store


def results_root(config: Config) -> Path:
    """Where the record of a run goes: as configured; else ``runs/`` for a full run of a clean tree, else scratch."""
    if config.results is not None:
        return Path(config.results).expanduser()
    real = config.profile == "full" and code().clean
    return RUNS if real else SCRATCH / "results"


def model_of(config: Config, phase: str) -> Path:
    """Where the truncated model of a phase is kept, beside the record."""
    return Store(results_root(config)).path(run_id(config)).with_suffix(f".{phase}.safetensors")


def checkpoints() -> Path:
    """The folder that holds one folder per stack."""
    return SCRATCH / "checkpoints"


def checkpoints_named(name: str, root: Path) -> Path:
    """Where the stack of this name keeps its checkpoints; records of another folder are another training.

    The name may be a pattern, for all stacks whose records go to ``root``.
    """
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]
    return checkpoints() / f"{name}-{digest}"


def checkpoints_of(stack: Stack) -> Path:
    """Where a stack keeps its checkpoints."""
    return checkpoints_named(stack.id, results_root(stack.first))
