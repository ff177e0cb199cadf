"""Move records between machines: pack them into archives of a limited size, and check them before unpacking.

Use it for a machine without git, such as a rented one. Copy the source tree with its stamp there
(:func:`experiments.store.provenance.write_stamp`), and bring archives of records back. Imports no torch.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from experiments.analysis.collect import fault_of
from experiments.blocks import visible
from experiments.config.identity import run_id
from experiments.config.schema import CheckedConfig
from experiments.paths import ROOT
from experiments.store.provenance import code
from experiments.store.records import CURVES, RecordError, Store, load_curves, parse, read_record
from ngn.files import open_regular, read_regular

MAX_MEMBER = 2**20
"""Largest size of an unpacked file, in bytes. Records have about 6 KiB, curves about 20 KiB."""


def records_of_commit(store: Store, commit: str) -> tuple[list[Path], list[str]]:
    """Return the records that clean code of a commit made, and a message for each damaged file."""
    records, damaged = [], []
    for path in store.paths():
        try:
            code = read_record(path)["code"]
        except RecordError as fault:
            damaged.append(str(fault))
            continue
        if code["commit"] == commit and code["clean"]:
            records.append(path)
    return records, damaged


def pack(store: Store, records: Iterable[Path], folder: Path, max_bytes: int) -> list[Path]:
    """Write records and their curves to ``records-0001.zip``, ... in ``folder``. Return the archives.

    A record and its curves go into the same archive. No archive is larger than ``max_bytes``.

    Raises:
        ValueError: if one record is too large for an archive.
    """
    parcels: list[list[tuple[Path, str]]] = []
    room = 0
    for path in records:
        files = [f for f in (store.curves_path(path.stem), path) if f.is_file()]
        parcel = [(f, f.relative_to(store.root).as_posix()) for f in files]
        # Store without compression: curves are compressed already, and the size is known before writing.
        size = sum(f.stat().st_size + 2 * len(name) + 128 for f, name in parcel)
        if size + 64 > max_bytes:
            raise ValueError(f"{path.name} needs {size} bytes, but an archive may have at most {max_bytes}")
        if size > room:
            parcels.append([])
            room = max_bytes - 64
        parcels[-1] += parcel
        room -= size
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("records-[0-9]*.zip"):
        old.unlink()
    archives = [folder / f"records-{n:04}.zip" for n in range(1, len(parcels) + 1)]
    for to, parcel in zip(archives, parcels, strict=True):
        with zipfile.ZipFile(to, "w", zipfile.ZIP_STORED) as archive:
            for file, name in parcel:
                archive.write(file, name)
    return archives


@dataclass
class UnpackReport:
    """What happened to the records of some archives.

    Attributes:
        counts: number of records by outcome: new, present (the same record existed) or refused.
        refused: (record, reason) of each refused record.
    """

    counts: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, name: str, why: str) -> None:
        """Add a refused record."""
        self.counts["refused"] += 1
        self.refused.append((visible(name), why))


def unpack(archives: Iterable[Path], store: Store) -> UnpackReport:
    """Unpack the records of archives into ``store``.

    A record is refused if it

    - is damaged or stale;
    - belongs to another run than its name says;
    - comes from changed code, or from a commit that this repository does not have;
    - differs from an existing record of the same run, which never changes.

    One run at a time is in memory.
    """
    taken = UnpackReport()
    for path in archives:
        try:
            with os.fdopen(open_regular(path, sys.maxsize), "rb") as file, zipfile.ZipFile(file) as archive:
                names = set(archive.namelist())
                for name in sorted(names):
                    if name.endswith(".json"):
                        _unpack_record(name, archive, store, taken)
                    elif not name.endswith(CURVES) or f"{name.removesuffix(CURVES)}.json" not in names:
                        taken.refuse(name, "belongs to no record of its archive")
        except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as fault:
            taken.refuse(str(path), f"damaged, or not an archive of records ({fault})")
    return taken


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        if archive.getinfo(name).file_size > MAX_MEMBER:
            raise ValueError("larger than any record or curve")
        return archive.read(name)
    except Exception as fault:  # a garbled file can raise any error
        raise RecordError(f"{visible(name)}: damaged ({fault})") from None


def _unpack_record(name: str, archive: zipfile.ZipFile, store: Store, taken: UnpackReport) -> None:
    """Write one record and its curves, or refuse them."""
    beside = name.removesuffix(".json") + CURVES
    try:
        content = _content(archive, name)
        record = parse(content, visible(name))
        config = CheckedConfig.model_validate(record["config"])
        curves = _content(archive, beside) if beside in archive.namelist() else None
        if curves is not None:
            load_curves(curves, visible(beside), record)
    except ValueError as fault:  # an error in the files, in the record's schema or in the configuration
        taken.refuse(name, str(fault).splitlines()[0])
        return
    path = store.path(record["run_id"])
    if record["run_id"] != run_id(config) or PurePosixPath(name) != PurePosixPath(path.relative_to(store.root)):
        taken.refuse(name, "holds another run than its name says")
        return
    if (problem := fault_of(record, config, name)) is not None:
        taken.refuse(name, problem.text)
        return
    if not _has_commit(record["code"]["commit"]):
        taken.refuse(name, f"was made by commit {record['code']['commit']}, which this repository does not have")
        return
    if store.put(record["run_id"], content, curves):
        taken.counts["new"] += 1
        return
    try:
        same = read_regular(path, MAX_MEMBER) == content
    except OSError as fault:
        taken.refuse(name, f"a record of this run is there, but cannot be read ({fault.strerror})")
        return
    if same:
        taken.counts["present"] += 1
    else:
        taken.refuse(name, "another record of this run exists already")


@functools.cache
def _has_commit(commit: str | None) -> bool:
    """Return whether this repository has the commit of a full hash, or this source archive is of it."""
    if commit is None or re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit) is None:
        return False
    if commit == code().commit:
        return True
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0
