"""The generated file in LaTeX: every macro compiles in a table with as many columns as it has."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import record_samples as samples

from experiments.store.records import Store
from experiments.studies import macros
from scripts.build_paper_data import main

HARNESS = Path(__file__).with_name("harness.tex")
needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex (texlive-latex-extra)")


def compile_harness(folder):
    shutil.copy(HARNESS, folder)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "harness.tex"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)


def test_the_harness_has_every_macro_with_its_columns():
    text = HARNESS.read_text()
    for table in macros():
        assert f"\\{table.name}" in text
        if not table.inline:
            types = re.search(rf"\{{([lcr]+)\}}\{{\\{table.name}\}}", text)
            assert types is not None, table.name
            assert len(types[1]) == len(table.rows[0].labels) + len(table.columns), table.name


@needs_latex
@pytest.mark.slow
@pytest.mark.parametrize("full", [True, False], ids=["numbers", "dashes"])
def test_the_generated_file_compiles(tmp_path, full):
    store = Store(tmp_path / "results")
    if full:
        samples.fill(store)
    assert main(["--results", str(store.root), "--output", str(tmp_path / "data_generated.tex")]) == 0
    done = compile_harness(tmp_path)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "harness.pdf").stat().st_size > 10_000
