"""Render the page: a template filled with the report's content, the styles, the script and the figures."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from experiments.analysis.build import behind
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
from experiments.report.drawing import style, svg
from experiments.report.truncation import evidence
from experiments.store.records import RecordError, read_record
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


def script() -> str:
    """Return the page's script."""
    return f'(() => {{\n"use strict";\n{(ASSETS / "page.js").read_text()}}})();\n'


def encoded(content: bytes) -> str:
    """Return bytes in base 64."""
    return base64.b64encode(content).decode()


def damaged(reader: Reader) -> list[tuple[str, str]]:
    """Return (file, fault) of every invalid record in the store."""
    found = []
    for path in reader.store.paths():
        if path.stem in reader.seen:
            continue
        try:
            read_record(path)
        except RecordError as error:
            place = f"{reader.store.root.name}/{path.relative_to(reader.store.root)}"
            found.append((place, str(error).removeprefix(f"{path}: ")))
    return found


def prose(text: str) -> Markup:
    """Convert plain text to HTML: backticks mark code, underscores indices, stars emphasis, brackets links to docs/."""
    made = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    made = re.sub(r"\[([^\]]+)\]\((\w+\.md)\)", r'<a href="../docs/\2">\1</a>', made)
    made = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<em>\1</em>", made)
    return Markup(re.sub(r"(?<![\w/])([A-Za-z])_(\w+)(?![^<]*</code>)", r"\1<sub>\2</sub>", made))


def key_of(item: Comparison) -> str:
    """Return ``macro.row.column``; for a cell of a stand-in, ``macro.row.column~stand-in``."""
    return f"{item.name}~{item.stand_in}" if item.stand_in else item.name


def row_label(item: Comparison) -> str:
    """Return the printed labels of the cell's row, or the title of a single number."""
    return tex_to_text(item.row.title) or item.table.title


def all_behind(items: Iterable[Comparison], reader: Reader) -> str:
    """Return the runs and the arithmetic behind the cells of one row, as ``--explain`` prints them; empty without."""
    parts = []
    for item in items:
        if item.cell.run_ids:
            of_cell = behind(reader, item.table, item.row, item.column.key, item.cell)
            parts.append("\n".join([item.column.title, *of_cell]))
    return "\n\n".join(parts)


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
            yield heading, row_label(group[0]) + (f" (stand-in: {name})" if name else ""), group
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
    made.filters.update(plain=tex_to_text, prose=prose, sentence=sentence, key=key_of, label=row_label)
    made.globals.update(signs=SIGNS, row_groups=row_groups, intervals=interval_text, ordered=ordered)
    return made


def render(report: ReportContent, reader: Reader) -> str:
    """Render the whole page. Equal records give equal bytes, since the page holds no time of building.

    Args:
        report: the content, the same as that of the pages in ``docs/``.
        reader: the reader that built ``report``.
    """
    drawn = {n: svg.text(style.draw(FIGURES[n], data)) for n, data in report.figures.items() if not data.empty}
    made = _environment()
    made.globals["behind"] = lambda items: all_behind(items, reader)
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
        pictures={name: f"data:image/svg+xml;base64,{encoded(picture.encode())}" for name, picture in drawn.items()},
        studies=STUDIES,
        texts=TEXTS,
        evidence=evidence(report.truncation),
        judged=judged_words(report.alternatives),
    )
    return made.get_template("page.html").render(
        digest=Markup(encoded(hashlib.sha256(script().encode()).digest())),
        style=Markup((ASSETS / "page.css").read_text()),
        body=Markup(body),
        script=Markup(script()),
    )
