"""Text of records in TeX."""

from __future__ import annotations

from experiments.analysis.tex import escape
from experiments.paths import ROOT

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
