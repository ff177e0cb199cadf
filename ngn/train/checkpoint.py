"""Checkpoints: written whole or not at all, checked when loaded, the one before kept.

A checkpoint is a safetensors file and, written after it, a small JSON file with the digest of the tensors and what is
not a tensor. Such a file is sealed: it holds the SHA-256 of all that it says, and the identity of the training that
wrote it (which code, which engine). Without the JSON file a checkpoint does not exist; where a digest does not match,
the one before is taken; what another identity has left does not count. torch is imported where tensors are: what only
looks at sealed files does without.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from ngn import files
from ngn.files import FileError, publish

if TYPE_CHECKING:
    import torch
    from torch import Tensor

log = logging.getLogger(__name__)
KEPT = 2
REMOVED = ".removed"
"""Ends the name of a folder that is being removed."""
_SEAL = "seal"
DAMAGE = (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError)
"""What a damaged file makes reading raise."""

Identity = Mapping[str, Any] | None
"""What must be the same for a training to be resumed, such as the commit, in JSON's types; None: no demand."""


class CheckpointError(FileError):
    """There are checkpoints, but none that can be used."""


class StorageError(FileError):
    """A file could not be written: the disk is full, the folder read-only, a quota used up."""


class OtherIdentityError(FileError):
    """A file is of another training; the message says what differs."""


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def write_sealed(path: Path, facts: Mapping[str, Any], identity: Identity) -> None:
    """Write ``facts`` (in JSON's types, string keys) with their identity and a digest over both."""
    whole = {**facts, "identity": dict(identity or {})}
    publish(path, json.dumps({**whole, _SEAL: _digest(whole)}).encode(), replace=True)


def read_sealed(path: Path, identity: Identity) -> dict[str, Any]:
    """What :func:`write_sealed` has written.

    Raises:
        OtherIdentityError: if it was written under another identity.
        OSError, ValueError, KeyError, TypeError, RecursionError: if it is missing or damaged.
    """
    facts = dict(json.loads(path.read_bytes()))
    before, now = facts.get("identity", {}), dict(identity or {})
    if identity is not None and before != now:
        differing = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        said = "; ".join(f"{key} was {before.get(key)} and is {now.get(key)}" for key in differing)
        raise OtherIdentityError(f"{path} is of another training: {said}")
    if facts.pop(_SEAL) != _digest(facts):
        raise ValueError(f"the digest of {path.name} does not match")
    return facts


def _name(step: int) -> str:
    """Of the files of a checkpoint, without their endings; they sort as steps do."""
    return f"step-{step:010d}"


def save(folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any], identity: Identity = None) -> None:
    """Write the checkpoint of ``step`` and remove all but the newest two."""
    content = folder / f"{_name(step)}.safetensors"
    files.publish_tensors(content, tensors)
    described = {"step": step, "sha256": files.digest(content), "meta": meta}
    write_sealed(folder / f"{_name(step)}.json", described, identity)
    for old in sorted(folder.glob("step-*.json"))[:-KEPT]:
        _discard(old)


def latest(folder: Path, identity: Identity = None) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """Step, tensors and meta of the newest sound checkpoint; None if there is none.

    Those of another identity, and damaged ones, are passed over, and a warning says why. Nothing is removed.
    """
    import safetensors.torch

    for described in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            facts = read_sealed(described, identity)
            content = described.with_suffix(".safetensors")
            if files.digest(content) != facts["sha256"]:
                raise ValueError("its digest does not match")
            return int(facts["step"]), safetensors.torch.load_file(content), dict(facts["meta"])
        except OtherIdentityError as other:
            log.warning("%s; not taken up", other)
        except DAMAGE as fault:
            if isinstance(fault, OSError) and not isinstance(fault, (FileNotFoundError, IsADirectoryError)):
                raise  # the disk, or the network, which may be well again
            log.warning("checkpoint %s cannot be used (%s); trying the one before", described.with_suffix(""), fault)
    return None


def remove_later(folder: Path, step: int | None) -> None:
    """Remove the checkpoints of later steps than ``step``, all of them for None.

    A training that goes on from ``step`` calls it first: :func:`latest` has passed them over, and would take them for
    newer than those that are still to be written.
    """
    for described in folder.glob("step-*.json"):
        if step is None or described.stem > _name(step):
            _discard(described)


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Where torch's global generators are, from which a model may draw (dropout); for checkpoints."""
    import torch

    state = {"random.cpu": torch.get_rng_state()}
    return state if device.type != "cuda" else state | {"random.cuda": torch.cuda.get_rng_state(device)}


def put_random_state(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    """Let the generators go on from :func:`random_state`."""
    import torch

    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def _discard(described: Path) -> None:
    files.remove(described)
    files.remove(described.with_suffix(".safetensors"))


def remove(folder: Path) -> None:
    """Remove a folder of checkpoints that are no longer needed; it is gone at once, even if this process is killed."""
    gone = folder.with_name(f"{folder.name}{REMOVED}")
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.replace(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
