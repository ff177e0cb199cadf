"""The Markdown pages: prose wraps at 120 columns (tables, code and long links are free), and links lead somewhere."""

from __future__ import annotations

import re

from experiments.core.paths import ROOT

MADE = {ROOT / "docs" / "results.md"}  # by a template, a paragraph a line
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})


def test_prose_wraps_at_120_columns() -> None:
    long = []
    for page in set(PAGES) - MADE:
        prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M)
        lines = [line for line in prose.splitlines() if not re.match(r" *(\||#|!?\[|<)|    ", line)]
        long += [f"{page.relative_to(ROOT)}: {line}" for line in lines if len(line) > 120 and "](" not in line]
    assert not long


def test_links_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        broken += [f"{page.relative_to(ROOT)}: {target}" for target in targets if not (page.parent / target).exists()]
    assert not broken
