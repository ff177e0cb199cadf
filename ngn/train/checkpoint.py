"""Checkpoints of a training: one file of tensors a step, with a digest, written atomically. The two newest are kept."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ngn.files import FileError, remove, remove_stale_files
from ngn.tensor_files import read_checked, write_checked

log = logging.getLogger(__name__)
Newest = tuple[int, dict[str, Tensor], dict[str, Any]] | None
"""The step, tensors and facts of a checkpoint."""
KEPT = 2
"""Number of checkpoints that are kept."""
_FACTS = "training"


def _checkpoints(folder: Path) -> list[Path]:
    """The files, the newest first."""
    return sorted(folder.glob("step-*.safetensors"), reverse=True)


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write the checkpoint of ``step``, then remove all but the newest :data:`KEPT`."""
    write_checked(folder / f"step-{step:010d}.safetensors", tensors, {_FACTS: json.dumps(dict(facts))})
    for old in _checkpoints(folder)[KEPT:]:
        remove(old)


def latest(folder: Path) -> Newest:
    """The newest usable checkpoint, None without one; removes newer files. It is an OSError if the disk fails."""
    remove_stale_files(folder)
    for path in _checkpoints(folder):
        try:
            tensors, metadata = read_checked(path)
            return int(path.stem.removeprefix("step-")), tensors, json.loads(metadata[_FACTS])
        except (FileError, FileNotFoundError, ValueError, KeyError, TypeError) as fault:
            log.warning("checkpoint %s cannot be used (%s); trying the one before", path, fault)
            remove(path)
    return None
