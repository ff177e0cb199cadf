"""Render the page: a template filled with the report's content, the styles, the scripts and the data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from experiments.analysis.claims import BY_CONSTRUCTION, UNTESTED
from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison
from experiments.analysis.figures import sentence
from experiments.analysis.tables import Row
from experiments.analysis.terminal import interval_text, tex_to_text
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_PUBLISHED, NOT_RUN, SETTING
from experiments.report.alternatives import judged_words, of_the_paper
from experiments.report.answer import headline, methods
from experiments.report.content import TEXTS, ReportContent, TableContent
from experiments.report.disagreements import reasons
from experiments.report.page import figures, rows
from experiments.report.page.runs import Runs, damaged
from experiments.report.truncation import evidence
from experiments.studies import FIGURES, STUDIES

ASSETS = Path(__file__).with_name("assets")

SIGNS = {
    AGREES: "✓",
    CANNOT_TELL: "?",
    DISAGREES: "✗",
    SETTING: "=",
    NOT_RUN: "–",
    NOT_PUBLISHED: "○",
    BY_CONSTRUCTION: "≡",
    UNTESTED: "–",
}
"""Verdict → its sign, shown in addition to its colour; in the order of the bars."""


def scripts() -> list[str]:
    """Return the plotting library as published (``vendor/versions.json``), and the page's own script."""
    vendor = ASSETS / "vendor"
    library = [(vendor / entry["file"]).read_text() for entry in json.loads((vendor / "versions.json").read_text())]
    own = (ASSETS / "page.js").read_text()
    return [*library, f'(() => {{\n"use strict";\n{own}}})();\n']


def prose(text: str) -> Markup:
    """Convert plain text to HTML: backticks mark code, underscores indices, stars emphasis, brackets links to docs/."""
    made = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    made = re.sub(r"\[([^\]]+)\]\((\w+\.md)\)", r'<a href="../docs/\2">\1</a>', made)
    made = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<em>\1</em>", made)
    return Markup(re.sub(r"(?<![\w/])([A-Za-z])_(\w+)(?![^<]*</code>)", r"\1<sub>\2</sub>", made))


def row_groups(content: TableContent) -> Iterator[tuple[str, str, list[Comparison]]]:
    """Yield (sub-heading or empty, label, cells) of every row of a table and of its stand-ins, in order."""
    heading = ""
    for line in content.table.lines:
        if not isinstance(line, Row):
            found = re.search(r"\\emph\{(.*?)\}", line)
            heading = tex_to_text(found[1]) if found else heading
            continue
        of_row = [item for item in content.items if item.row is line]
        for name in dict.fromkeys(item.stand_in for item in of_row):
            group = [item for item in of_row if item.stand_in == name]
            yield heading, rows.row_label(group[0]) + (f" (stand-in: {name})" if name else ""), group
            heading = ""


def ordered(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Return counts by verdict in the order of :data:`SIGNS`; other verdicts come last."""
    return [(word, counts[word]) for word in [*SIGNS, *sorted(set(counts) - set(SIGNS))] if counts.get(word)]


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(plain=tex_to_text, prose=prose, sentence=sentence, key=rows.key_of, label=rows.row_label)
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    made.globals.update(signs=SIGNS, row_groups=row_groups, intervals=interval_text, ordered=ordered)
    return made


def render(report: ReportContent, reader: Reader) -> str:
    """Render the whole page. Equal records give equal bytes, since the page holds no time of building.

    Args:
        report: the content, the same as that of the pages in ``docs/``.
        reader: the reader that built ``report``.
    """
    runs = Runs(reader)
    drawn = [figures.payload(FIGURES[name], data, runs) for name, data in report.figures.items() if not data.empty]
    made = _environment()
    made.globals["behind"] = lambda items: rows.behind(items, runs)
    body = made.get_template("body.html").render(
        report=report,
        headline=headline(report),
        of_the_paper=of_the_paper(report.claims),
        reasons=reasons(report.claims),
        stand_ins=[one.title for one in report.sections if not one.ran_itself and any(i.stand_in for i in one.items)],
        damaged=damaged(reader),
        dirty=reader.allow_dirty,
        methods=methods(report),
        titles={name: FIGURES[name].title for name in report.figures},
        studies=STUDIES,
        texts=TEXTS,
        evidence=evidence(report.truncation),
        judged=judged_words(report.alternatives),
    )
    code = scripts()
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    return made.get_template("page.html").render(
        policy=" ".join(f"'sha256-{digest}'" for digest in digests),
        style=Markup((ASSETS / "page.css").read_text()),
        body=Markup(body),
        # after the body, since rendering it collects the curves to draw
        data={"figures": drawn, "curves": runs.curves, "runs": list(runs.names)},
        scripts=[Markup(text) for text in code],
    )
