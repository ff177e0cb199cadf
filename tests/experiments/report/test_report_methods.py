"""The table of methods: every method has its source, and its verdicts are those of its rows."""

from __future__ import annotations

import re
from pathlib import Path

from experiments.analysis.collect import Reader
from experiments.methods import METHODS
from experiments.report import markdown
from experiments.report.content import build_content
from experiments.report.methods import lines
from experiments.store.records import Store
from experiments.studies import CLAIMS


def test_every_method_has_a_source_and_its_cells(tmp_path: Path) -> None:
    sources = {name: method.source for name, method in METHODS.items() if method.source is not None}
    assert sources.keys() == METHODS.keys() - {"base"}
    assert {key for source in sources.values() for key in source.claims} <= {claim.name for claim in CLAIMS}
    report = build_content(Reader(Store(tmp_path)))
    cells = {line.method: line.cells for line in lines(report)}
    assert cells["awnn"] == {"not run": 2 * 4}, "four columns in each of tables 7 and 7-full"
    assert cells["ngn"]["not run"] > cells["awnn"]["not run"] > cells["fixed"]["not run"] == 0
    (section,) = re.findall(r"^## Methods$.*?^## ", markdown.results(report), re.M | re.S)
    assert section.count("| `") == 1 + len(sources), "the head and a line each"
