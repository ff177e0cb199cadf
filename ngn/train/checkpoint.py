"""Checkpoints: written whole or not at all, checked when loaded, the one before kept.

A checkpoint is a safetensors file and, written after it, a small JSON file with its SHA-256 and what is not a tensor.
Without the JSON file a checkpoint does not exist; with a tensor file that does not match, the one before is taken.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from ngn.files import FileError, publish

log = logging.getLogger(__name__)
KEPT = 2


class CheckpointError(FileError):
    """There are checkpoints, but none that can be used."""


class StorageError(FileError):
    """A file could not be written: the disk is full, the folder read-only, a quota used up."""


def save(folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write the checkpoint of ``step`` and remove all but the newest two."""
    content = safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    publish(folder / f"step-{step:010d}.safetensors", content, replace=True)
    described = {"step": step, "sha256": hashlib.sha256(content).hexdigest(), "meta": meta}
    publish(folder / f"step-{step:010d}.json", json.dumps(described).encode(), replace=True)
    for old in sorted(folder.glob("step-*.json"))[:-KEPT]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def latest(folder: Path) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """Step, tensors and meta of the newest sound checkpoint; None if there is none at all.

    Raises:
        CheckpointError: if there are checkpoints and every one is damaged.
    """
    candidates = sorted(folder.glob("step-*.json"), reverse=True)
    for described in candidates:
        try:
            facts = json.loads(described.read_text())
            content = described.with_suffix(".safetensors").read_bytes()
            if hashlib.sha256(content).hexdigest() != facts["sha256"]:
                raise ValueError("its digest does not match")
            return int(facts["step"]), safetensors.torch.load(content), dict(facts["meta"])
        except (OSError, ValueError, KeyError, TypeError) as fault:
            log.warning("checkpoint %s cannot be used (%s); trying the one before", described.with_suffix(""), fault)
    if candidates:
        raise CheckpointError(f"no checkpoint in {folder} is sound; remove the folder to start again")
    return None


def remove(folder: Path) -> None:
    """Remove a folder of checkpoints that are no longer needed."""
    shutil.rmtree(folder, ignore_errors=True)
