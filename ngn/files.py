"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


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
            with contextlib.suppress(FileNotFoundError):  # others sweep, too
                remove(path)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder in a file's place; nothing if there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def publish(path: Path, content: bytes | Callable[[Path], object], replace: bool = False) -> bool:
    """Give ``content`` the name ``path``, whole or not at all; whether this call did it.

    A temporary file in the same folder is written, flushed to the disk, and linked to its final name, which fails if
    the name is taken: of many processes exactly one succeeds. With ``replace`` an existing file is exchanged instead.

    Args:
        content: the bytes, or what writes them into a file whose name it is given.
    """
    if not path.parent.is_dir():  # asking is cheaper than trying
        path.parent.mkdir(parents=True, exist_ok=True)
    written = temporary(path)
    try:
        if callable(content):
            content(written)
        else:
            written.write_bytes(content)
        with open(written, "rb") as out:
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


def publish_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """:func:`publish` tensors as safetensors, in place of what is there, without a second copy of them in memory.

    Raises:
        OSError: if the file cannot be written.
    """
    import safetensors.torch  # needs torch, which readers of other files do without

    def write(to: Path) -> None:
        place = temporary(path)  # the library has a temporary file of its own, which lies in here
        place.mkdir()
        try:
            alone = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            safetensors.torch.save_file(alone, place / path.name, metadata)
            to.touch()  # the library's files are for their owner alone; this one is as any other
            os.chmod(place / path.name, to.stat().st_mode)
            os.replace(place / path.name, to)
        except safetensors.SafetensorError as fault:  # what was wrong with the disk is in its text alone
            code = re.search(r"os error (\d+)", str(fault))
            raise OSError(int(code[1]) if code else errno.EIO, str(fault)) from fault
        finally:
            shutil.rmtree(place)

    publish(path, write, replace=True)


def digest(path: Path) -> str:
    """SHA-256 of a file, which is not read at once."""
    with open(path, "rb") as stored:
        return hashlib.file_digest(stored, "sha256").hexdigest()
