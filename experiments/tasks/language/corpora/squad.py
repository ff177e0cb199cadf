"""SQuAD v1.1: questions on a paragraph, each answered by a span of it.

The score: exact match and F1 of the normalised answer, each the maximum over the references.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from dataclasses import replace
from typing import Any

from experiments.data.texts import Texts
from experiments.tasks.language import prompts
from experiments.tasks.language.corpora import Corpus, Example, shuffled, split_by


def _examples(articles: list[dict[str, Any]]) -> list[Example]:
    made = []
    for article in articles:
        for paragraph in article["paragraphs"]:
            context = " ".join(paragraph["context"].split())
            for each in paragraph["qas"]:
                golds = tuple(answer["text"].strip() for answer in each["answers"])
                prompt = prompts.SQUAD.format(context=context, question=each["question"].strip())
                made.append(Example(prompt, golds[0], golds, each["id"]))
    return made


def make_corpus(texts: Texts) -> Corpus:
    """Return the official train and dev sets; without them, XQuAD with 80 % of its paragraphs for training."""
    info = texts.info
    if "train-v1.1.json" in texts.parts:
        train, test = _examples(texts.parts["train-v1.1.json"]), _examples(texts.parts["dev-v1.1.json"])
    else:
        every = _examples(texts.parts["xquad.en.json"])
        train, test = split_by(every, lambda each: each.prompt.rpartition("\nQuestion:")[0], "squad")
        info = replace(info, provenance=f"{info.provenance}; XQuAD (English), 80/20 by paragraph, in place of SQuAD")
    return Corpus(tuple(shuffled(train, "squad/train")), tuple(shuffled(test, "squad/test")), info)


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
