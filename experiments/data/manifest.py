"""The manifest of a data set that is not the official one bit by bit: what its files are, and where they come from.

``<data root>/<name>/manifest.json`` holds ``{"provenance": text, "files": {path below that folder: sha256}}``.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from experiments.data.errors import DataError
from ngn.files import digest, publish

FILE = "manifest.json"
MAX_PROVENANCE = 500
"""Characters; the text goes into every record, which has 6 KiB."""


@dataclass(frozen=True)
class Manifest:
    """Digests (hexadecimal sha256 by path, ``/`` as separator) and a text that says where the files come from."""

    provenance: str
    files: dict[str, str]


def checked_provenance(text: object, where: str) -> str:
    """The text on one line.

    Raises:
        DataError: if it is no text, empty, or longer than 500 characters.
    """
    line = " ".join(text.split()) if isinstance(text, str) else ""
    if not line:
        raise DataError(f"{where}: the provenance must be a text that says where the files come from")
    if len(line) > MAX_PROVENANCE:
        raise DataError(f"{where}: the provenance has {len(line)} characters, more than {MAX_PROVENANCE}")
    return line


def read(path: Path) -> Manifest | None:
    """The manifest, or None if there is none.

    Raises:
        DataError: if it is there and unreadable or not of the form above.
    """
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as fault:
        raise DataError(f"{path}: unreadable ({fault})") from None
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict):
        raise DataError(f'{path}: must be an object with "provenance" and "files"')
    for name, listed in files.items():
        if not isinstance(listed, str) or not re.fullmatch(r"[0-9a-f]{64}", listed):
            raise DataError(f"{path}: the entry of {name} is no sha256 (64 lower-case hexadecimal digits)")
    return Manifest(checked_provenance(content.get("provenance"), str(path)), files)


def write(path: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all, in place of one that is there."""
    line = checked_provenance(manifest.provenance, str(path))
    text = json.dumps({"provenance": line, "files": dict(sorted(manifest.files.items()))}, indent=1)
    publish(path, text.encode() + b"\n", replace=True)


def of(folder: Path, provenance: str) -> Manifest:
    """A manifest of all the files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return Manifest(provenance, {path.relative_to(folder).as_posix(): digest(path) for path in files})


def install(new: Path, listed: Manifest, folder: Path) -> None:
    """Move what is in the folder ``new``, of the same file system, to ``folder``, with the manifest of it."""
    # The manifest first: files that it does not list yet would be refused by a reader that comes in between.
    write(folder / FILE, listed)
    for path in new.iterdir():
        os.replace(path, folder / path.name)
