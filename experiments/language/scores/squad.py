"""SQuAD v1.1: exact match and F1 of the normalised answer, each the best over the references."""

from __future__ import annotations

import re
import string
from collections import Counter

from experiments.language.corpora import Example

NAMES = ("exact_match", "f1")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal(answer: str) -> str:
    """Lower case, without punctuation and articles, single spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION)).split())


def f1(prediction: str, gold: str) -> float:
    """Harmonic mean of precision and recall over the multisets of words; 1 where both are empty."""
    words, wanted = normal(prediction).split(), normal(gold).split()
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted))


def score(prediction: str, example: Example) -> dict[str, float]:
    """``exact_match`` and ``f1`` of the first line."""
    answer = next(iter(prediction.strip().splitlines()), "")
    return {
        "exact_match": max(float(normal(answer) == normal(gold)) for gold in example.reference),
        "f1": max(f1(answer, gold) for gold in example.reference),
    }
