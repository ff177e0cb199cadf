r"""Text into TeX."""

from __future__ import annotations

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
}


def escape(text: str) -> str:
    r"""``text`` as TeX prints it literally: ``50%_{x}`` → ``50\%\_\{x\}``; control characters become blanks."""
    return "".join(_SPECIAL.get(c, c if c.isprintable() else " ") for c in text)
