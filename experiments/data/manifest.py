"""Read and write the manifest of a data set whose files are not the official ones: digests and provenance.

``<data root>/<name>/manifest.json`` holds ``{"provenance": text, "files": {path below that folder: sha256}}``.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from experiments.core.blocks import control_in
from experiments.core.reading import digest, read_regular
from experiments.data.errors import DataError
from experiments.store.records import strict_json
from ngn.files import remove_stale_files, write_atomically

FILE = "manifest.json"
MAX_BYTES = 2**26
"""A larger file is no manifest, and is not read."""
MAX_PROVENANCE = 500
"""Characters. Every record of 6 KiB at most holds this text."""


@dataclass(frozen=True)
class DataManifest:
    """Digests (hexadecimal sha256 by path, with ``/`` as separator) and a text on where the files come from."""

    provenance: str
    files: dict[str, str]


def checked_provenance(text: object, where: str) -> str:
    """Return the text on one line.

    Raises:
        DataError: if it is not a string, is empty, has a control character, or more than 500 characters.
    """
    line = " ".join(text.split()) if isinstance(text, str) else ""
    if not line:
        raise DataError(f"{where}: the provenance must say where the files come from")
    if (character := control_in(line)) is not None:
        raise DataError(f"{where}: the provenance has the control character {character}; write it without")
    if len(line) > MAX_PROVENANCE:
        raise DataError(f"{where}: the provenance has {len(line)} characters, more than {MAX_PROVENANCE}")
    return line


def read_manifest(path: Path) -> DataManifest | None:
    """Return the manifest, or None if there is none.

    Raises:
        DataError: if the file is unreadable or not of the form above.
    """
    try:
        content = strict_json(read_regular(path, MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as fault:
        raise DataError(f"{path}: unreadable ({fault})") from None
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict):
        raise DataError(f'{path}: must be an object with "provenance" and "files"')
    for name, listed in files.items():
        if not isinstance(listed, str) or not re.fullmatch(r"[0-9a-f]{64}", listed):
            raise DataError(f"{path}: the entry for {name} is not a sha256 (64 lower-case hexadecimal digits)")
    return DataManifest(checked_provenance(content.get("provenance"), str(path)), files)


def write_manifest(path: Path, manifest: DataManifest) -> None:
    """Write the manifest atomically; it replaces an existing one."""
    line = checked_provenance(manifest.provenance, str(path))
    text = json.dumps({"provenance": line, "files": dict(sorted(manifest.files.items()))}, indent=1)
    remove_stale_files(path.parent)
    write_atomically(path, text.encode() + b"\n", replace=True)


def manifest_of(folder: Path, provenance: str) -> DataManifest:
    """Return the manifest of all files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return DataManifest(provenance, {path.relative_to(folder).as_posix(): digest(path) for path in files})


def install_with_manifest(provenance: str, new: Path, folder: Path) -> None:
    """Write a manifest of the files of ``new`` (same file system) to ``folder``, and move them there."""
    # The manifest comes first: a reader in between would refuse files that it does not list.
    write_manifest(folder / FILE, manifest_of(new, provenance))
    for path in new.iterdir():
        os.replace(path, folder / path.name)
