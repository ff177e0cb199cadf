"""The pages of docs/extending are followed word by word."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from walkthrough import COMMANDS, FILE, MISSING, PRINTED, SHOWN, Reader

from experiments.core.paths import ROOT

PLUGIN = ROOT / "examples" / "plugin"
START = (ROOT / "docs" / "extending.md").read_text()
ORDER = ("task", "method", "study", "size")
PAGES = {name: (ROOT / "docs" / "extending" / f"{name}.md").read_text() for name in ORDER}


@pytest.mark.slow(seconds=25)
def test_the_pages_do_what_they_say(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for page in (START, *PAGES.values()):
        reader.follow(page)
    page = reader.report()
    assert 'figure "Error against learned size on a\nsine" with one point for each of the 4 runs' in PAGES["study"]
    assert "<figcaption>Error against learned size on a sine</figcaption>" in page
    (drawn,) = re.findall(r'id="sine_error">.*?base64,(.*?)"', page, re.S)
    assert "n = 4 runs" in base64.b64decode(drawn).decode()
    assert "At twice the price fewer waves are learned, same seed, in the mean." in page


def test_every_block_of_a_page_is_a_step() -> None:
    """A block that is written in another form would not be followed."""
    for page in PAGES.values():
        blocks = len(re.findall(r"^```\w", page, re.M))
        assert blocks == sum(len(form.findall(page)) for form in (FILE, COMMANDS, PRINTED))
        rows = re.findall(r"^\|.*\n", page, re.M)
        tables = [table for _, table in SHOWN.findall(page)]
        heads = 2 * page.count("| missing | message |\n")
        assert len(rows) == heads + len(MISSING.findall(page)) + sum(table.count("\n") for table in tables)


def test_the_example_has_the_files_of_the_pages() -> None:
    written = {name: text for page in PAGES.values() for name, text in FILE.findall(page)}
    files = [path for path in PLUGIN.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert written == {f"scratch/mine/{path.relative_to(PLUGIN)}": path.read_text() for path in files}
