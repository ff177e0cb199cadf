"""The commit of a source archive, as ``git archive`` and the download of a code host make it. Imports no torch.

While it packs, git replaces the placeholders in ``archive.txt`` by the hashes of the commit and of its tree
(``export-subst`` in ``.gitattributes``). The tree's hash covers every file, so it shows whether the unpacked files are
those of the commit.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

NAMED = Path(__file__).with_name("archive.txt")
PLACEHOLDERS = b"$Format:%H %T$\n"
"""The content of the file in the repository, which the hash of the tree covers."""
TOP = {
    ".ci", ".dockerignore", ".gitattributes", ".github", ".gitignore", "CHANGELOG.md", "CITATION.cff",
    "CONTRIBUTING.md", "Containerfile", "LICENSE", "Makefile", "README.md", "benchmarks", "conf", "constraints.txt",
    "docs", "examples", "experiments", "hydra_plugins", "lock.txt", "ngn", "paper", "pyproject.toml", "results",
    "run.py", "scripts", "tests",
}  # fmt: skip
"""The names at the top of the repository. Whatever else is there (an environment, data, own files) does not count."""


def archived() -> tuple[str, str] | None:
    """Return the hashes of the commit and of its tree; None in a checkout, where git has replaced nothing."""
    named = re.fullmatch(r"([0-9a-f]{40,64}) ([0-9a-f]{40,64})\n", NAMED.read_text())
    return (named[1], named[2]) if named else None


def tree_hash(root: Path, algorithm: str = "sha1") -> str:
    """Return git's hash of the tree below ``root``, without the files that ``.gitignore`` names.

    Args:
        algorithm: "sha1", or "sha256" for repositories with long hashes.
    """
    ignored = _ignored(root)

    def entry(path: Path) -> tuple[bytes, bytes, bytes] | None:
        """Return (mode, name, hash) of a file or folder; None for an empty folder, which git does not keep."""
        if path.is_dir():
            content, mode = folder(sorted(path.iterdir())), b"40000"
            return (mode, path.name.encode(), _object(b"tree", content, algorithm)) if content else None
        content = PLACEHOLDERS if path.relative_to(root) == NAMED.relative_to(NAMED.parents[2]) else path.read_bytes()
        mode = b"100755" if path.stat().st_mode & 0o100 else b"100644"
        return mode, path.name.encode(), _object(b"blob", content, algorithm)

    def folder(paths: list[Path]) -> bytes:
        """Return the content of a tree object. Git sorts folders as if their names ended in a slash."""
        entries = [found for path in paths if not ignored(path) and (found := entry(path)) is not None]
        entries.sort(key=lambda found: found[1] + (b"/" if found[0] == b"40000" else b""))
        return b"".join(mode + b" " + name + b"\0" + digest for mode, name, digest in entries)

    return _object(b"tree", folder([path for path in root.iterdir() if path.name in TOP]), algorithm).hex()


def _object(kind: bytes, content: bytes, algorithm: str) -> bytes:
    return hashlib.new(algorithm, kind + b" %d\0" % len(content) + content, usedforsecurity=False).digest()


def _ignored(root: Path) -> Callable[[Path], bool]:
    """Return a function that says whether ``.gitignore`` names a path. Our file needs only a part of its syntax."""
    patterns = (root / ".gitignore").read_text().split()

    def ignored(path: Path) -> bool:
        below = f"/{path.relative_to(root).as_posix()}"
        for pattern in patterns:
            name = pattern.rstrip("/")
            if fnmatch.fnmatchcase(below if name.startswith("/") else path.name, name):
                return True
        return False

    return ignored


def unchanged_commit(root: Path) -> tuple[str, bool] | None:
    """Return the commit of an unpacked archive, and whether its files are those of the commit; None in a checkout."""
    named = archived()
    if named is None:
        return None
    commit, tree = named
    return commit, tree_hash(root, "sha1" if len(tree) == 40 else "sha256") == tree
