"""``task=wikitext2``: a trained language model made smaller, and healed on general text."""

from __future__ import annotations

from typing import Literal

from experiments.core.blocks import Count
from experiments.core.config import Config
from experiments.tasks.settings import Benchmark, ModuleComponent


class NeuronsComponent(ModuleComponent):
    """Neurons of the feed-forward blocks of a trained language model of ``layers`` layers."""

    component: Literal["neurons"]
    layers: Count

    @property
    def groups(self) -> int:
        return self.layers


class WikiText2(Benchmark):
    """The test part of WikiText-2: its beginning for the final scores, then as much to choose settings, then training.

    A trained model knows such text, so a short training heals what a cut took.
    """

    made_by = "task.HealingTask"
    components = (NeuronsComponent,)
    usual_samples = 240
    usual_model = "smollm2_135m"
    packages = ("transformers", "tokenizers")

    name: Literal["wikitext2"]
    context: Count
    """Tokens in one input."""
    held: Count
    """Tokens for the scores."""

    def check(self, config: Config) -> None:
        if config.train.batch is None:
            raise ValueError("task=wikitext2 trains on batches of windows: set train.batch")
