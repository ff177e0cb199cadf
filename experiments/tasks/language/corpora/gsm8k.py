"""GSM8K: word problems; the answer gives the steps, then ``#### `` and the number.

The score: compare the final number by the two rules of lm-evaluation-harness (task version 3), and as a decimal.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from experiments.data.texts import Texts
from experiments.tasks.language import prompts
from experiments.tasks.language.corpora import Corpus, Example, shuffled


def make_corpus(texts: Texts) -> Corpus:
    """Return the official train and test sets, without the calculator marks ``<<...>>``."""

    def examples(part: str) -> tuple[Example, ...]:
        made = []
        for number, each in enumerate(texts.parts[f"{part}.jsonl"]):
            answer = re.sub(r"<<[^>]*>>", "", each["answer"]).strip()
            prompt = prompts.GSM8K.format(question=each["question"].strip())
            made.append(Example(prompt, answer, answer.rpartition("#### ")[2], f"{part}-{number}"))
        return tuple(shuffled(made, f"gsm8k/{part}"))

    return Corpus(examples("train"), examples("test"), texts.info)


NAMES = ("flexible", "strict", "decimal")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FINAL_POINT = re.compile(r"\.$")


def flexible(text: str) -> str:
    """Return the last match that looks like a number; a trailing "..." counts."""
    matches = _FLEXIBLE.findall(text)
    return next(part for part in matches[-1] if part).strip() if matches else "[invalid]"


def strict(text: str) -> str:
    """Return the number after the first ``####``."""
    match = _STRICT.search(text)
    return match[1].strip() if match else "[invalid]"


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
