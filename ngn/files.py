"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


class FileError(ValueError):
    """A file that is missing, damaged, foreign, or cannot be written; the message names it and the fault."""


def publish(path: Path, content: bytes, replace: bool = False) -> bool:
    """Give ``content`` the name ``path``, whole or not at all; whether this call did it.

    A temporary file in the same folder is written, flushed to the disk, and linked to its final name, which fails if
    the name is taken: of many processes exactly one succeeds. With ``replace`` an existing file is exchanged instead.
    """
    if not path.parent.is_dir():  # asking is cheaper than trying
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with open(temporary, "xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        if replace:
            os.replace(temporary, path)
            done = True
        else:
            try:
                os.link(temporary, path)
                done = True
            except FileExistsError:
                done = False
    except OSError as fault:
        fault.filename = str(path)  # "no space left" alone does not say on what
        raise
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return done
