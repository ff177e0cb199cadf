"""GSM8K: word problems; the answer gives the steps, then ``#### `` and the number."""

from __future__ import annotations

import re

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
