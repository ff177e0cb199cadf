"""The documentation's pages from the report: ``results.md`` and ``disagreements.md``."""

from __future__ import annotations

from pathlib import Path

import jinja2

from experiments.analysis.terminal import tex_to_text
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, LEVEL, NOT_RUN, SETTING
from experiments.figures import FIGURES
from experiments.figures.model import sentence
from experiments.report import methods
from experiments.report.answer import headline
from experiments.report.claims import UNTESTED
from experiments.report.content import ReportContent
from experiments.report.disagreements import reasons
from experiments.report.sections import ABOUT

VERDICTS = (AGREES, DISAGREES, CANNOT_TELL, SETTING, NOT_RUN)


def _environment() -> jinja2.Environment:
    """Templates whose values cannot end a cell of a table or begin markup."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: str(value).replace("|", r"\|").replace("<", "&lt;"),
    )
    made.filters.update(sentence=sentence, plain=tex_to_text)
    return made


def results(report: ReportContent) -> str:
    """The results page of the documentation."""
    titles = {name: FIGURES[name].title for name in report.figures}
    page = _environment().get_template("results.md.j2")
    return page.render(
        report=report,
        headline=headline(report),
        untested=UNTESTED,
        titles=titles,
        verdicts=VERDICTS,
        about=ABOUT,
        methods=methods.lines(report),
    )


def disagreements(report: ReportContent) -> str:
    """The documentation's page on what disagrees with the paper."""
    found = report.totals
    words = {claim.key: claim.word for claim in report.claims}
    page = _environment().get_template("disagreements.md.j2")
    return page.render(report=report, totals=found, by_chance=LEVEL * found.tests, reasons=reasons(), words=words)
