"""Provenance of a record: the code, the machine and the packages.

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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.core.blocks import visible
from experiments.core.paths import ROOT
from experiments.core.plugins import plugin_folders
from experiments.core.reading import read_regular
from experiments.store.sources import SOURCES, trains

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
