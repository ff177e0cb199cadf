"""The documentation's pages from the report: ``results.md``, ``disagreements.md`` and ``about_the_paper.md``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jinja2

from experiments.analysis.claims import BY_CONSTRUCTION, UNTESTED
from experiments.analysis.figures import sentence
from experiments.analysis.terminal import tex_to_text
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, LEVEL, NOT_RUN, SETTING
from experiments.report.answer import headline, methods
from experiments.report.content import TEXTS, ReportContent
from experiments.report.disagreements import reasons
from experiments.studies import FIGURES

VERDICTS = [AGREES, DISAGREES, CANNOT_TELL, SETTING, NOT_RUN]

_wrapped = partial(textwrap.fill, width=120, break_long_words=False, break_on_hyphens=False)


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


def _by_verdict(first: Iterable[Any], counts: Mapping[str, int], last: Iterable[Any] = ()) -> list[Any]:
    """Return a row of a table with the numbers by verdict between its other cells."""
    return [*first, *(counts[word] or "" for word in VERDICTS), *last]


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_safe,
    )
    made.filters.update(sentence=sentence, plain=tex_to_text, para=_wrapped, zip=zip)
    made.filters["item"] = partial(_wrapped, initial_indent="- ", subsequent_indent="  ")
    made.globals.update(table=_table, by_verdict=_by_verdict, verdicts=VERDICTS)
    return made


def _render(page: str, report: ReportContent) -> str:
    return (
        _environment()
        .get_template(f"{page}.j2")
        .render(
            report=report,
            headline=headline(report),
            about=TEXTS["about"],
            methods=methods(report),
            titles={name: FIGURES[name].title for name in report.figures},
            # several tables print the same row
            kernels={name.partition(".")[2]: note for name, note in report.kernel_notes.items()},
            told=(AGREES, DISAGREES, CANNOT_TELL, BY_CONSTRUCTION),
            untested=UNTESTED,
            totals=report.totals,
            by_chance=LEVEL * report.totals.tests,
            reasons=reasons(report.claims),
            words={claim.key: claim.word for claim in report.claims},
            studies={both.study.name: both for both in report.alternatives},
        )
    )


PAGES: Mapping[str, Callable[[ReportContent], str]] = {
    name: partial(_render, name) for name in ("results.md", "disagreements.md", "about_the_paper.md")
}
"""Name of a file in ``docs/`` → what renders it."""
