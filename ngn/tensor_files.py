"""Files of tensors with a digest: safetensors, with the SHA-256 of their content in the metadata. Checkpoints."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from ngn.files import FileError, chosen_file, remove, remove_stale_files, system_error, temporary_path, write_atomically

DIGEST = "sha256"
HEXADECIMAL = re.compile("[0-9a-f]{64}")
"""A digest, also if the name of its key was damaged."""
log = logging.getLogger(__name__)
Newest = tuple[int, dict[str, Tensor], dict[str, Any]] | None
"""The step, tensors and facts of a checkpoint."""
KEPT = 2
"""Number of checkpoints of a training that are kept."""


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of ``state_dict``, a tied one once."""
    seen: set[int] = set()
    tensors = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            seen.add(id(value))
            tensors[name] = value
    return tensors


def digest_of(tensors: Mapping[str, Tensor], known: dict[Any, Tensor]) -> Tensor:
    """SHA-256 of tensors by name, uint8 [32]; ``known`` holds that of the last call until one of them changes."""
    versions = tuple((name, id(p), p._version, p.data_ptr(), p.dtype) for name, p in tensors.items())
    if versions not in known:
        known.clear()
        digest = hashlib.sha256()
        for name, p in tensors.items():
            digest.update(f"{name} {tuple(p.shape)} {p.dtype}".encode())
            p = p.full_tensor() if hasattr(p, "full_tensor") else p
            digest.update(p.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        known[versions] = torch.tensor(list(digest.digest()), dtype=torch.uint8)
    return known[versions]


def tensors_digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 over metadata and the names, types, shapes and bytes of tensors. Their order does not matter."""
    content = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        content.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        content.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return content.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write or replace a file of safetensors atomically, without a copy in memory; equal contents give equal bytes."""

    def write(to: Path) -> None:
        place = temporary_path(path)  # safetensors writes a temporary file of its own into this folder
        place.mkdir()
        try:
            contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            safetensors.torch.save_file(contiguous, place / "tensors", metadata)
            _sort_metadata(place / "tensors")
            to.touch()  # safetensors makes files that only their owner can read; take the usual permissions
            os.chmod(place / "tensors", to.stat().st_mode)
            os.replace(place / "tensors", to)
        except safetensors.SafetensorError as fault:
            raise system_error(fault) from fault
        finally:
            shutil.rmtree(place)

    write_atomically(path, write, replace=True)


def _sort_metadata(path: Path) -> None:
    """Sort the metadata of a file of safetensors, which writes them in a random order."""
    with open(path, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        if len(metadata := header.get("__metadata__", {})) > 1:
            header["__metadata__"] = dict(sorted(metadata.items()))
            content = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
            if len(content) <= length:  # else some character is written in a longer way than there
                file.seek(8)
                file.write(content.ljust(length))


def write_checked(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors with their digest to a file or link; remove what killed processes have left in the folder."""
    file = chosen_file(path)
    remove_stale_files(file.parent)
    entries = dict(metadata or {})
    write_tensors(file, tensors, {**entries, DIGEST: tensors_digest(tensors, entries)})


def read_checked(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file. If it holds a digest, they must match it.

    Files of version 0.1 of ``ngn.save``, and those of other programs, have none. It is a :class:`FileError` if the file
    is damaged, or not one of safetensors.
    """
    content = Path(path).read_bytes()
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as fault:
        raise FileError(f"{path} is no file of safetensors, or is damaged ({fault}); write it again") from None
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    written = metadata.pop(DIGEST, next(filter(HEXADECIMAL.fullmatch, metadata.values()), None))
    if written is not None and written != tensors_digest(tensors, metadata):
        raise FileError(f"{path} was changed or damaged: its SHA-256 does not match; write it again")
    return tensors, metadata


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write the checkpoint of ``step``, then remove all but the newest :data:`KEPT`."""
    write_checked(folder / f"step-{step:010d}.safetensors", tensors, {"training": json.dumps(dict(facts))})
    for old in sorted(folder.glob("step-*.safetensors"))[:-KEPT]:
        remove(old)


def latest_checkpoint(folder: Path) -> Newest:
    """The newest usable checkpoint, None without one; removes newer files. It is an OSError if the disk fails."""
    remove_stale_files(folder)
    for path in sorted(folder.glob("step-*.safetensors"), reverse=True):
        try:
            tensors, metadata = read_checked(path)
            return int(path.stem.removeprefix("step-")), tensors, json.loads(metadata["training"])
        except (FileError, FileNotFoundError, ValueError, KeyError, TypeError) as fault:
            log.warning("checkpoint %s cannot be used (%s); trying the one before", path, fault)
            remove(path)
    return None
