"""The documentation's pages that are made from the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from experiments.analysis.collect import Reader
from experiments.paths import ROOT

pytest.importorskip("jinja2", reason="needs Jinja2: pip install -e '.[paper]'")

import own_records

from experiments.report import markdown
from experiments.report.content import build_content
from experiments.report.sections import OUTLINES
from experiments.store.records import Store
from experiments.studies import MACROS


def test_every_macro_stands_in_one_section() -> None:
    placed = [name for outline in OUTLINES for name in outline.macros]
    assert sorted(placed) == sorted(table.name for table in MACROS)


def test_our_own_tables_show_what_was_run_and_name_the_rest() -> None:
    for own in own_records.report().own:
        assert bool(own.absent) == (len(own.rows) > len(own.ran))


def test_the_readme_counts_the_images_that_the_records_say_were_encoded_again() -> None:
    path = next((ROOT / "results" / "cifar10").glob("*.json"))
    provenance = json.loads(path.read_text())["data"]["provenance"]
    images = sum(int(number) for number in re.findall(r"(\d+) (?:training|test)", provenance))
    assert f"{images} of its 60,000 images" in (ROOT / "README.md").read_text()


def test_the_results_page_names_what_was_not_run_and_has_no_dead_link(tmp_path: Path) -> None:
    page = markdown.results(build_content(Reader(Store(tmp_path))))
    assert [line for line in page.splitlines() if line.startswith("| all |")] == ["| all |  |  |  |  | 519 | 519 |"]
    for table in MACROS:
        assert page.count(f"- {table.title}:") == 1, table.title
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "docs" / "results.md").read_text())
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / "docs" / link.partition("#")[0]).exists()]
