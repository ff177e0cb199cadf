"""Provenance of a record: the code, the machine and the packages.

The git commit names the code. A copied tree without git (on a cluster or a GPU machine) has a stamp file instead. The
stamp is written from a clean tree; it holds the commit and a digest of the sources, and counts only while the sources
match this digest.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from experiments.paths import ROOT
from experiments.plugins import conf_folder, plugin_folders
from experiments.store.record import CodeBlock

SOURCES = ("ngn", "conf", "experiments", "hydra_plugins", "run.py", "pyproject.toml", "constraints.txt")
"""Sources that can change a number. Changes elsewhere (records, docs, tests) leave the tree clean."""
STAMP = ROOT / "source_stamp.json"
PACKAGES = (
    "torch",
    "numpy",
    "hydra-core",
    "omegaconf",
    "torch-geometric",
    "torchvision",
    "transformers",
    "tokenizers",
    "peft",
)


@dataclass(frozen=True)
class Code:
    """The code that ran.

    Attributes:
        commit: None if unknown.
        clean: whether the sources equal those of the commit.
        source: where this information comes from.
    """

    commit: str | None
    clean: bool
    source: Literal["git", "stamp", "none"]


def source_files() -> list[Path]:
    """Return the source files, without caches, in a fixed order."""
    files: list[Path] = []
    for name in SOURCES:
        place = ROOT / name
        found = [place] if place.is_file() else place.rglob("*") if place.is_dir() else []
        files += [f for f in found if f.is_file() and "__pycache__" not in f.parts and f.suffix not in (".pyc", ".so")]
    return sorted(files)


def source_digest() -> str:
    """Return a SHA-256 over the names and contents of the source files."""
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


@functools.lru_cache(maxsize=1)
def code() -> Code:
    """Return the code as it was at the first call, which comes before any training of this process.

    With plug-ins, the code is not clean: no commit of this repository contains them.
    """
    tree = _code()
    return replace(tree, clean=tree.clean and not plugin_folders())


def _code() -> Code:
    top = _git("rev-parse", "--show-toplevel")
    if top is not None and Path(top.strip()).resolve() == ROOT:
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=all", "--", *SOURCES)
        return Code(commit.strip() if commit else None, commit is not None and changed == "", "git")
    if STAMP.is_file():
        stamp = json.loads(STAMP.read_text())
        return Code(stamp["commit"], stamp["sources"] == source_digest(), "stamp")
    return Code(None, False, "none")


def write_stamp() -> Path:
    """Write the stamp file of a clean checkout, for a copy of the tree without git history.

    Raises:
        RuntimeError: if the tree has uncommitted changes or is no git checkout.
    """
    now = code()
    if not now.clean or now.source != "git":
        raise RuntimeError("a stamp needs a clean git checkout: commit the sources first")
    STAMP.write_text(json.dumps({"commit": now.commit, "sources": source_digest()}, indent=1) + "\n")
    return STAMP


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


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """Return the processor, the visible cores and the operating system, but no host name."""
    return {"cpu": _processor(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


@functools.lru_cache(maxsize=1)
def _sources() -> str:
    return source_digest()


def training_identity(numerics: dict[str, int]) -> dict[str, Any]:
    """Return what must stay the same for an interrupted training to resume: sources, numerics versions and packages.

    A digest names the sources. After a commit of docs, trainings therefore resume; after an edit of the sources they do
    not, even if nobody committed it.
    """
    return {"sources": _sources(), "numerics": numerics, "packages": packages()}


@functools.lru_cache(maxsize=1)
def conf_digest() -> str | None:
    """Return a SHA-256 over the names and contents of the files of $NGN_CONF; None if it is not set."""
    folder = conf_folder()
    if folder is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*/*.yaml")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def code_block(numerics: dict[str, int]) -> CodeBlock:
    """Return the ``code`` block of a record."""
    made_by = code()
    return {"commit": made_by.commit, "clean": made_by.clean, "source": made_by.source, "numerics": numerics}
