"""The report as pages: one HTML page that needs nothing else, and the pages of ``docs/`` that are made from records.

The files of ``templates/`` make them from :class:`experiments.report.content.ReportContent`. The HTML page loads no
other file: figures are pictures in it, and a script adds the filter and the choice of colours.
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from experiments.analysis.build import behind
from experiments.analysis.claims import BY_CONSTRUCTION, UNTESTED, Judged
from experiments.analysis.collect import Reader
from experiments.analysis.compare import WORDS, Comparison, totals, verdict_counts
from experiments.analysis.figures import sentence
from experiments.analysis.tables import Row, Table
from experiments.analysis.terminal import interval_text, tex_to_text
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_PUBLISHED, NOT_RUN, SETTING
from experiments.core.source import Source
from experiments.methods import METHODS
from experiments.report.alternatives import BEYOND, evidence, of_the_paper
from experiments.report.content import TEXTS, ReportContent, reasons
from experiments.report.drawing import style
from experiments.store.records import RecordError, read_record
from experiments.studies import FIGURES, STUDIES

TEMPLATES = Path(__file__).with_name("templates")

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


def _said(which: str, claims: Iterable[Judged]) -> str:
    """Say how statements come out. Those that hold by construction say nothing about the paper and are not counted."""
    words = Counter(claim.word for claim in claims if claim.word != BY_CONSTRUCTION)
    untested = f", and {words[UNTESTED]} could not be tested" if words[UNTESTED] else ""
    return (
        f"Of {which.format(words.total())} {words[AGREES]} agree with our runs, {words[DISAGREES]} disagree, for "
        f"{words[CANNOT_TELL]} the runs cannot tell{untested}"
    )


def headline(report: ReportContent) -> tuple[str, ...]:
    """Say how the paper's numbers, its statements and those of studies beyond it come out, a sentence each."""
    total = report.counts.total()
    run = total - report.counts[NOT_RUN]
    if not run:
        return f"None of the paper's {total} numbers has been run yet.", "None of its statements has been tested yet."
    beyond = [claim for claim in report.claims if claim.where.startswith(BEYOND)]
    given = sum(claim.word == BY_CONSTRUCTION for claim in report.claims)
    return (
        f"We ran {run} of the paper's {total} numbers again. {report.totals.said}",
        f"{_said('{} statements of the paper', of_the_paper(report.claims))}.",
        f"{_said('{} statements of studies beyond the paper', beyond)}; {given} more hold by construction.",
    )


def methods(report: ReportContent) -> list[tuple[str, Source, list[Comparison]]]:
    """Return every method that has a source, with the cells of its rows, in the order of their ranks."""
    rows = [
        (dict(item.row.runs.choices).get("method", "ngn"), item) for item in report.items if item.row.runs is not None
    ]
    sources = {name: method.source for name, method in METHODS.items() if method.source is not None}
    return [
        (name, source, [item for method, item in rows if method == name])
        for name, source in sorted(sources.items(), key=lambda pair: (pair[1].rank, pair[0]))
    ]


def _environment(report: ReportContent, **options: Any) -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options
    )
    made.filters.update(plain=tex_to_text, sentence=sentence)
    made.globals.update(
        report=report,
        headline=headline(report),
        methods=methods(report),
        by_verdict=by_verdict,
        verdicts=[*WORDS, "cells not run", "cells"],
        reasons=reasons(report.claims),
        texts=TEXTS,
        titles={name: FIGURES[name].title for name in report.figures},
    )
    return made


class _Markdown(str):
    """Text that is Markdown already."""


def _safe(value: Any) -> str:
    """Return a value as text that cannot end the cell of a table or begin markup."""
    return value if isinstance(value, _Markdown) else str(value).replace("|", r"\|").replace("<", "&lt;")


