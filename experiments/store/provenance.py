"""Provenance of a record: the code, its sources and digests that tell whether they changed, the machine, the packages.

The git commit names the code. A tree without git names none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.core.blocks import visible
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


PACKAGES = (
    "torch",
    "numpy",
    "hydra-core",
    "omegaconf",
    "torch-geometric",
    "transformers",
    "tokenizers",
    "peft",
    "torchvision",
    "timm",
)


@dataclass(frozen=True)
class Code:
    """The code that ran.

    Attributes:
        commit: None if unknown.
        clean: whether the sources equal those of the commit.
        source: where this information comes from.
        changed: source files that differ from those of the commit, as far as known.
    """

    commit: str | None
    clean: bool
    source: Literal["git", "none"]
    changed: tuple[str, ...] = ()


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


@functools.lru_cache(maxsize=1)
def code() -> Code:
    """Return the code as it was at the first call, which comes before any training of this process.

    With plug-ins, the code is not clean: no commit of this repository contains them.
    """
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top.strip()).resolve() != ROOT:
        return Code(None, False, "none")
    commit = _git("rev-parse", "HEAD")
    status = _git("status", "--porcelain", "--untracked-files=all", "--", *SOURCES)
    clean = commit is not None and status == "" and not plugin_folders()
    return Code(commit and commit.strip(), clean, "git", tuple(line[3:] for line in (status or "").splitlines()))


def named(files: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")


def why_not_counted() -> str | None:
    """Return why no table of the paper will count runs of the present code, and what to do; None if they count."""
    now = code()
    if now.clean:
        return None
    if plugin_folders():
        return "runs with plug-ins ($NGN_PLUGINS) belong to no commit; scripts/table.py shows their records"
    if now.source == "none":
        return "this copy of the sources names no commit; use a git clone"
    return f"the sources have uncommitted changes ({named(now.changed)}); commit them first"


@functools.lru_cache(maxsize=1)
def packages() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that can change a number."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@functools.lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """Return the processor, the visible cores and the operating system, but no host name."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        cpu = visible(next(named, cpu))
    return {"cpu": cpu, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


@functools.cache
def changed_since(commit: str) -> list[str] | None:
    """Return the source files of training that differ from those of a commit; None if git does not know it."""
    listed = _git("diff", "--name-only", commit, "--", *SOURCES)
    return None if listed is None else [path for path in listed.splitlines() if trains(path)]


@functools.cache
def conf_digest(folder: Path) -> str:
    """Return a SHA-256 over the names and contents of the files of $NGN_CONF, as they were at the first call."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.glob("*/*.yaml") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(read_regular(path, 2**24) + b"\0")
    return digest.hexdigest()
