"""Prose of the Markdown pages wraps at 120 columns; tables, code and long links are free."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.paths import ROOT

MADE = {ROOT / "docs" / "results.md"}  # by a template, a paragraph a line
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - MADE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_wraps_at_120_columns(page: Path) -> None:
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M)
    lines = [line for line in prose.splitlines() if not re.match(r" *(\||#|!?\[|<)|    ", line)]
    assert not [line for line in lines if len(line) > 120 and "](" not in line]
