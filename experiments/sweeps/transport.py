"""Records on their way between machines: packed into archives of a limited size, and checked before they are taken in.

For a machine without git, such as one that is rented for a while: a copy of the tree with its stamp goes there
(:func:`experiments.store.provenance.write_stamp`), archives of records come back. Imports no torch.
"""

from __future__ import annotations

import functools
import io
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from experiments.analysis.collect import fault_of
from experiments.config.identity import run_id
from experiments.config.schema import CheckedConfig
from experiments.paths import ROOT
from experiments.store.records import CURVES, RecordError, Store, load_curves, parse, read

MAX_MEMBER = 2**20
"""Bytes of an unpacked member at most: records have some 6 KiB, curves some 20 KiB."""


def made_by(store: Store, commit: str) -> tuple[list[Path], list[str]]:
    """The records of a folder that clean code of that commit has made, and what is wrong with damaged files."""
    records, damaged = [], []
    for path in store.paths():
        try:
            code = read(path)["code"]
        except RecordError as fault:
            damaged.append(str(fault))
            continue
        if code["commit"] == commit and code["clean"]:
            records.append(path)
    return records, damaged


def pack(store: Store, records: Iterable[Path], folder: Path, max_bytes: int) -> list[Path]:
    """Write records and their curves to ``records-0001.zip``, ... in ``folder``; the archives.

    A record and its curves are in the same archive, none of which is larger than ``max_bytes``.

    Raises:
        ValueError: if a single record does not fit.
    """
    parcels: list[list[tuple[Path, str]]] = []
    room = 0
    for path in records:
        files = [f for f in (store.curves_path(path.stem), path) if f.exists()]
        parcel = [(f, f.relative_to(store.root).as_posix()) for f in files]
        # Stored, not deflated: curves are packed already, and so the size is known before anything is written.
        size = sum(f.stat().st_size + 2 * len(name) + 128 for f, name in parcel)
        if size + 64 > max_bytes:
            raise ValueError(f"{path.name} takes {size} bytes, an archive {max_bytes} at most")
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
class Taken:
    """What became of the records of some archives.

    Attributes:
        counts: by outcome: new, present (the same record was there), refused.
        refused: (record, why) of those that were not taken.
    """

    counts: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, name: str, why: str) -> None:
        """Note a record that is not taken."""
        self.counts["refused"] += 1
        self.refused.append((name, why))


def unpack(archives: Iterable[Path], store: Store) -> Taken:
    """Take in the records of archives.

    None that is damaged, stale, of another run than its name says, of changed code or of a commit that this repository
    does not have. A record that is there already is never changed; another one of the same run is refused. One run is
    in memory at a time.
    """
    taken = Taken()
    for path in archives:
        try:
            with zipfile.ZipFile(path) as archive:
                names = set(archive.namelist())
                for name in sorted(names):
                    if name.endswith(".json"):
                        _take(name, archive, store, taken)
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
    except Exception as fault:  # whatever a garbled member makes the unpacking raise
        raise RecordError(f"{name}: damaged ({fault})") from None


def _take(name: str, archive: zipfile.ZipFile, store: Store, taken: Taken) -> None:
    """Write one record and its curves, or note why not."""
    beside = name.removesuffix(".json") + CURVES
    try:
        content = _content(archive, name)
        record = parse(content, name)
        config = CheckedConfig.model_validate(record["config"])
        curves = _content(archive, beside) if beside in archive.namelist() else None
        if curves is not None:
            load_curves(io.BytesIO(curves), beside)
    except ValueError as fault:  # of the files, of the record's schema or of the configuration's
        taken.refuse(name, str(fault).splitlines()[0])
        return
    path = store.path(record["run_id"])
    if record["run_id"] != run_id(config) or PurePosixPath(name) != PurePosixPath(path.relative_to(store.root)):
        taken.refuse(name, "holds another run than its name says")
        return
    if (problem := fault_of(record, config, name)) is not None:
        taken.refuse(name, problem.text)
        return
    if not _known(record["code"]["commit"]):
        taken.refuse(name, f"was made by commit {record['code']['commit']}, which this repository does not have")
        return
    if store.put(record["run_id"], content, curves):
        taken.counts["new"] += 1
    elif path.read_bytes() == content:
        taken.counts["present"] += 1
    else:
        taken.refuse(name, "another record of this run is there already")


@functools.cache
def _known(commit: str | None) -> bool:
    """Whether this repository has the commit, by its full name."""
    if commit is None or re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit) is None:
        return False
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0
