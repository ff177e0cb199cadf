"""Atomic files: each file is complete or absent."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

NAME_BYTES = 200
"""Bytes of a file's name that the name of its temporary file keeps. File systems allow names of 255 bytes."""


class FileError(ValueError):
    """A file is missing, damaged, of another program, or cannot be written; the message names it and the fault."""


@functools.lru_cache(maxsize=1)
def _machine_digest() -> str:
    """Identify this boot of this machine and its process numbers (each container has its own)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine = f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        machine = platform.node()
    return hashlib.sha256(machine.encode()).hexdigest()[:12]


def _is_dead(pid: int) -> bool:
    """Whether no process of this machine has this number, but for one that has ended and that nobody waits for."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    try:
        os.kill(pid, 0)
    except OSError as fault:
        return isinstance(fault, ProcessLookupError)
    return False


def temporary_path(path: Path) -> Path:
    """The name of a temporary file beside ``path``; it contains the machine and the process that write it."""
    start = os.fsdecode(os.fsencode(path.name)[:NAME_BYTES])
    return path.with_name(f".{start}.{_machine_digest()}-{os.getpid()}-{os.urandom(4).hex()}.part")


def remove_stale_files(folder: Path) -> None:
    """Remove the temporary files that dead processes of this machine have left in a folder, if it is there."""
    ours = re.compile(rf"\..*\.{_machine_digest()}-(\d+)-[0-9a-f]{{8}}\.part", re.DOTALL)
    for name in os.listdir(folder) if folder.is_dir() else ():
        match = ours.fullmatch(name)
        if match is not None and _is_dead(int(match[1])):
            with contextlib.suppress(OSError):  # another process sweeps at the same time, or the folder is read-only
                remove(folder / name)


def chosen_file(path: str | Path) -> Path:
    """The file that a path names, through a link; an OSError for links in a circle, for a folder and a device."""
    file = Path(os.path.realpath(path))
    if os.path.lexists(file) and not stat.S_ISREG(file.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "exists and is no ordinary file", str(path))
    return file


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder; do nothing if there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | Callable[[Path], object], replace: bool = False) -> bool:
    """Write ``content``, or what it writes to the path that it is given, to ``path``; return whether this call did it.

    The content goes to a temporary file in the same folder, is flushed to the disk, and is linked to its final name.
    The link fails if the name is taken, so that of many processes exactly one succeeds; with ``replace`` it is
    replaced.
    """
    if not path.parent.is_dir():  # cheaper than mkdir
        path.parent.mkdir(parents=True, exist_ok=True)
    if replace and os.path.lexists(path) and not (path.is_symlink() or path.is_file()):  # a device, say
        raise FileExistsError(errno.EEXIST, "exists and is no ordinary file", str(path))
    written = temporary_path(path)
    try:
        if callable(content):
            content(written)
        else:
            written.write_bytes(content)
        with open(written, "rb") as out:
            os.fsync(out.fileno())
        if done := replace:
            os.replace(written, path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(written, path)
                done = True
    except OSError as fault:
        fault.filename = str(path)  # "no space left" alone does not name the file
        raise
    finally:
        with contextlib.suppress(OSError):  # on a read-only disk; `remove_stale_files` removes what is left elsewhere
            written.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return done


def system_error(fault: Exception) -> OSError:
    """The OSError behind an exception of safetensors, which gives the system's error code in its text only."""
    code = re.search(r"os error (\d+)", str(fault))
    return OSError(int(code[1]), os.strerror(int(code[1]))) if code else OSError(errno.EIO, str(fault))
