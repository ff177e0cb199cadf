"""The documentation's pages from the report: ``results.md``, ``disagreements.md`` and ``about_the_paper.md``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import jinja2

from experiments.analysis.claims import UNTESTED
from experiments.analysis.figures import sentence
from experiments.analysis.terminal import tex_to_text
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, LEVEL, NOT_RUN, SETTING
from experiments.report import methods
from experiments.report.about import facts_of, last_cells, planned_test, sort_claims, sort_facts
from experiments.report.alternatives import judged_words
from experiments.report.answer import headline
from experiments.report.content import ReportContent
from experiments.report.disagreements import reasons
from experiments.report.sections import ABOUT, ALTERNATIVES
from experiments.studies import FIGURES

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
        reading_alternatives=ALTERNATIVES,
        judged=judged_words(report.alternatives),
        report=report,
        headline=headline(report),
        untested=UNTESTED,
        # several tables print the same row
        kernels={name.partition(".")[2]: note for name, note in report.kernel_notes.items()},
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
    return page.render(
        report=report,
        totals=found,
        by_chance=LEVEL * found.tests,
        reasons=reasons(report.claims),
        words=words,
    )


def about_the_paper(report: ReportContent) -> str:
    """Render the documentation's page on what follows about the paper."""
    studies = {both.study.name: both for both in report.alternatives}
    return (
        _environment()
        .get_template("about_the_paper.md.j2")
        .render(
            studies=studies,
            tests={name: planned_test(both) for name, both in studies.items()},
            sorted_facts={name: sort_facts(both) for name, both in studies.items()},
            sorted_claims={name: sort_claims(both) for name, both in studies.items()},
            last_cells={name: last_cells(both) for name, both in studies.items()},
            facts_of=facts_of,
        )
    )


PAGES: Mapping[str, Callable[[ReportContent], str]] = {
    "results.md": results,
    "disagreements.md": disagreements,
    "about_the_paper.md": about_the_paper,
}
"""Name of a file in ``docs/`` → what renders it."""
