"""SQuAD v1.1: questions on a paragraph, each answered by a span of it."""

from __future__ import annotations

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
