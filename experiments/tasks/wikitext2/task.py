"""Make a trained language model smaller and heal it on general text; the score is nats per token."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ngn
from experiments.core.config import Config
from experiments.core.task import ModuleTask, Seeds
from experiments.core.training import Train
from experiments.data import data_root, synthetic, texts
from experiments.tasks.base import TokenBatches
from experiments.tasks.language.base import load_base, tiny_base
from experiments.tasks.language.perplexity import documents
from experiments.tasks.wikitext2 import NeuronsComponent, WikiText2
from ngn.train.batches import Batches

TIMED = 4
"""Windows of the timed forward pass."""


class HealingTask(ModuleTask[NeuronsComponent]):
    """Next tokens of general text; windows of ``context`` tokens."""

    by_importance = "wanda"
    timed_samples = TIMED

    def __init__(self, settings: WikiText2, config: Config, device: torch.device) -> None:
        assert isinstance(config.gate, NeuronsComponent)
        root = data_root(config.data_root)
        if config.profile == "smoke":
            base, read = tiny_base(device, config.gate.layers), synthetic.corpora()["general"]
            self.context, held = 32, 200
        else:
            assert config.model is not None, "Config has checked it"
            base, read = load_base(config.model, root, device), texts.WIKITEXT2.load_data(root)
            self.context, held = settings.context, settings.held
        self.base, self.base_info, self.info, self.device = base.model, base.info, read.info, device
        self.outside = sum(p.numel() for name, p in self.base.named_parameters() if ".mlp." not in name)
        text = base.tokenizer("\n\n".join(documents(read)), add_special_tokens=False)["input_ids"]
        final, chosen, self.tokens = np.split(np.array(text), [held, 2 * held])
        self.held = final if settings.split == "test" else chosen
        self.shown = chosen

    def module(self, seed: int, width: float = 1.0) -> nn.Module:
        made: nn.Module = copy.deepcopy(self.base).float().requires_grad_(True)
        return made

    def sizes(self, module: nn.Module, K: int | None, order: Any = None) -> dict[str, ngn.Width]:
        return {"model.layers.*.mlp": ngn.Width(K, order)}

    def counts(self, module: nn.Module) -> list[int]:
        layers: Any = module.get_submodule("model.layers")
        return [layer.mlp.up_proj.out_features for layer in layers]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean cross-entropy in nats per token."""
        return self._nats(model, batch) / batch[1].numel()

    def _nats(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        logits = model(input_ids=batch[0], use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), batch[1].flatten(), reduction="sum")

    def evaluate(self, model: nn.Module) -> dict[str, Tensor]:
        x, y = self._windows(self.held, len(self.held))
        with torch.autocast(self.device.type, enabled=False):  # steps may be in bfloat16, scores are in float32
            parts = [self._nats(model, pair).double() for pair in zip(x.split(TIMED), y.split(TIMED), strict=True)]
        return {"loss": torch.stack(parts).sum() / y.numel()}

    def batches(self, train: Train, seeds: Seeds) -> Batches:
        assert train.batch is not None
        assert isinstance(seeds, int)
        used = train.batch * self.context * train.steps_on(self.samples(train)) + 2 * self.context
        return TokenBatches(self.tokens[:used], self.context, train.batch, seeds, self.device)

    def samples(self, train: Train) -> int:
        """Return the number of windows in an epoch."""
        return (len(self.tokens) - self.context) // self.context

    def timed_batch(self) -> tuple[Any, int]:
        x = self._windows(self.shown, TIMED * self.context + 1)[0]
        return x, len(x)

    def _windows(self, tokens: np.ndarray, held: int) -> tuple[Tensor, Tensor]:
        """Windows of the first ``held`` tokens and the tokens that follow, int64 [n, context] each."""
        n = (min(held, len(tokens)) - 1) // self.context
        at = torch.from_numpy(tokens[: n * self.context + 1].astype(np.int64)).to(self.device)
        return at[:-1].view(n, self.context), at[1:].view(n, self.context)
