"""``task=wikisql_easy`` and others: adapt a pretrained language model to a data set of questions and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from experiments.core.blocks import Count, NonNegativeInt
from experiments.core.config import Config
from experiments.tasks.language.components import AdapterComponent, LoRAComponent, PruneComponent
from experiments.tasks.settings import Benchmark

TOKEN = {
    ("llama3_8b", "lora"): 4.1e-4,
    ("llama3_8b", "adapter"): 3.1e-4,
    ("llama3_8b", "prune"): 7.5e-4,
    ("pythia_410m", "prune"): 1e-3,
}
"""Model and component → seconds of one A100 for a training token. ``benchmarks/bench_llama.py`` on an H100, times two;
all weights cost twice the frozen ones by arithmetic. Pythia: as SmolLM2's pruning on an H100 with other work."""
ANSWER = 0.05
"""Seconds for a token of all answers of a batch: as SmolLM2's scores on that H100 (0.04 to 0.08)."""


class Adaptation(Benchmark):
    """Training on ``train_examples`` questions with answers; scores on ``eval_examples`` other questions.

    All seeds use the same questions: the first of a list in a fixed, shuffled order. ``split=validation`` holds out
    training questions and scores on them.

    Attributes:
        corpus: module in ``experiments.tasks.language.corpora``.
        subset: name of a part of the corpus; None for all.
        stops: strings that end an answer, in addition to the end-of-text token.
        tokens: of a training question with its answer, by SmolLM2's tokenizer.
    """

    made_by = "task.AdaptationTask"
    components = (LoRAComponent, AdapterComponent, PruneComponent)
    corpus: ClassVar[str]
    subset: ClassVar[str | None] = None
    stops: ClassVar[tuple[str, ...]] = ("\n",)
    tokens: ClassVar[int]
    usual_samples = 800
    usual_model = "smollm2_135m"
    packages = ("transformers", "tokenizers")

    train_examples: Count | None = None
    """Number of training questions; null for all."""
    train_tokens: Count | None = None
    """Limit on the total tokens of prompts and answers: the first questions within it are used. Null for no limit."""
    eval_examples: Count | None = None
    """Number of questions for the scores; null for all."""
    max_new_tokens: Count
    """Most tokens of a generated answer."""
    prompt: Literal["plain", "chat"] = "plain"
    """The prompt, by ``tasks/language/prompts.py``: plain text, or inside a chat template."""
    max_tokens: Count | None = None
    """Most tokens of a training example, prompt and answer; longer ones are dropped. Null for no limit."""
    general: Literal["wikitext2", "pile10k"] = "wikitext2"
    """General text for measuring forgetting."""
    perplexity_tokens: Count
    """Number of tokens of this text, from its start."""
    replay: NonNegativeInt = 0
    """Tokens of further general text in every training step, in addition to the questions; 0 for none."""
    eval_batch: Count = 32
    """Questions answered in one batch."""

    @property
    def data_sets(self) -> Mapping[str, str]:
        return {"corpus": self.corpus, "general": self.general}

    def seconds(self, config: Config) -> float | None:
        train, asked, trains = config.train, self.eval_examples, config.method.name != "base"
        each = TOKEN.get((config.model.name if config.model else "", config.gate.component), None if trains else 0.0)
        if each is None or asked is None or train.batch is None or train.epochs is None or self.train_examples is None:
            return None
        trained = config.trainings * train.epochs * self.train_examples * (self.tokens + self.replay / train.batch)
        scores = config.trainings + trains * (config.method.sizes(config.gate) is None)
        return each * trained * trains + ANSWER * scores * -(-asked // self.eval_batch) * self.max_new_tokens

    def check(self, config: Config) -> None:
        if config.train.batch is None:
            raise ValueError(f"task={self.name} packs several questions into each step: set train.batch")


class WikiSQLEasy(Adaptation):
    """WikiSQL questions with exactly one condition."""

    corpus = "wikisql"
    subset = "easy"
    tokens = 61

    name: Literal["wikisql_easy"]


class WikiSQLHard(Adaptation):
    """WikiSQL questions with two or more conditions, and equally many with one."""

    corpus = "wikisql"
    subset = "hard"
    tokens = 71

    name: Literal["wikisql_hard"]


class Spider(Adaptation):
    """Questions about many databases, answered in SQL."""

    corpus = "spider"
    tokens = 165

    name: Literal["spider"]


class GSM8K(Adaptation):
    """Grade-school word problems, answered step by step."""

    corpus = "gsm8k"
    tokens = 161
    stops = ("Question:",)

    name: Literal["gsm8k"]


class SQuAD(Adaptation):
    """Questions about a paragraph, answered by a span of it."""

    corpus = "squad"
    tokens = 183

    name: Literal["squad"]
