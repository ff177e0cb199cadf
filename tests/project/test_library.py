"""The library stays small: few public names, each with an entry on a page, and few lines."""

from __future__ import annotations

import re

import ngn
from experiments.paths import ROOT

PUBLIC = {name for name in ngn.__all__ if name != "__version__"}


def test_the_public_names_are_few() -> None:
    assert len(PUBLIC) <= 37


def test_every_public_name_has_an_entry_in_the_reference() -> None:
    page = (ROOT / "docs" / "site" / "api.rst").read_text()
    entries = re.findall(r"^\.\. auto(?:class|function):: ngn\.(\w+)$", page, re.MULTILINE)
    assert sorted(entries) == sorted(PUBLIC)


def test_the_library_has_few_lines() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / "ngn").rglob("*.py"))
    assert lines <= 12_900


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


def test_the_library_and_its_pages_import_nothing_of_the_suite() -> None:
    """What a user reads and runs needs the package alone; imports of its files: tests/project/test_borders.py."""
    pages = [*(ROOT / "ngn").rglob("*.py"), *(ROOT / "examples" / "gallery").glob("*.py")]
    pages += [
        ROOT / "README.md",
        *(ROOT / "docs" / f"{page}.md" for page in ("library", "extending/size", "extending/library", "formats")),
    ]
    imports = re.compile(r"^\W*(from|import) experiments\b", re.MULTILINE)
    assert not [str(path.relative_to(ROOT)) for path in pages if imports.search(path.read_text())]
