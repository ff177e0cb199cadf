"""Text of records in TeX."""

from __future__ import annotations

from pathlib import Path

import pytest
import record_samples as samples

from experiments.analysis.build import tex
from experiments.analysis.tex import escape
from experiments.core.paths import ROOT
from experiments.store.records import Store
from experiments.studies import MACROS
from experiments.studies.one_d import BASELINE
from scripts.build_paper_data import main

HOSTILE = '\\input{/etc/passwd} $x^2_1$ 50% & #1 ~ {<b>|"} λ → 中 é ®\n'


def test_escaped_text_holds_no_command_of_its_own() -> None:
    safe = escape(HOSTILE)
    assert r"\input" not in safe
    assert r"\textbackslash{}input\{/etc/passwd\}" in safe
    assert r"\ensuremath{\lambda}" in safe
    assert r"\texttt{U+4E2D}" in safe
    assert "é" in safe
    assert all(character.isascii() or character in "é®" for character in safe)


def test_every_character_in_tables_can_be_set() -> None:
    sources = (path for path in (ROOT / "experiments" / "tables").glob("*.py"))
    characters = {character for path in sources for character in path.read_text()}
    assert not [character for character in characters if "U+" in escape(character)]


def test_no_character_is_left_that_stops_tex() -> None:
    """Every character alone: commands come from our own table, and what is left are letters that pdfTeX has."""
    ours = {escape(character) for character in '\\{}$&#%_^~<>|"'}
    for code in (*range(0x3000), *range(0xD7F0, 0xE010), 0xFFFD, 0xFFFF, 0x1F600, 0x10FFFF):
        safe = escape(chr(code))
        if safe in ours or safe.startswith((r"\ensuremath{", r"\texttt{U+")):
            continue
        assert len(safe) == 1, hex(code)
        assert safe not in '\\{}$&#%_^~<>|"', hex(code)
        assert safe.isprintable(), hex(code)
        assert code < 0x100 or safe == " ", hex(code)


def test_no_text_of_a_record_reaches_the_macros(tmp_path: Path) -> None:
    hostile = "\\end{document}\\input{/etc/passwd}"
    store = Store(tmp_path / "results")
    for seed in range(10):
        changes = {"data": {"name": hostile, "sha256": "0" * 64, "provenance": hostile}, "packages": {hostile: hostile}}
        t, mse = samples.values(seed)
        samples.put(store, BASELINE, seed, {"grown": samples.grown([t], mse, 2 * mse)}, **changes)
    output = tmp_path / "data_generated.tex"
    assert main(["--results", str(store.root), "--output", str(output)]) == 0
    assert "passwd" not in output.read_text()
    assert output.read_text().isascii()


@pytest.mark.parametrize("line", ["\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\x1b"])
def test_a_note_stays_in_its_comment_whatever_it_holds(line: str) -> None:
    table = next(table for table in MACROS if not table.inline)
    made = tex([table], lambda *_: "--", notes_of=lambda _: [f"data differ{line}\\input{{/etc/passwd}}"])
    assert [row for row in made.splitlines() if "passwd" in row] == ["% data differ \\input{/etc/passwd}"]
