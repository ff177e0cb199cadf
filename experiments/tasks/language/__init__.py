"""``task=wikisql_easy`` and others: a pretrained language model is adapted to a data set of questions and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from experiments.blocks import Count, NonNegativeInt
from experiments.tasks.language.components import AdapterComponent, LoRAComponent, PruneComponent
from experiments.tasks.settings import Benchmark

if TYPE_CHECKING:
    import torch

    from experiments.contract.config import Config
    from experiments.tasks.language.task import AdaptationTask


class Adaptation(Benchmark):
    """Questions and answers: trained on ``train_examples`` of them, scored on ``eval_examples`` others.

    Which they are is fixed, and the same for all seeds: the first of a shuffled list. ``split=validation`` scores on
    training questions that are held out.

    Attributes:
        corpus: module in ``experiments.language.corpora`` and ``.scores``.
        subset: what of the corpus, where it has parts.
        stops: what ends an answer beside the end of text.
    """

    components = (LoRAComponent, AdapterComponent, PruneComponent)
    corpus: ClassVar[str]
    subset: ClassVar[str | None] = None
    stops: ClassVar[tuple[str, ...]] = ("\n",)
    usual_samples: ClassVar[int] = 800
    usual_model: ClassVar[str] = "smollm2_135m"
    packages: ClassVar[tuple[str, ...]] = ("transformers", "tokenizers")

    train_examples: Count | None = None
    """Null for all."""
    train_tokens: Count | None = None
    """The first of them with at most so many tokens altogether, prompts and answers; null for no limit."""
    eval_examples: Count | None = None
    """Null for all."""
    max_new_tokens: Count
    """Where an answer without an end is cut."""
    prompt: Literal["plain", "chat"] = "plain"
    """``experiments/language/prompts.py`` as it stands, or in the chat template of the model."""
    max_tokens: Count | None = None
    """Training examples of more tokens, prompt and answer, are left out; null for none. Tests are never left out."""
    general: Literal["wikitext2", "pile10k"] = "wikitext2"
    """Text on which forgetting is measured."""
    perplexity_tokens: Count
    """Of that text, the first."""
    replay: NonNegativeInt = 0
    """Tokens of other general text that every step trains on beside its questions; 0 for none."""
    eval_batch: Count = 32
    """Questions answered at once."""

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.corpus, self.general)

    def check(self, config: Config) -> None:
        if config.train.batch is None:
            raise ValueError(f"task={self.name} packs a number of questions into a step: give train.batch")

    def make(self, config: Config, device: torch.device) -> AdaptationTask:
        from experiments.tasks.language.task import AdaptationTask

        return AdaptationTask(self, config, device)


class WikiSQLEasy(Adaptation):
    """WikiSQL questions with exactly one condition."""

    corpus: ClassVar[str] = "wikisql"
    subset: ClassVar[str | None] = "easy"

    name: Literal["wikisql_easy"]


class WikiSQLHard(Adaptation):
    """WikiSQL questions with two or more conditions, and as many with one."""

    corpus: ClassVar[str] = "wikisql"
    subset: ClassVar[str | None] = "hard"

    name: Literal["wikisql_hard"]


class Spider(Adaptation):
    """Questions over the schemas of many databases."""

    corpus: ClassVar[str] = "spider"

    name: Literal["spider"]


class GSM8K(Adaptation):
    """Grade-school word problems, answered step by step."""

    corpus: ClassVar[str] = "gsm8k"
    stops: ClassVar[tuple[str, ...]] = ("Question:",)

    name: Literal["gsm8k"]


class SQuAD(Adaptation):
    """Questions on a paragraph, answered by a part of it."""

    corpus: ClassVar[str] = "squad"

    name: Literal["squad"]
