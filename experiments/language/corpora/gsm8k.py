"""GSM8K: a word problem, answered by its steps and ``#### `` with the number."""

from __future__ import annotations

import re

from experiments.data.texts import Texts
from experiments.language import prompts
from experiments.language.corpora import Corpus, Example, shuffled


def corpus(texts: Texts) -> Corpus:
    """The official train and test sets. Calculator marks ``<<...>>`` are left out: there is no calculator."""

    def examples(part: str) -> tuple[Example, ...]:
        made = []
        for number, each in enumerate(texts.parts[f"{part}.jsonl"]):
            answer = re.sub(r"<<[^>]*>>", "", each["answer"]).strip()
            prompt = prompts.GSM8K.format(question=each["question"].strip())
            made.append(Example(prompt, answer, answer.rpartition("#### ")[2], f"{part}-{number}"))
        return tuple(shuffled(made, f"gsm8k/{part}"))

    return Corpus(examples("train"), examples("test"), texts.info)
