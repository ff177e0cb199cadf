"""Adapt a language model with low-rank terms, adapters, or fewer of its own heads and neurons.

Training and scores use questions and their answers.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import math
from typing import Any

import torch
from torch import Tensor, nn

from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.task import CapacityOf, DataInfo, Seeds, Task
from experiments.core.training import Train
from experiments.data import data_root, synthetic, texts
from experiments.models.adapter import attach_adapters
from experiments.models.trainer import StudyTrainer
from experiments.store.provenance import combined_digest
from experiments.tasks.base import MiniBatches
from experiments.tasks.language import Adaptation, pruning
from experiments.tasks.language.base import PretrainedModel, load_base, tiny_base
from experiments.tasks.language.components import AdapterComponent, Attached, LoRAComponent, PruneComponent, thirds
from experiments.tasks.language.corpora import Corpus, Example
from experiments.tasks.language.generation import generate_greedy
from experiments.tasks.language.packing import Packed, Tokens, pack, token_losses
from experiments.tasks.language.perplexity import documents, perplexity, perplexity_chunks, replay_windows
from experiments.tasks.language.prompts import prompt_ids, target_ids
from ngn.components.low_rank import attach_low_rank
from ngn.learner import Learner
from ngn.methods.batch import GateBatch
from ngn.methods.ngn import CountGate
from ngn.streams import generator
from ngn.train.batches import Batches, Split
from ngn.train.progress import ProgressLine

SMOKE = {"train_examples": 64, "eval_examples": 8, "max_new_tokens": 12, "perplexity_tokens": 256}
"""Upper limits of the smoke profile."""


class Replayed(Batches):
    """Batches of questions, each with one window of general text for next-token prediction.

    The stream (seed, "replay") sets the order of the windows; after the last window, the order starts again.
    """

    def __init__(self, questions: MiniBatches, windows: list[Tokens], seed: int, device: torch.device) -> None:
        self.questions, self.windows, self.device = questions, windows, device
        self.order = torch.randperm(len(windows), generator=generator(seed, "replay")).tolist()

    def at(self, index: int) -> tuple[Packed, Tensor]:
        sequences, numbers = self.questions.at(index)
        return pack([*sequences, self.windows[self.order[index % len(self.order)]]], self.device), numbers


class WithoutSizes(Learner):
    """A model without learned sizes."""

    def count(self) -> Tensor:
        """Return no counts: int64 [0]."""
        return torch.zeros(0, dtype=torch.int64)


class AdaptationTask(Task[Attached]):
    """Answers to questions of one corpus.

    Attributes:
        base: the frozen model, loaded once per process.
        home: the device on which models are built.
        examples, held: the questions for the scores, and their tokens.
        train: tokens of the training questions.
        chunks: tokens of general text, for the perplexity.
        plan: the settings of the training. They give the batches for measuring the order of heads and neurons.
        recomputes: whether the backward pass computes activations again.
        replay: windows of further general text for training; empty without ``task.replay``.
        trained: seed → the model of ``gate.backbone=trained``, once it has been trained.
    """

    base: PretrainedModel
    scored = ("truncated", "soft")

    def __init__(self, settings: Adaptation, config: Config, device: torch.device) -> None:
        smoke = config.profile == "smoke"
        root = data_root(config.data_root)
        if smoke:
            own = settings.model_dump(include=set(SMOKE))
            less = {name: most if own[name] is None else min(own[name], most) for name, most in SMOKE.items()}
            settings = settings.model_copy(update=less)
            self.base = tiny_base(device)
        else:
            assert config.model is not None, "Config has checked it"
            self.base = load_base(config.model, root, device)
        if isinstance(config.gate, LoRAComponent):
            self.base = self.base.taken_apart()
        self.settings, self.device, self.progress, self.plan = settings, device, config.progress, config.train
        self.recomputes = config.model is not None and config.model.gradient_checkpointing
        self.trained: dict[int, PretrainedModel] = {}
        self.prunes = self.keeps_frozen = isinstance(config.gate, PruneComponent)
        corpora = importlib.import_module(f"experiments.tasks.language.corpora.{settings.corpus}")
        self._score = corpora.score
        source = synthetic.corpora()[settings.corpus] if smoke else texts.SETS[settings.corpus].load_data(root)
        general = synthetic.corpora()["general"] if smoke else texts.SETS[settings.general].load_data(root)
        corpus = corpora.make_corpus(source, *(() if settings.subset is None else (settings.subset,)))
        self.examples, self.train = self._chosen(corpus)
        self.held = [self._tokens(each) for each in self.examples]
        text = documents(general)
        self.chunks = perplexity_chunks(self.base, text, settings.perplexity_tokens)
        provenance = f"{corpus.info.provenance} | forgetting on {general.info.name}: {general.info.provenance}"
        self.replay: list[Tokens] = []
        if settings.replay:
            self.replay = replay_windows(self.base, text, settings.perplexity_tokens, settings.replay)
            provenance += f" | mixed with text of {general.info.name} behind what forgetting is measured on"
        digest = combined_digest({"corpus": corpus.info.sha256, "general": general.info.sha256})
        self.info = DataInfo(settings.name, digest, provenance)
        self.base_info = self.base.info
        answers = sum(len(target) for _, target in self.held)
        predicted = sum(len(chunk) - 1 for chunk in self.chunks)
        self.n = {name: len(self.examples) for name in corpora.NAMES} | {"nats": answers, "perplexity": predicted}

    def _tokens(self, example: Example) -> Tokens:
        tokenizer, style = self.base.tokenizer, self.settings.prompt
        return prompt_ids(tokenizer, example.prompt, style), target_ids(tokenizer, example.target, style)

    def _chosen(self, corpus: Corpus) -> tuple[list[Example], list[Tokens]]:
        """Return the questions for the scores, and the tokens of the training questions."""
        settings, held, pool = self.settings, corpus.test, corpus.train
        count = len(held) if settings.eval_examples is None else min(settings.eval_examples, len(held))
        if settings.split == "validation":
            # The last ones, so that the first training questions stay the same as without validation.
            count = min(count, len(pool) // 2)
            held, pool = pool[-count:], pool[:-count]
        train: list[Tokens] = []
        total = 0
        for each in pool:
            if len(train) == settings.train_examples:
                break
            tokens = self._tokens(each)
            size = sum(map(len, tokens))
            if settings.max_tokens is not None and size > settings.max_tokens:
                continue
            if settings.train_tokens is not None and total + size > settings.train_tokens:
                break
            train.append(tokens)
            total += size
        if not train or not held:
            raise ConfigError(
                f"task={settings.name}: no question is left to train on; raise task.max_tokens or task.train_tokens"
            )
        return list(held[:count]), train

    def fresh(self, base: PretrainedModel | None = None) -> nn.Module:
        """Return a copy of a frozen model, by default the base, for new components. It shares its parameters."""
        base = base or self.base
        base.model.to(self.device)
        model = base.shared_copy()
        if self.recomputes:
            model.activation_checkpointing_enable()
        return model

    def targets(self, gate: Attached) -> list[str]:
        """Return the full names of the modules with components.

        They are linear maps for ``gate=lora``, attention and feed-forward modules for ``gate=prune``, and decoder
        layers for ``gate=adapter``.

        Raises:
            ConfigError: if the model has another number of layers than ``gate.layers``.
        """
        layers = self.base.layers
        if len(layers) != gate.layers:
            raise ConfigError(f"gate.layers={gate.layers}, but {self.base.info.name} has {len(layers)} decoder layers")
        if isinstance(gate, PruneComponent):
            return [part.module for part in pruning.prunable_parts(self.base, gate.group_kinds)]
        return self.base.maps(gate.targets) if isinstance(gate, LoRAComponent) else layers

    def model(self, gate: Attached, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        """Return the frozen model with K components at each of the targets, for one seed."""
        assert isinstance(seeds, int), "runs of a language model are not stacked"
        targets = self.targets(gate)
        if isinstance(gate, PruneComponent):
            model = self._prunable(gate, seeds, capacity)
        elif isinstance(gate, AdapterComponent):
            features = self.base.model.config.hidden_size
            attach_adapters(model := self.fresh(), targets, features, capacity, seeds, gate.width)
        else:
            attach_low_rank(model := self.fresh(), targets, capacity, seeds)
        if self.device.type != "cpu":  # there thousands of small kernels cost time; here records stay to the last bit
            GateBatch(model, [module for module in model.modules() if isinstance(module, CountGate)])
        return model

    def _prunable(self, gate: PruneComponent, seed: int, capacity: CapacityOf) -> nn.Module:
        """Return the pretrained model with learned sizes of its heads and neurons, or cut to a fixed count."""
        base = self._trained(seed) if gate.backbone == "trained" else self.base
        model, parts = self.fresh(base), pruning.prunable_parts(base, gate.group_kinds)
        capacities = [capacity(group) for group in range(gate.groups)]
        left = [each.K / (gate.K_of(number) or each.K) for number, each in enumerate(capacities)]
        if gate.rank_by != "index" or min(left) < 1:
            model = pruning.ordered_prefix(model, parts, self._order(gate, base, parts, seed), left)
        if gate.backbone == "updated":
            model = self._trainable(model)
        return pruning.learn_prefix(model, parts, capacities)

    def _trainable(self, model: nn.Module) -> nn.Module:
        """Return a copy of the base, or of a part of it, whose weights all train; the base waits on the host."""
        model = copy.deepcopy(model).requires_grad_(True)
        if self.plan.optimizer != "adamw8bit":  # which rounds stochastically, and needs no float32 weights
            model = model.float()
        if self.device.type != "cpu":
            self.base.model.to("cpu")  # until :meth:`fresh` needs it
        return model

    def _trained(self, seed: int) -> PretrainedModel:
        """Return the base after a training of all its weights at full size, by the plan of the run, frozen again.

        The last one is kept: a task builds the model of a run several times.
        """
        if seed not in self.trained:
            learner = WithoutSizes(self._trainable(self.fresh())).to(self.device)
            StudyTrainer(
                learner, self.batches(self.plan, seed), self.loss, self.plan.plan(len(self.train)), weight=self.weight,
                progress=self.progress, title=f"{self.settings.name} s{seed} all weights",
                eight_bit=self.plan.optimizer == "adamw8bit",
            ).fit()  # fmt: skip
            frozen = learner.model.requires_grad_(False).eval()
            self.trained = {seed: dataclasses.replace(self.base, model=frozen)}
        return self.trained[seed]

    def _order(
        self, gate: PruneComponent, base: PretrainedModel, parts: list[pruning.PrunablePart], seed: int
    ) -> dict[str, Tensor] | None:
        """Return module → order of its heads or neurons; None for the order in the model."""
        if gate.rank_by == "index":
            return None
        if gate.rank_by == "random":
            return {part.module: pruning.random_order(gate.draw, part.module, part.size) for part in parts}
        batches, steps = self.batches(self.plan, seed), math.ceil(gate.calibration / (self.plan.batch or 1))
        seen = (batches.at(step)[0] for step in range(steps))
        scores = pruning.wanda_scores(base.model, [part.map for part in parts], seen)
        return {part.module: pruning.order_by_score(scores[part.map], part.size) for part in parts}

    def describe(self, deployed: nn.Module) -> dict[str, Any]:
        """Return the weights of a pruned model per third of its layers, as [after pruning, before]."""
        if not self.prunes:
            return {}
        columns = zip(*pruning.weights_left(self.base, deployed), strict=True)
        by_third = zip(*map(thirds, columns), strict=True)
        return {"kept": {name: list(pair) for name, pair in zip(("early", "middle", "late"), by_third, strict=True)}}

    def loss(self, model: nn.Module, batch: tuple[Packed, Any]) -> Tensor:
        """Return the mean cross-entropy in nats per predicted token: answers, and general text of ``task.replay``."""
        return token_losses(model, batch[0]).mean()

    def weight(self, batch: tuple[Packed, Any]) -> float:
        """Return the number of predicted tokens."""
        return float(len(batch[0].targets))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, Tensor]:
        """Return scores of greedy answers in per cent, nats per token of the right answers, and the perplexity."""
        settings = self.settings
        prompts = [prompt for prompt, _ in self.held]
        with ProgressLine(f"{settings.name} answers", len(prompts), mode=self.progress, unit="question") as bar:

            def answered(count: int) -> None:
                if bar.due():
                    bar.show(count, "")

            answers = generate_greedy(
                model, self.base, prompts, settings.max_new_tokens, settings.stops, settings.eval_batch, answered
            )
        scored = [self._score(answer, each) for answer, each in zip(answers, self.examples, strict=True)]
        result = {name: 100.0 * sum(each[name] for each in scored) / len(scored) for name in scored[0]}
        total = 0.0
        for start in range(0, len(self.held), settings.eval_batch):
            total += float(
                token_losses(model, pack(self.held[start : start + settings.eval_batch], self.device)).double().sum()
            )
        result["nats"] = total / self.n["nats"]
        result["perplexity"] = perplexity(model, self.chunks, self.device)
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in result.items()}

    def batches(self, train: Train, seeds: Seeds) -> Batches:
        """Return batches of packed questions. The stream (s, "data", e) sets the order in epoch e of seed s."""
        numbers = torch.arange(len(self.train))
        split = Split(numbers, numbers)
        assert train.batch is not None, "Config has checked it"

        def sequences(chosen: Tensor) -> list[Tokens]:
            return [self.train[number] for number in chosen]

        if self.replay:
            assert isinstance(seeds, int), "runs of a language model are not stacked"
            return Replayed(MiniBatches(split, train.batch, seeds, sequences), self.replay, seeds, self.device)
        return MiniBatches(split, train.batch, seeds, lambda chosen: pack(sequences(chosen), self.device))

    def samples(self, train: Train) -> int:
        """Return the number of training questions."""
        return len(self.train)

    def timed_batch(self) -> tuple[Any, int]:
        """Return the first ``task.eval_batch`` questions, packed, and their number."""
        chosen = self.held[: self.settings.eval_batch]
        return pack(chosen, self.device), len(chosen)
