"""Checkpoints: written atomically and checked when loaded.

A checkpoint is two files:

- a safetensors file with the tensors;
- a JSON file, written after it, with the SHA-256 of the tensors and everything that is not a tensor.

The JSON file is *sealed*: it also holds its own SHA-256, and the identity (code, engine) of the training that wrote it.

The two newest checkpoints are kept. :func:`latest` skips checkpoints without a JSON file, damaged ones, and those of
another identity. Functions import torch only if they handle tensors, so that sealed files can be read without it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from experiments.core import reading
from ngn import files
from ngn.files import FileError, write_atomically

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)
KEPT = 2
"""Number of checkpoints that are kept."""
CURVES = "curves.json"
"""Beside the checkpoints of a training: its curves so far."""
REMOVED = ".removed"
"""End of the name of a folder that is being removed."""
MAX_SEALED_BYTES = 2**30
"""A larger file is no sealed one, and is not read."""
_SEAL = "seal"
_NO_FILE = (errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EFBIG)
DAMAGE = (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError)
"""Exceptions from reading a damaged file."""

Identity = Mapping[str, Any] | None
"""Facts that must not change before a training is resumed, such as the commit, in JSON's types. None allows changes."""


class OtherIdentityError(FileError):
    """Another training wrote the file; the message says what differs."""


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def write_sealed(path: Path, facts: Mapping[str, Any], identity: Identity) -> None:
    """Write ``facts`` (JSON types, string keys) with the identity and a SHA-256 over both."""
    whole = {**facts, "identity": dict(identity or {})}
    write_atomically(path, json.dumps({**whole, _SEAL: _digest(whole)}).encode(), replace=True)


def read_sealed(path: Path, identity: Identity) -> dict[str, Any]:
    """Return the facts that :func:`write_sealed` wrote, with the key "identity".

    Raises:
        OtherIdentityError: if the file has another identity.
        OSError, ValueError, KeyError, TypeError, RecursionError: if the file is missing or damaged.
    """
    facts = dict(json.loads(reading.read_regular(path, MAX_SEALED_BYTES)))
    before, now = facts.get("identity", {}), dict(identity or {})
    if identity is not None and before != now:
        differing = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        differences = "; ".join(f"{key} was {before.get(key)} and is now {now.get(key)}" for key in differing)
        raise OtherIdentityError(f"{path} was written by a different training: {differences}")
    if facts.pop(_SEAL) != _digest(facts):
        raise ValueError(f"{path.name} was changed or damaged: its SHA-256 does not match")
    return facts


def _name(step: int) -> str:
    """Name of a checkpoint's files, without extension; sorting names sorts steps."""
    return f"step-{step:010d}"


def save(folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any], identity: Identity = None) -> None:
    """Write the checkpoint of ``step``, then remove all but the newest :data:`KEPT`."""
    from ngn.tensor_files import write_tensors

    write_tensors(file := folder / f"{_name(step)}.safetensors", tensors)
    write_sealed(file.with_suffix(".json"), {"step": step, "sha256": reading.digest(file), "meta": meta}, identity)
    for old in sorted(folder.glob("step-*.json"))[:-KEPT]:
        files.remove(old)
        files.remove(old.with_suffix(".safetensors"))


def latest(folder: Path, identity: Identity = None) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """Return step, tensors and meta of the newest usable checkpoint; None if there is none.

    Skips checkpoints of another identity and damaged ones, and logs a warning for each. Removes nothing.

    Raises:
        OSError: if the disk cannot be read; the checkpoints may be intact.
    """
    import safetensors.torch

    for described in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            facts = read_sealed(described, identity)
            content = described.with_suffix(".safetensors")
            if reading.digest(content) != facts["sha256"]:
                raise ValueError(f"{content.name} was changed or damaged: its SHA-256 does not match")
            return int(facts["step"]), safetensors.torch.load_file(content), dict(facts["meta"])
        except OtherIdentityError as other:
            log.warning("checkpoint skipped: %s", other)
        except DAMAGE as fault:
            if isinstance(fault, OSError) and fault.errno not in _NO_FILE:
                raise  # a fault of the disk or the network, which may be temporary
            log.warning("checkpoint %s cannot be used (%s); trying the one before", described.with_suffix(""), fault)
    return None


def remove_newer(folder: Path, step: int | None) -> None:
    """Remove the checkpoints of steps after ``step``, all of them if it is None, and what killed processes left.

    Call it before you resume: :func:`save` keeps the highest steps, which would be those that :func:`latest` skipped.
    """
    files.remove_stale_files(folder)
    for path in sorted(folder.glob("step-*")):  # a JSON file before its tensors
        if step is None or path.stem > _name(step) or not path.with_suffix(".json").exists():
            files.remove(path)


def remove(folder: Path) -> None:
    """Remove a folder of checkpoints. It is renamed first, so that its name never refers to a half-empty folder."""
    gone = folder.with_name(f"{folder.name}{REMOVED}")
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.replace(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
