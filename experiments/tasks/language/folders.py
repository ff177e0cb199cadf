"""Folders of exported models: whole or absent, with the digests of their files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.core.reading import digest
from ngn.files import FileError, remove_stale_files, system_error, temporary_path

SUMS = "SHA256SUMS"
"""The digests of the other files, in the form that ``sha256sum --check`` reads."""

READ = (".json", ".safetensors")
"""Suffixes of the files that hold a model. All of them are listed; other files may be added."""


class ExportError(FileError):
    """An export cannot be written or read, or does not reproduce the model."""


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that gets the name ``path``, with all of its files, if the block ends without an error.

    Of several processes with the same path one succeeds. What killed processes have left beside it is removed.

    Raises:
        ExportError: if ``path`` is there already, and is not an empty folder.
        OSError: if a file cannot be written.
    """
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and not (target.is_dir() and not os.listdir(target)):
        raise ExportError(_taken(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_files(target.parent)
    working = temporary_path(target)
    working.mkdir()
    try:
        try:
            yield working
            _seal(working)
        except OSError as fault:
            fault.filename = str(path)  # not the temporary name
            raise
        except Exception as fault:
            if "os error" not in str(fault):
                raise
            named = system_error(fault)  # safetensors and tokenizers have exceptions of their own for a full disk
            named.filename = str(path)
            raise named from None
        try:
            os.rename(working, target)
        except OSError:
            raise ExportError(_taken(path)) from None
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _seal(folder: Path) -> None:
    """Write the digests of the files in a folder, and flush all to the disk."""
    written = sorted(file for file in folder.rglob("*") if file.is_file())
    sums = "".join(f"{digest(file)}  {file.relative_to(folder).as_posix()}\n" for file in written)
    (folder / SUMS).write_text(sums)
    for place in (*written, folder / SUMS, folder):
        opened = os.open(place, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _taken(path: Path) -> str:
    return f"{path}: exists and is not an empty folder; remove it, or export to another folder"


def check_sums(folder: Path) -> None:
    """Check the files of an exported folder. Folders without digests are those of version 0.1.

    Raises:
        ExportError: if a file is missing or was changed.
    """
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as fault:
        raise ExportError(f"{folder / SUMS}: unreadable ({fault})") from None
    listed = {name: found for found, _, name in (line.partition("  ") for line in lines)}
    for name, found in listed.items():
        try:
            same = digest(folder / name) == found
        except (OSError, ValueError):  # ValueError: a name with a zero byte
            same = False
        if not same:
            raise ExportError(f"{folder / name}: missing, changed or damaged: {SUMS} does not match; export it again")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix in READ and name not in listed:
            raise ExportError(f"{path}: is not listed in {SUMS}, which is damaged, or the file is of another model")
