"""GSM8K: whether the number is right, by the two rules of lm-evaluation-harness (task version 3), and as a number."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from experiments.language.corpora import Example

NAMES = ("flexible", "strict", "decimal")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_IGNORED = (re.compile(","), re.compile(r"\$"), re.compile(r"(?s).*#### "), re.compile(r"\.$"))


def flexible(text: str) -> str:
    """The last thing that looks like a number; a trailing "..." does."""
    found = _FLEXIBLE.findall(text)
    return next(part for part in found[-1] if part).strip() if found else "[invalid]"


def strict(text: str) -> str:
    """The number behind the first ``####``."""
    found = _STRICT.search(text)
    return found[1].strip() if found else "[invalid]"


def normal(number: str) -> str:
    """Without commas, dollar signs, what precedes ``####``, and a point at the end."""
    for ignored in _IGNORED:
        number = ignored.sub("", number)
    return number.lower()


def _same_number(a: str, b: str) -> bool:
    try:
        return Decimal(normal(a)) == Decimal(normal(b))
    except InvalidOperation:
        return False


def score(prediction: str, example: Example) -> dict[str, float]:
    """``flexible`` and ``strict``: equal as texts when normalised. ``decimal``: the flexible one, equal as a number."""
    gold = normal(example.reference)
    return {
        "flexible": float(normal(flexible(prediction)) == gold),
        "strict": float(normal(strict(prediction)) == gold),
        "decimal": float(_same_number(flexible(prediction), example.reference)),
    }
