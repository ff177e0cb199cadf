r"""Convert text to TeX."""

from __future__ import annotations

import unicodedata

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedblright{}",
}
_MATHS = {
    "α": r"\alpha",
    "β": r"\beta",
    "γ": r"\gamma",
    "δ": r"\delta",
    "κ": r"\kappa",
    "λ": r"\lambda",
    "ρ": r"\rho",
    "σ": r"\sigma",
    "τ": r"\tau",
    "π": r"\pi",
    "‖": r"\|",
    "±": r"\pm",
    "×": r"\times",
    "−": "-",
    "≤": r"\le",
    "≥": r"\ge",
    "→": r"\to",
    "½": r"\tfrac12",
    "²": "^2",
    "³": "^3",
    **{chr(ord("₀") + n): f"_{n}" for n in range(10)},
    "ₖ": "_k",
    "∞": r"\infty",
    "…": r"\ldots",
}


def _one(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character in _MATHS:
        return rf"\ensuremath{{{_MATHS[character]}}}"
    if not character.isprintable():
        return " "
    # what pdfTeX has no glyph for would stop it; letters of Latin-1 with an accent are built from two
    accented = ord(character) < 0x100 and unicodedata.decomposition(character)[:1].isdigit()
    if character.isascii() or accented or character in "©®°§¶ß":
        return character
    return rf"\texttt{{U+{ord(character):04X}}}"


def comment(text: str) -> str:
    """Return a comment line of TeX. Whatever the text holds, it stays on this line."""
    return "% " + "".join(character if character.isprintable() else " " for character in text)


def escape(text: str) -> str:
    r"""Escape ``text`` so that TeX prints it literally: ``50%_{x}`` → ``50\%\_\{x\}``.

    Control characters become blanks, Greek letters and common signs become maths, and letters that some LaTeX lacks
    become their code points.
    """
    return "".join(_one(character) for character in text)
