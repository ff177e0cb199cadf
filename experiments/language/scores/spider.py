"""Spider: whether the query is the right one as a normalised text, which is stricter than set match and execution."""

from __future__ import annotations

import re

from experiments.language.corpora import Example
from experiments.language.scores.wikisql import statement

NAMES = ("exact_match", "string_match")


def normal(query: str) -> str:
    """Lower case and even spaces outside of values, single quotes around them, no semicolon at the end."""
    query = query.strip().removesuffix(";")
    out = []
    for piece in re.findall(r"'[^']*'|\"[^\"]*\"|[^'\"]+|['\"]", query):
        if len(piece) > 1 and piece[0] in "'\"":
            out.append(f"'{piece[1:-1]}'")
        else:
            spaced = re.sub(r"\s*(<=|>=|!=|<>|[=<>(),])\s*", r" \1 ", piece.lower())
            out += spaced.split()
    return " ".join(out)


def score(prediction: str, example: Example) -> dict[str, float]:
    """``exact_match``: equal when normalised. ``string_match``: the very text."""
    return {
        "exact_match": float(normal(statement(prediction)) == normal(example.reference)),
        "string_match": float(prediction.strip() == example.target),
    }
