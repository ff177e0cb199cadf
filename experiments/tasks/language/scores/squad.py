"""SQuAD v1.1: exact match and F1 of the normalised answer, each the maximum over the references."""

from __future__ import annotations

import re
import string
from collections import Counter

from experiments.tasks.language.corpora import Example

NAMES = ("exact_match", "f1")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Normalise an answer: lower case, no punctuation, no articles, single spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION)).split())


def f1(prediction: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over the multisets of words; 1 if both are empty."""
    words, wanted = normalised(prediction).split(), normalised(gold).split()
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted))


def score(prediction: str, example: Example) -> dict[str, float]:
    """Return ``exact_match`` and ``f1`` of the first line; a reference of several lines also matches itself."""
    if prediction.strip() in example.reference:
        return dict.fromkeys(NAMES, 1.0)
    answer = next(iter(prediction.strip().splitlines()), "")
    return {
        "exact_match": max(float(normalised(answer) == normalised(gold)) for gold in example.reference),
        "f1": max(f1(answer, gold) for gold in example.reference),
    }
