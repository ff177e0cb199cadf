"""The pages of docs/extending are followed word by word, and a page that lies does not pass."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from walkthrough import COMMANDS, FILE, MISSING, PRINTED, SHOWN, Lie, Reader

from experiments.paths import ROOT

PLUGIN = ROOT / "examples" / "plugin"
START = (ROOT / "docs" / "extending.md").read_text()
ORDER = ("task", "method", "study", "size")
PAGES = {name: (ROOT / "docs" / "extending" / f"{name}.md").read_text() for name in ORDER}


@pytest.fixture(scope="module")
def before(made_once: Callable[[str, Callable[[Path], Any]], Any]) -> dict[str, Reader]:
    """Page → a reader who has followed the pages before it."""

    def make(folder: Path) -> dict[str, Reader]:
        (start := folder / "start").mkdir()
        reader, readers = Reader(start), {}
        reader.follow(START)
        for name in ORDER:
            readers[name] = reader
            reader = reader.copy(folder / name)
            reader.follow(PAGES[name])
        return {**readers, "end": reader}

    readers: dict[str, Reader] = made_once("readers", make)
    return readers


@pytest.mark.slow(seconds=25)
def test_the_pages_do_what_they_say(before: dict[str, Reader]) -> None:
    """The fixture has followed them; what is left is the figure and the statement of the report."""
    page = before["end"].report()
    assert 'figure "Error against learned size on a\nsine" with one point for each of the 4 runs' in PAGES["study"]
    assert "<figcaption>Error against learned size on a sine</figcaption>" in page
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[0])
    (drawn,) = [figure for figure in data["figures"] if figure["name"] == "sine_error"]
    assert sum(len(series["x"]) for panel in drawn["panels"] for series in panel["series"]) == 4
    assert "At twice the price fewer waves are learned, same seed, in the mean." in page


LIES = [
    ("task", "`scratch/mine/tasks/sine/bank.py`\n", "A file without its caption:\n"),
    ("task", "`scratch/mine/conf/setting/sine-waves.yaml`\n", "A file without its caption:\n"),
    ("task", "  highest: 10.0", "  largest: 10.0"),
    ("task", "mkdir -p scratch/mine/tasks/sine", "mkdir -p"),
    ("task", "soft 2.88e-01", "soft 1.88e-01"),
    ("method", "`scratch/mine/conf/method/urgent.yaml`\n", "A file without its caption:\n"),
    ("method", "  factor: 2.0", "  multiple: 2.0"),
    ("study", "`scratch/mine/studies/sine_sizes.py`\n", "A file without its caption:\n"),
    ("study", '"grown.truncated.mse", MEDIAN_MSE', '"grown.truncated.error", MEDIAN_MSE'),
    ("study", 'Spec("sine_error"', 'Spec("sine_errors"'),
    ("size", "`scratch/mine/experts.py`\n", "A file without its caption:\n"),
    ("size", "def attach", "def attached"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "true", "false"), LIES, ids=lambda text: text.strip("` \n")[:40])
def test_a_page_that_lies_does_not_pass(
    before: dict[str, Reader], tmp_path: Path, name: str, true: str, false: str
) -> None:
    assert true in PAGES[name]
    with pytest.raises(Lie):
        before[name].copy(tmp_path / "reader").follow(PAGES[name].replace(true, false))


@pytest.mark.parametrize("name", ORDER)
def test_every_block_of_a_page_is_a_step(name: str) -> None:
    """A block that is written in another form would not be followed."""
    page = PAGES[name]
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
