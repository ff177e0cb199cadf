"""The sources behind a number, and digests that tell whether they changed. Imports no torch."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from experiments.core.paths import RESULTS, ROOT
from experiments.core.plugins import plugin_folders
from experiments.core.reading import digest, read_regular
from ngn.files import write_atomically

SOURCES = ("ngn", "conf", "experiments", "hydra_plugins", "run.py", "pyproject.toml", "constraints.txt")
"""The sources of the suite. Changes elsewhere (records, docs, tests) leave the tree clean."""
READERS = ("analysis", "studies", "runs/sweeps", "report", "cli")
"""Parts of ``experiments/`` that name runs or read records. No training imports them."""
TRAINING = ("ngn", "conf", "experiments")
PLUGIN = "plug-in "
KEPT = ".sources"
"""Folder beside records with the digests of each file, to name the files that changed since."""


def combined_digest(parts: Mapping[str, str]) -> str:
    """Return one sha256 over named digests. Their order does not matter."""
    return hashlib.sha256("".join(f"{name}\0{parts[name]}\n" for name in sorted(parts)).encode()).hexdigest()


def _files(place: Path) -> Iterator[Path]:
    """Yield a file, or all files in a folder, without caches."""
    for path in [place] if place.is_file() else place.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".so"):
            yield path


def trains(path: str) -> bool:
    """Return whether a source file, by its path in the checkout, can change a number."""
    top, _, rest = path.partition("/")
    return top in TRAINING and not (top == "experiments" and rest.startswith(tuple(f"{part}/" for part in READERS)))


@functools.lru_cache(maxsize=1)
def training_digests() -> dict[str, str]:
    """Return path → sha256 of the source files that can change a number, as they were at the first call."""
    files = sorted(path for name in SOURCES for path in _files(ROOT / name))
    named = ((path.relative_to(ROOT).as_posix(), path) for path in files)
    return {name: digest(path) for name, path in named if trains(name)}


@functools.lru_cache(maxsize=1)
def plugin_digests() -> dict[str, str]:
    """Return path → sha256 of the modules and the configuration in the folders of $NGN_PLUGINS; empty without any.

    Tables, figures and studies of one's own are left out: they train nothing, and may come after the runs.
    """
    digests = {}
    for folder in plugin_folders():
        for path in sorted(path for path in _files(folder) if path.suffix in (".py", ".yaml")):
            name = path.relative_to(folder)
            if name.parts[0] not in READERS:
                digests[f"{PLUGIN}{folder.name}/{name.as_posix()}"] = digest(path)
    return digests


def made_by() -> dict[str, str]:
    """Return one sha256 over the source files that can change a number and, if there are plug-ins, one over them."""
    parts = {"sources": training_digests(), "plugins": plugin_digests()}
    return {name: combined_digest(files) for name, files in parts.items() if files or name == "sources"}


def keep_digests(results: Path) -> None:
    """Write the digests of the present files beside records. The commit tells those of the suite's own records."""
    path = results / KEPT / f"{combined_digest({'plugins': '', **made_by()})[:16]}.sha256"
    if results.resolve() != RESULTS and not path.exists():
        files = training_digests() | plugin_digests()
        write_atomically(path, "".join(f"{digest}  {name}\n" for name, digest in files.items()).encode())


def changed_files(results: Path, sources: str, plugins: str | None) -> list[str] | None:
    """Return the files that changed since a record was made; None if nothing is kept about its files.

    A plug-in that came later is none of them: a further task or method changes no run of the others.

    Args:
        results: folder of the record.
        sources, plugins: the digests in the record.
    """
    kept = combined_digest({"sources": sources, "plugins": plugins or ""})
    try:
        lines = read_regular(results / KEPT / f"{kept[:16]}.sha256", 2**24).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    then = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    now = training_digests() | plugin_digests()
    later = {name for name in now.keys() - then.keys() if name.startswith(PLUGIN)}
    return sorted(name for name in (then.keys() | now.keys()) - later if then.get(name) != now.get(name))
