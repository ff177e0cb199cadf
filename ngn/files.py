"""Files that are there whole or not at all."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
from pathlib import Path


class FileError(ValueError):
    """A file that is missing, damaged, foreign, or cannot be written; the message names it and the fault."""


@functools.lru_cache(maxsize=1)
def machine() -> str:
    """One boot of one machine, and one space of process numbers (containers have their own)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return platform.node()


def started(pid: int) -> str | None:
    """The tick at which a process of this machine was started, "" where that cannot be told, None if it is dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return ""
        return ""
    return None if fields[0] in "ZX" else fields[19]


def _writers() -> str:
    return hashlib.sha256(machine().encode()).hexdigest()[:12]


def temporary(path: Path) -> Path:
    """A name beside ``path`` for what becomes ``path``; it says which process of which machine is writing."""
    return path.with_name(f".{path.name}.{_writers()}-{os.getpid()}-{os.urandom(4).hex()}.part")


def sweep(folder: Path) -> None:
    """Remove the temporary files that processes of this machine, dead by now, have left in a folder."""
    for path in folder.glob(f".*.{_writers()}-*.part"):
        if started(int(path.name.split("-")[-2])) is None:
            path.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder in a file's place; nothing if there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def publish(path: Path, content: bytes, replace: bool = False) -> bool:
    """Give ``content`` the name ``path``, whole or not at all; whether this call did it.

    A temporary file in the same folder is written, flushed to the disk, and linked to its final name, which fails if
    the name is taken: of many processes exactly one succeeds. With ``replace`` an existing file is exchanged instead.
    """
    if not path.parent.is_dir():  # asking is cheaper than trying
        path.parent.mkdir(parents=True, exist_ok=True)
    written = temporary(path)
    try:
        with open(written, "xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        if replace:
            os.replace(written, path)
            done = True
        else:
            try:
                os.link(written, path)
                done = True
            except FileExistsError:
                done = False
    except OSError as fault:
        fault.filename = str(path)  # "no space left" alone does not say on what
        raise
    finally:
        written.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return done
