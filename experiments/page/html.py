"""The page itself: a template over the report's content, with styles, scripts and data inside."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison
from experiments.analysis.reductions.cost import by_label
from experiments.analysis.terminal import interval_text, plain
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_PUBLISHED, NOT_RUN, SETTING
from experiments.figures import FIGURES
from experiments.figures.model import sentence
from experiments.page import cells, plots
from experiments.page.runs import CURVE_POINTS, RunTable, compact
from experiments.page.strips import strip
from experiments.report.content import Report, TableContent
from experiments.report.sections import ABOUT, COST, READING, TRUNCATION
from experiments.report.truncation import evidence
from experiments.tables.model import Row

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = ("data", "dom", "theme", "axes", "plot", "views", "panel", "filters", "figures", "records", "main")

SIGNS = {
    AGREES: "✓",
    DISAGREES: "✗",
    CANNOT_TELL: "?",
    SETTING: "=",
    NOT_RUN: "–",
    NOT_PUBLISHED: "○",
}
"""Verdict → the sign that says it beside its colour, in the order of the overview."""


def slug(word: str) -> str:
    """A word as a class name."""
    return re.sub(r"[^a-z]+", "-", word.lower())


def script() -> str:
    """All scripts as one, with names of their own."""
    parts = [(ASSETS / f"{name}.js").read_text() for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def safe_json(value: Any) -> Markup:
    r"""JSON that can stand in a script element: ``<`` is written ``\u003c``, so no text in it can end the element."""
    text = compact(value).replace("<", r"\u003c").replace("\u2028", r"\u2028").replace("\u2029", r"\u2029")
    return Markup(text)


def prose(text: str) -> Markup:
    """Text of ours as markup: backticks mark code, underscores indices."""
    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"(?<!\w)([A-Za-z])_(\w+)(?![^<]*</code>)", r"\1<sub>\2</sub>", coded))


def row_groups(content: TableContent) -> Iterator[tuple[str, str, list[Comparison]]]:
    """(sub-heading above it or empty, label, cells) of every row of a table and of its stand-ins, in order."""
    heading = ""
    for line in content.table.lines:
        if not isinstance(line, Row):
            found = re.search(r"\\emph\{(.*?)\}", line)
            heading = plain(found[1]) if found else heading
            continue
        of_row = [item for item in content.items if item.row is line]
        for name in dict.fromkeys(item.stand_in for item in of_row):
            group = [item for item in of_row if item.stand_in == name]
            yield heading, cells.row_label(group[0]) + (f" (stand-in: {name})" if name else ""), group
            heading = ""


def intervals(item: Comparison) -> list[tuple[str, Markup]]:
    """(interval as text, the same drawn) of each number of a cell."""
    parts = item.verdict.parts
    return [(text, strip(item, part)) for text, part in zip(interval_text(item).split("\n"), parts, strict=bool(parts))]


def ordered(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Counts by verdict in the order of :data:`SIGNS`; words that it lacks come last."""
    return [(word, counts[word]) for word in [*SIGNS, *sorted(set(counts) - set(SIGNS))] if counts.get(word)]


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(plain=plain, prose=prose, sentence=sentence, slug=slug, key=cells.key_of)
    made.filters["groupby_label"] = by_label
    made.globals.update(signs=SIGNS, row_groups=row_groups, intervals=intervals, ordered=ordered)
    return made


def render(report: Report, reader: Reader) -> str:
    """The whole page. Equal records give an equal page: no clock is read.

    Args:
        report: the content that the other form of the report shows as well.
        reader: the one that ``report`` was built with.
    """
    table = RunTable(reader)
    figures = [plots.payload(FIGURES[name], data, table) for name, data in report.figures.items()]
    given, stored = table.add_curves(map(table.at, report.run_ids))
    data = {
        "verdicts": [{"word": word, "sign": sign, "slug": slug(word)} for word, sign in SIGNS.items()],
        "cells": {cells.key_of(item): cells.payload(item, reader, table) for item in report.items},
        "figures": figures,
        **table.payload(),
    }
    code = script()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    page = _environment().get_template("page.html")
    return page.render(
        report=report,
        table=table,
        titles={name: FIGURES[name].title for name in report.figures},
        curves=(given, stored),
        about=ABOUT,
        reading=READING,
        truncation=(*TRUNCATION, evidence(report.truncation)),
        cost=COST,
        points=CURVE_POINTS,
        links=frozenset(run["id"] for run in table.runs),
        style=Markup((ASSETS / "page.css").read_text()),
        script=Markup(code),
        digest=digest,
        data=safe_json(data),
    )
