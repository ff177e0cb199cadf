"""Where a record's numbers come from: the code, the machine, the packages.

The code is named by its git commit. Where git is absent (a copied tree on a cluster or a GPU machine), a stamp file
written from a clean tree names the commit and the digest of the sources; it counts only while the sources match it.
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
"""What can change a number: a change elsewhere (records, documents, tests) does not make the tree dirty."""
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
    """The code that ran: its commit (None if unknown), whether the sources were that commit's, and who says so."""

    commit: str | None
    clean: bool
    source: Literal["git", "stamp", "none"]


def source_files() -> list[Path]:
    """The source files, without caches, in a fixed order."""
    files: list[Path] = []
    for name in SOURCES:
        place = ROOT / name
        found = [place] if place.is_file() else place.rglob("*") if place.is_dir() else []
        files += [f for f in found if f.is_file() and "__pycache__" not in f.parts and f.suffix not in (".pyc", ".so")]
    return sorted(files)


def source_digest() -> str:
    """SHA-256 over the names and contents of the source files."""
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
    """The code as it was when this process first asked, which is before it trained anything.

    With plug-ins it is not clean: no commit of this repository says what they compute.
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
    """Write the stamp file of a clean checkout, to travel with a copy of the tree that has no git history.

    Raises:
        RuntimeError: if the tree is dirty or no git checkout.
    """
    now = code()
    if not now.clean or now.source != "git":
        raise RuntimeError("a stamp is written from a clean git checkout: commit the sources first")
    STAMP.write_text(json.dumps({"commit": now.commit, "sources": source_digest()}, indent=1) + "\n")
    return STAMP


@functools.lru_cache(maxsize=1)
def packages() -> dict[str, str]:
    """Versions of the installed packages that can change a number, and Python's own."""
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
    """Processor, visible cores and operating system; no host name."""
    return {"cpu": _processor(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


@functools.lru_cache(maxsize=1)
def _sources() -> str:
    return source_digest()


def training_identity(numerics: dict[str, int]) -> dict[str, Any]:
    """What must be the same for an interrupted training to be resumed: sources, numerics and packages.

    The sources are named by their content. So a commit of documents lets trainings go on, and an edit that was never
    committed does not.
    """
    return {"sources": _sources(), "numerics": numerics, "packages": packages()}


@functools.lru_cache(maxsize=1)
def conf_digest() -> str | None:
    """SHA-256 over the names and contents of the files of $NGN_CONF; None where it is not set."""
    folder = conf_folder()
    if folder is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*/*.yaml")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def code_block(numerics: dict[str, int]) -> CodeBlock:
    """The ``code`` block of a record."""
    made_by = code()
    return {"commit": made_by.commit, "clean": made_by.clean, "source": made_by.source, "numerics": numerics}
