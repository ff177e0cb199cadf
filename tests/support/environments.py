"""Environments with some of the packages that are installed here, without a download."""

from __future__ import annotations

from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

CORE = {"torch", "numpy", "safetensors"}


def closure(names: set[str]) -> dict[str, Distribution]:
    """Return distributions of this environment by name, with all their requirements.

    Raises:
        importlib.metadata.PackageNotFoundError: if one is not installed here.
    """
    found: dict[str, Distribution] = {}
    left = set(names)
    while left:
        name = left.pop()
        found[name] = distribution(name)
        needed = (Requirement(line) for line in found[name].requires or ())
        left |= {r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})} - set(found)
    return found


def link(packages: dict[str, Distribution], site: Path) -> None:
    """Link installed distributions, with files and metadata, into another environment."""
    for package in packages.values():
        for top in {file.parts[0] for file in package.files or () if ".." not in file.parts} - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))))
