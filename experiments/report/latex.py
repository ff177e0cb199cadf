"""The report as LaTeX, and LaTeX as PDF. Whatever a template prints is escaped, unless it is TeX of our own."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2

from experiments.analysis import tex
from experiments.analysis.compare import Comparison
from experiments.analysis.reductions.cost import by_label
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN, SETTING
from experiments.figures import FIGURES
from experiments.figures.model import Data
from experiments.report.content import Report
from experiments.report.sections import COST, READING, TRUNCATION
from experiments.report.truncation import evidence
from experiments.sweeps.terminal import interval_text

VERDICTS = (AGREES, DISAGREES, CANNOT_TELL, SETTING, NOT_RUN)
INSTALL = "LaTeX is not installed: apt-get install texlive-latex-extra (or any TeX Live) and run this again"


class Tex(str):
    """Text that is TeX already."""


class LatexError(RuntimeError):
    """pdflatex stopped; the message has its complaint."""


@dataclass(frozen=True)
class Picture:
    """A figure as the report shows it.

    ``path`` is relative to the report, None where there is no drawing; ``missing`` then says why.
    """

    title: str
    path: str | None
    missing: str
    found: int
    wanted: int
    notes: tuple[str, ...]


def _printed(value: Any) -> str:
    return value if isinstance(value, Tex) else tex.escape(str(value))


def _rows(items: Iterable[Comparison]) -> Iterator[tuple[Tex, list[Comparison]]]:
    for (_, stand_in), found in groupby(items, lambda item: (item.row.key, item.stand_in)):
        cells = list(found)
        label = ", ".join(cells[0].row.labels)
        yield Tex(f"{label} (stand-in: {tex.escape(stand_in)})" if stand_in else label), cells


def _interval(item: Comparison) -> Tex:
    return Tex(r"\newline ".join(tex.escape(line) for line in interval_text(item).split("\n")))


def environment() -> jinja2.Environment:
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
        finalize=_printed,
    )
    made.globals.update(tex=Tex, prose=lambda text: Tex(tex.prose(text)), interval=_interval)
    made.filters["groupby_row"] = _rows
    made.filters["groupby_label"] = by_label
    return made


def pictures(figures: Mapping[str, Data], folder: Path) -> dict[str, Picture]:
    """The figures of a report that lies in ``folder``, with their drawings in ``folder/figures``.

    Args:
        figures: name → what the records give.
    """
    found = {}
    for name, data in figures.items():
        path = f"figures/{name}.pdf"
        drawn = not data.empty and (folder / path).exists()
        missing = "not run" if data.empty else "not drawn: scripts/build_figures.py draws it"
        found[name] = Picture(
            FIGURES[name].title, path if drawn else None, missing, data.found, len(data.runs), data.notes
        )
    return found


def render(report: Report, shown: Mapping[str, Picture]) -> str:
    """The whole report as TeX; it includes ``data_generated.tex`` and the figures that lie beside it."""
    made = environment()
    block = made.get_template("comparisons.tex.j2")

    def comparisons(items: Sequence[Comparison], inline: bool) -> Tex:
        return Tex(block.render(items=items, inline=inline))

    return made.get_template("report.tex.j2").render(
        report=report,
        figures=shown,
        comparisons=comparisons,
        verdicts=VERDICTS,
        reading=READING,
        truncation=(*TRUNCATION, evidence(report.truncation)),
        cost=COST,
        claim_counts=Counter(claim.word for claim in report.claims),
    )


def compile_pdf(source: Path) -> Path | None:
    """Run pdflatex twice (page breaks of long tables need it); the PDF, or None where there is no LaTeX.

    Raises:
        LatexError: if pdflatex fails; the message ends with its complaint.
    """
    program = shutil.which("pdflatex")
    if program is None:
        return None
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", source.name]
    for _ in range(2):
        done = subprocess.run(command, cwd=source.parent, capture_output=True, check=False)
        if done.returncode:
            output = done.stdout.decode(errors="replace")
            complaint = output[output.find("\n!") :] if "\n!" in output else output
            raise LatexError(f"pdflatex failed on {source}:{complaint[:1500]}")
    return source.with_suffix(".pdf")
