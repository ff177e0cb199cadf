"""Files that are read with care: regular ones of a limited size; and what a fault of the disk means, in one line."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from pathlib import Path


def open_regular(path: str | Path, largest: int) -> int:
    """Open a regular file of at most ``largest`` bytes for reading. Return its descriptor, which the caller closes.

    A pipe without a writer would block the usual open, and a device may have no end.

    Raises:
        OSError: if it cannot be opened, is no regular file, or is larger.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            code = errno.EISDIR if stat.S_ISDIR(facts.st_mode) else errno.EINVAL
            raise OSError(code, "is no regular file", str(path))
        if facts.st_size > largest:
            raise OSError(errno.EFBIG, f"has {facts.st_size} bytes, more than the limit of {largest}", str(path))
    except OSError:
        os.close(file)
        raise
    return file


def read_regular(path: str | Path, largest: int) -> bytes:
    """Return the content of a regular file of at most ``largest`` bytes.

    Raises:
        OSError: as :func:`open_regular`.
    """
    file = open_regular(path, largest)
    try:
        content = b""
        # usually two calls; a file may also grow, and one of /proc does not tell its size
        while block := os.read(file, max(os.fstat(file).st_size - len(content), 0) + 2**12):
            content += block
            if len(content) > largest:
                raise OSError(errno.EFBIG, f"has more bytes than the limit of {largest}", str(path))
        return content
    finally:
        os.close(file)


_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "name a folder that can be written",
    errno.EACCES: "name a folder that can be written, or change its permissions",
    errno.EPERM: "name a folder that can be written, or change its permissions",
}
_PLACES = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO)


def storage_fault(fault: OSError) -> str | None:
    """Say in one line which file cannot be read or written, why, and what to do; None if it is another fault."""
    reason = fault.strerror or str(fault)
    if fault.errno in _ADVICE:
        what = "read or written" if fault.errno in (errno.EACCES, errno.EPERM) else "written"
        return f"{fault.filename or 'the output'}: cannot be {what} ({reason}); {_ADVICE[fault.errno]}"
    if fault.errno in _PLACES and fault.filename is not None:
        return f"{fault.filename}: cannot be read or written ({reason})"
    return None


def digest(path: Path) -> str:
    """SHA-256 of a file, read in blocks."""
    with os.fdopen(open_regular(path, sys.maxsize), "rb") as stored:
        return hashlib.file_digest(stored, "sha256").hexdigest()


def contents_digest(path: str | Path) -> str:
    """The digest of the tensors and metadata of a file, which does not depend on the order in which it was written.

    Raises:
        FileError, OSError: as :func:`~ngn.tensor_files.read_checked`.
    """
    from ngn.tensor_files import read_checked, tensors_digest  # imports torch

    return tensors_digest(*read_checked(path))
