"""Text of records in TeX, and what the report does without LaTeX."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
import record_samples as samples

from experiments.analysis import tex
from experiments.analysis.collect import Reader
from experiments.paths import ROOT

pytest.importorskip("jinja2", reason="needs Jinja2: pip install -e '.[paper]'")

from experiments.report import latex
from experiments.report.claims import CLAIMS
from experiments.report.content import build
from experiments.report.latex import render
from experiments.report.sections import ABOUT, COST, OWN_TEXTS, PLANS, READING, TRUNCATION
from experiments.store.records import Store
from experiments.tables import MACROS
from experiments.tables.own import OWN

EXPERIMENTS = ROOT / "experiments"
HOSTILE = '\\input{/etc/passwd} $x^2_1$ 50% & #1 ~ {<b>|"} λ → 中 é ®\n'


def test_whatever_a_template_prints_is_escaped() -> None:
    made = latex.environment()
    assert made.from_string("<< text >>").render(text=HOSTILE) == tex.escape(HOSTILE)
    assert made.from_string("<< tex(text) >>").render(text=r"\emph{x}") == r"\emph{x}"
    assert made.from_string("<< prose(text) >>").render(text="see `a_b` & c") == r"see \texttt{a\_b} \& c"


def test_prose_has_indices_and_powers() -> None:
    assert tex.prose("f_k and λ_0, `a_b`: 1.85e-04, 2.0e+00") == (
        r"\ensuremath{f_{k}} and \ensuremath{\lambda_{0}}, \texttt{a\_b}: "
        r"\ensuremath{1.85\mathord{\times}10^{-4}}, 2.0"
    )


def test_escaped_text_holds_no_command_of_its_own() -> None:
    safe = tex.escape(HOSTILE)
    assert r"\input" not in safe
    assert r"\textbackslash{}input\{/etc/passwd\}" in safe
    assert r"\ensuremath{\lambda}" in safe
    assert r"\texttt{U+4E2D}" in safe
    assert "é" in safe
    assert all(character.isascii() or character in "é®" for character in safe)


def test_every_text_of_ours_can_be_set() -> None:
    texts = [
        *ABOUT,
        *READING,
        *TRUNCATION,
        *OWN_TEXTS.values(),
        COST,
        *(text for plan in PLANS for text in plan.paragraphs),
    ]
    texts += [text for claim in CLAIMS for text in (claim.text, claim.where)]
    assert not [text for text in texts if "U+" in tex.prose(text)]


def test_every_character_in_titles_and_notes_can_be_set() -> None:
    sources = (
        path
        for part in ("figures", "tables", "analysis", "report")
        for path in EXPERIMENTS.glob(f"{part}/**/*.py")
        if path.name != "terminal.py"  # which has signs that terminals alone show
    )
    characters = {character for path in sources for character in path.read_text()}
    assert {"α", "₁"} <= characters
    assert not [character for character in characters if "U+" in tex.escape(character)]


def test_every_macro_stands_in_one_section() -> None:
    placed = [name for plan in PLANS for name in plan.macros]
    assert sorted(placed) == sorted(table.name for table in MACROS)


def test_without_latex_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(latex.shutil, "which", lambda name: None)
    assert latex.compile_pdf(tmp_path / "report.tex") is None
    assert "apt-get install" in latex.INSTALL


@pytest.mark.skipif(latex.shutil.which("pdflatex") is None, reason="needs pdflatex (texlive-latex-extra)")
def test_a_complaint_of_latex_is_named(tmp_path: Path) -> None:
    source = tmp_path / "report.tex"
    source.write_text("\\documentclass{article}\\begin{document}\\nosuchcommand\\end{document}\n")
    with pytest.raises(latex.LatexError, match="Undefined control sequence"):
        latex.compile_pdf(source)


def test_our_own_tables_show_what_was_run_and_name_the_rest(tmp_path: Path) -> None:
    text = render(build(Reader(Store(tmp_path))), set(), None)
    assert text.count("Nothing of this has been run.") == len(OWN)
    report = build(Reader(Store(ROOT / "results")))
    text = render(report, set(), None)
    for own in report.own:
        shown = [", ".join(row.labels) for row, _ in own.ran]
        assert all(f"\n{label} & " in text for label in shown), own.table.name
        heads = " & ".join(tex.escape(column.title) for column in own.table.columns)
        assert not shown or f" & n & {heads} \\\\" in text, "a bare % would end the line there"
        left = len(own.rows) - len(own.ran)
        assert bool(own.absent) == (left > 0)


@pytest.mark.slow
@pytest.mark.skipif(latex.shutil.which("pdflatex") is None, reason="needs pdflatex (texlive-latex-extra)")
def test_the_report_of_our_records_can_be_set(tmp_path: Path) -> None:
    shutil.copy(ROOT / "paper/data_generated.tex", tmp_path)
    (tmp_path / "report.tex").write_text(render(build(Reader(Store(ROOT / "results"))), set(), None))
    made = latex.compile_pdf(tmp_path / "report.tex")
    assert made is not None
    assert made.stat().st_size > 100_000


def test_a_single_number_of_a_stand_in_is_named_as_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    table = next(table for table in MACROS if table.name == "datafourteenintrate")
    (stand_in,) = table.rows[0].stand_ins
    assert table.rows[0].runs is not None
    near = table.rows[0].runs.with_overrides(stand_in.overrides, stand_in.choices)
    samples.adapt(store, dataclasses.replace(near, about=""), 0)
    (line,) = re.findall(r".*Table 14: integer, task-only.* & 1/1 & .*", render(build(Reader(store)), set(), None))
    assert f"(stand-in: {tex.escape(stand_in.name)})" in line


def test_what_is_not_run_stands_in_one_list(tmp_path: Path) -> None:
    text = render(build(Reader(Store(tmp_path))), set(), None)
    for table in MACROS:
        assert text.count(tex.escape(f"{table.title}:")) == 1, table.title
    assert "As the paper prints it" not in text
    assert "no records" in text


def test_the_readme_counts_the_images_that_the_records_say_were_encoded_again() -> None:
    path = next((ROOT / "results" / "cifar10").glob("*.json"))
    provenance = json.loads(path.read_text())["data"]["provenance"]
    images = sum(int(number) for number in re.findall(r"(\d+) (?:training|test)", provenance))
    assert f"{images} of its 60,000 images" in (ROOT / "README.md").read_text()


def test_the_results_page_names_what_was_not_run_and_has_no_dead_link(tmp_path: Path) -> None:
    page = latex.summary(build(Reader(Store(tmp_path))))
    assert [line for line in page.splitlines() if line.startswith("| all |")] == ["| all |  |  |  |  | 519 | 519 |"]
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "docs" / "results.md").read_text())
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / "docs" / link).exists()]
