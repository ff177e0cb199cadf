"""GSM8K: compare the final number by the two rules of lm-evaluation-harness (task version 3), and as a decimal."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from experiments.tasks.language.corpora import Example

NAMES = ("flexible", "strict", "decimal")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FINAL_POINT = re.compile(r"\.$")


def flexible(text: str) -> str:
    """Return the last match that looks like a number; a trailing "..." counts."""
    found = _FLEXIBLE.findall(text)
    return next(part for part in found[-1] if part).strip() if found else "[invalid]"


def strict(text: str) -> str:
    """Return the number after the first ``####``."""
    found = _STRICT.search(text)
    return found[1].strip() if found else "[invalid]"


def normalised(number: str) -> str:
    """Remove commas, dollar signs, everything before ``####``, and a final point."""
    number = number.replace(",", "").replace("$", "").rpartition("#### ")[2]
    return _FINAL_POINT.sub("", number).lower()


def _same_number(a: str, b: str) -> bool:
    try:
        return Decimal(normalised(a)) == Decimal(normalised(b))
    except InvalidOperation:
        return False


def score(prediction: str, example: Example) -> dict[str, float]:
    """Return three scores: ``flexible`` and ``strict`` compare normalised texts; ``decimal`` compares as numbers."""
    gold = normalised(example.reference)
    return {
        "flexible": float(normalised(flexible(prediction)) == gold),
        "strict": float(normalised(strict(prediction)) == gold),
        "decimal": float(_same_number(flexible(prediction), example.reference)),
    }