def _table(heads: Iterable[Any], rows: Iterable[Iterable[Any]]) -> _Markdown:
    """Return a table."""
    lines = [[_safe(cell) for cell in row] for row in (heads, *rows)]
    rule = ["---"] * len(lines[0])
    return _Markdown("\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])))


def by_verdict(items: Sequence[Comparison]) -> list[Any]:
    """Return the facts of cells by verdict, calibrated ones behind a plus; then how many cells are not run, and all."""
    counts, found = verdict_counts(items), totals(items)
    return [*map(found.shown, WORDS), counts[NOT_RUN] or "", counts.total() or ""]


def _markdown(page: str, report: ReportContent) -> str:
    made = _environment(report, finalize=_safe)
    wrapped = partial(textwrap.fill, width=120, break_long_words=False, break_on_hyphens=False)
    made.filters.update(para=wrapped, item=partial(wrapped, initial_indent="- ", subsequent_indent="  "), zip=zip)
    made.globals.update(table=_table)
    origins: dict[str, list[str]] = {}
    for name, note in report.origin_notes.items():
        if "fullbody" not in name:  # its row is printed twice
            origins.setdefault(note, []).append(f"`{name}`")
    return made.get_template(f"{page}.j2").render(
        origins=origins,
        told=(AGREES, DISAGREES, CANNOT_TELL, BY_CONSTRUCTION),
        untested=UNTESTED,
        totals=report.totals,
        words={claim.key: claim.word for claim in report.claims},
        beside={both.study.name: both for both in report.alternatives},
    )


PAGES: Mapping[str, Callable[[ReportContent], str]] = {
    name: partial(_markdown, name) for name in ("results.md", "disagreements.md", "about_the_paper.md")
}
"""Name of a file in ``docs/`` → what renders it."""


def script() -> str:
    """Return the page's script."""
    return f'(() => {{\n"use strict";\n{(TEMPLATES / "page.js").read_text()}}})();\n'


def encoded(content: bytes) -> str:
    """Return bytes in base 64."""
    return base64.b64encode(content).decode()


def damaged(reader: Reader) -> list[tuple[str, str]]:
    """Return (file, fault) of every invalid record in the store."""
    faults = []
    for path in reader.store.paths():
        if path.stem in reader.seen:
            continue
        try:
            read_record(path)
        except RecordError as error:
            place = f"{reader.store.root.name}/{path.relative_to(reader.store.root)}"
            faults.append((place, str(error).removeprefix(f"{path}: ")))
    return faults


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
    return "\n\n".join(
        "\n".join([item.column.title, *behind(reader, item.table, item.row, item.column.key, item.cell)])
        for item in items
        if item.cell.run_ids
    )


def row_groups(table: Table, items: Sequence[Comparison]) -> Iterator[tuple[str, str, list[Comparison]]]:
    """Yield (sub-heading or empty, label, cells) of every row of a table and of its stand-ins, in order."""
    heading = ""
    for line in table.lines:
        if not isinstance(line, Row):
            match = re.search(r"\\emph\{(.*?)\}", line)
            heading = tex_to_text(match[1]) if match else heading
            continue
        of_row = [item for item in items if item.row is line]
        for name in dict.fromkeys(item.stand_in for item in of_row):
            group = [item for item in of_row if item.stand_in == name]
            yield heading, row_label(group[0]) + (f" (stand-in: {name})" if name else ""), group
            heading = ""


def ordered(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return counts by verdict in the order of :data:`SIGNS`; other verdicts come last."""
    return [(word, counts[word]) for word in [*SIGNS, *sorted(set(counts) - set(SIGNS))] if counts.get(word)]


def render(report: ReportContent, reader: Reader) -> str:
    """Return the HTML page.

    Args:
        reader: the reader that built ``report``.
    """
    drawn = {n: style.svg(style.draw(FIGURES[n], data)) for n, data in report.figures.items() if not data.empty}
    made = _environment(report, autoescape=True)
    made.filters.update(prose=prose, key=key_of, label=row_label)
    made.globals.update(
        signs=SIGNS,
        row_groups=row_groups,
        intervals=interval_text,
        ordered=ordered,
        behind=partial(all_behind, reader=reader),
    )
    beside = [pair for both in report.alternatives for pair in both.counts.values()]
    body = made.get_template("body.html").render(
        of_the_paper=of_the_paper(report.claims),
        stand_ins=[
            section["title"]
            for section in report.sections
            if {*verdict_counts(section["comparisons"])} == {NOT_RUN}
            and any(item.stand_in for item in section["comparisons"])
        ],
        damaged=damaged(reader),
        dirty=reader.allow_dirty,
        pictures={name: f"data:image/svg+xml;base64,{encoded(picture.encode())}" for name, picture in drawn.items()},
        studies=STUDIES,
        evidence=evidence(report.truncation),
        judged=[word for word in SIGNS if any(pair[0][word] + pair[1][word] for pair in beside)],
    )
    return made.get_template("page.html").render(
        digest=Markup(encoded(hashlib.sha256(script().encode()).digest())),
        style=Markup((TEMPLATES / "page.css").read_text()),
        body=Markup(body),
        script=Markup(script()),
    )
