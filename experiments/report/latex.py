"""The report as LaTeX, LaTeX as PDF, and a summary as Markdown.

Whatever a TeX template prints is escaped, unless it is TeX of our own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2

from experiments.analysis import tex
from experiments.analysis.compare import Comparison
from experiments.analysis.reductions.cost import by_label
from experiments.analysis.terminal import interval_text
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN, SETTING
from experiments.figures import FIGURES
from experiments.figures.model import Data, sentence
from experiments.report import methods
from experiments.report.content import Report, Section
from experiments.report.sections import ABOUT, COST, READING, TRUNCATION
from experiments.report.truncation import evidence

VERDICTS = (AGREES, DISAGREES, CANNOT_TELL, SETTING, NOT_RUN)
INSTALL = "LaTeX is not installed: apt-get install texlive-latex-extra (or any TeX Live) and run this again"


class Tex(str):
    """Text that is TeX already."""


class LatexError(RuntimeError):
    """pdflatex stopped; the message has its complaint."""


def _printed(value: Any) -> str:
    return value if isinstance(value, Tex) else tex.escape(str(value))


def _rows(items: Iterable[Comparison]) -> Iterator[tuple[Tex, list[Comparison]]]:
    for (_, stand_in), found in groupby(items, lambda item: (item.row.key, item.stand_in)):
        cells = list(found)
        label = cells[0].row.title
        yield Tex(f"{label} (stand-in: {tex.escape(stand_in)})" if stand_in else label), cells


def _interval(item: Comparison) -> Tex:
    return Tex(r"\newline ".join(tex.powers(tex.escape(line)) for line in interval_text(item).split("\n")))


def environment(finalize: Callable[[Any], str] = _printed) -> jinja2.Environment:
    """Templates in ``<% %>`` and ``<< >>``, which TeX does not use; values are escaped unless they are :class:`Tex`."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
    )
    made.globals.update(
        tex=Tex, number=lambda text: Tex(tex.powers(text)), prose=lambda text: Tex(tex.prose(text)), interval=_interval
    )
    made.filters["groupby_row"] = _rows
    made.filters.update(groupby_label=by_label, sentence=sentence)
    return made


def drawn(figures: Mapping[str, Data], folder: Path) -> set[str]:
    """The names of those figures of a report in ``folder`` that have data, and their picture in ``folder/figures``."""
    return {name for name, data in figures.items() if not data.empty and (folder / f"figures/{name}.pdf").exists()}


def render(report: Report, pictures: Container[str], commit: str | None) -> str:
    """The whole report as TeX; it includes ``data_generated.tex`` and the ``pictures`` that lie beside it.

    Args:
        commit: of the code that makes it.
    """
    made = environment()
    block = made.get_template("comparisons.tex.j2")

    def comparisons(items: Sequence[Comparison], inline: bool) -> Tex:
        return Tex(block.render(items=items, inline=inline))

    return made.get_template("report.tex.j2").render(
        report=report,
        pictures=pictures,
        titles={name: FIGURES[name].title for name in report.figures},
        commit=commit or "unknown",
        comparisons=comparisons,
        differing=differing,
        verdicts=VERDICTS,
        about=ABOUT,
        reading=READING,
        truncation=(*TRUNCATION, evidence(report.truncation)),
        cost=COST,
        claim_counts=Counter(claim.word for claim in report.claims),
    )


def summary(report: Report) -> str:
    """The results page of the documentation, as Markdown."""
    titles = {name: FIGURES[name].title for name in report.figures}
    page = environment(lambda value: str(value).replace("|", r"\|").replace("<", "&lt;")).get_template("results.md.j2")
    return page.render(report=report, titles=titles, verdicts=VERDICTS, about=ABOUT, methods=methods.lines(report))


def differing(section: Section) -> Iterator[tuple[str, list[Comparison]]]:
    """(table and row in TeX, its cells whose published value does not fit our runs), in order."""
    for (row, table), items in groupby(section.differing, lambda item: (item.row.title, item.table)):
        title = tex.escape(table.title)
        yield title if table.inline else f"{title}, {row}", list(items)


def compile_pdf(source: Path, day: str = "1970-01-01") -> Path | None:
    """Run pdflatex three times (contents, and page breaks of long tables, need it); None where there is no LaTeX.

    Args:
        day: the date in the PDF's own description, so that equal sources give equal files.

    Raises:
        LatexError: if pdflatex fails; the message ends with its complaint.
    """
    program = shutil.which("pdflatex")
    if program is None:
        return None
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", source.name]
    epoch = int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "FORCE_SOURCE_DATE": "1"}
    for _ in range(3):
        done = subprocess.run(command, cwd=source.parent, env=environ, capture_output=True, check=False)
        if done.returncode:
            output = done.stdout.decode(errors="replace")
            complaint = output[output.find("\n!") :] if "\n!" in output else output
            raise LatexError(f"pdflatex failed on {source}:{complaint[:1500]}")
    return source.with_suffix(".pdf")
