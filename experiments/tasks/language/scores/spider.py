"""Spider: compare queries as normalised texts, which is stricter than set match and execution."""

from __future__ import annotations

import re

from experiments.tasks.language.corpora import Example
from experiments.tasks.language.scores.wikisql import first_statement

NAMES = ("exact_match", "string_match")


def normalised(query: str) -> str:
    """Normalise a query: lower case and single spaces outside values, single quotes, no final semicolon."""
    query = query.strip().removesuffix(";")
    out = []
    for piece in re.findall(r"'[^']*'|\"[^\"]*\"|[^'\"]+|['\"]", query):
        if len(piece) > 1 and piece[0] in "'\"":
            out.append(f"'{piece[1:-1]}'")
        else:
            spaced = re.sub(r"(<=|>=|!=|<>|[=<>(),])", r" \1 ", piece.lower())
            out += spaced.split()
    return " ".join(out)


def score(prediction: str, example: Example) -> dict[str, float]:
    """Return ``exact_match`` (equal when normalised) and ``string_match`` (identical text)."""
    same = prediction.strip() == example.target.strip()
    alike = same or normalised(first_statement(prediction)) == normalised(example.reference)
    return {"exact_match": float(alike), "string_match": float(same)}
