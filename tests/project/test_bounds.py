"""The project stays small: lines, packages, arrows between them, words, and public names of the library."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import ngn
from experiments.core.paths import ROOT

LIMITS = {
    "lines of experiments and benchmarks": 34_070,
    "lines of benchmarks": 3_660,
    "lines of ngn": 12_750,
    "lines of scripts and plug-ins": 1_290,
    "lines of tests": 27_730,
    "packages of experiments": 12,
    "arrows between packages": 49,
    "floors": 11,
    "words of docs": 51_800,
}
"""What nothing may exceed; lower a limit when the measure has fallen, and never raise one."""
PUBLIC = {name for name in ngn.__all__ if name != "__version__"}


def tracked(*patterns: str) -> list[Path]:
    listed = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [path for name in sorted({*names}) if (path := ROOT / name).is_file()]


def lines(*folders: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in tracked(*folders) if path.suffix == ".py")


def arrows() -> dict[str, set[str]]:
    """Package, or module at the top, of experiments → the others that it imports, in functions and for types too."""
    top = ROOT / "experiments"
    files = [path for path in top.rglob("*.py") if path != top / "__init__.py"]
    part = {path: path.relative_to(top).parts[0].removesuffix(".py") for path in files}
    found: dict[str, set[str]] = {name: set() for name in part.values()}
    for path, here in part.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", ())] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            others = {name.split(".")[1] for name in names if name.startswith("experiments.")}
            found[here] |= (others & found.keys()) - {here}
    return found


def floors(of: dict[str, set[str]]) -> int:
    """The parts on the longest way along arrows; one that closes a circle ends the way."""
    depth: dict[str, int] = {}

    def floor(part: str, way: tuple[str, ...] = ()) -> int:
        if part in way:
            return 0
        if part not in depth:
            depth[part] = 1 + max((floor(other, (*way, part)) for other in sorted(of[part])), default=0)
        return depth[part]

    return max(map(floor, of))


@pytest.mark.checkout
def test_nothing_grows_beyond_its_limit() -> None:
    parts = arrows()
    measured = {
        "lines of experiments and benchmarks": lines("experiments", "benchmarks"),
        "lines of benchmarks": lines("benchmarks"),
        "lines of ngn": lines("ngn"),
        "lines of scripts and plug-ins": lines("scripts", "hydra_plugins"),
        "lines of tests": lines("tests"),
        "packages of experiments": sum((ROOT / "experiments" / part).is_dir() for part in parts),
        "arrows between packages": sum(map(len, parts.values())),
        "floors": floors(parts),
        "words of docs": sum(len(path.read_text().split()) for path in tracked("docs/*.md", "docs/**/*.md")),
    }
    assert measured.keys() == LIMITS.keys()
    assert {name: size for name, size in measured.items() if size > LIMITS[name]} == {}, measured


def test_the_public_names_are_few_and_each_has_an_entry_in_the_reference() -> None:
    assert len(PUBLIC) <= 37
    page = (ROOT / "docs" / "site" / "api.rst").read_text()
    entries = re.findall(r"^\.\. auto(?:class|function):: ngn\.(\w+)$", page, re.MULTILINE)
    assert sorted(entries) == sorted(PUBLIC)


def test_what_moved_is_named_with_the_place_where_it_is() -> None:
    """The table of docs/versioning.md: no name is public today, and every module is there."""
    page = (ROOT / "docs" / "versioning.md").read_text()
    rows = re.findall(r"^\| (`ngn\.\w+`(?:, `ngn\.\w+`)*) \| `(experiments[\w.]+)` \|$", page, re.MULTILINE)
    moved = {name: module for names, module in rows for name in re.findall(r"ngn\.(\w+)", names)}
    assert len(moved) == 20
    assert not moved.keys() & PUBLIC
    for name, module in moved.items():
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        assert re.search(rf"^(class|def) {name}\b", source, re.MULTILINE), f"{name} is not in {module}"


def test_what_a_user_of_the_library_reads_imports_nothing_of_the_suite() -> None:
    pages = [ROOT / "README.md", *(ROOT / "examples" / "gallery").glob("*.py")]
    pages += [ROOT / "docs" / f"{page}.md" for page in ("library", "extending/size", "extending/library", "formats")]
    imports = re.compile(r"^\W*(from|import) experiments\b", re.MULTILINE)
    assert not [str(path.relative_to(ROOT)) for path in pages if imports.search(path.read_text())]
