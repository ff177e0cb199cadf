"""AdaLoRA (Zhang et al., "Adaptive Budget Allocation for Parameter-Efficient Fine-Tuning", ICLR 2023), by peft.

    y = W x + B diag(E) A x * alpha / r,  E = 0 at the start, r the rank at the start

peft scores triplets and masks E. This learner adds what peft leaves to the training loop:

- It calls the allocator after every optimiser step, while the gradients exist.
- It adds the orthogonality penalty, which peft adds only to a loss that the model computes itself.
- It accepts a total that is not a multiple of the number of maps.
- It saves the moving averages, which peft's files do not hold, in checkpoints.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.methods.low_rank import AdaLoRA
from ngn.components.low_rank import LowRankLinear, replace
from ngn.cut.truncation import deploy
from ngn.learner import Learner
from ngn.methods.fixed import FixedCount
from ngn.streams import generator

ADAPTER = "default"
AVERAGES = ("exp_avg_ipt", "exp_avg_unc")
"""peft's names for the moving averages of sensitivity and uncertainty."""


class AdaLoRALearner(Learner):
    """Learn which triplets of the linear maps of a causal language model stay.

    Args:
        model: frozen; its maps are replaced.
        targets: names of the maps, in the order of the counts.
        settings: how many triplets stay over all maps, and when they fall to that number.
        start: triplets of each map at the start.
        steps: optimiser steps of the training.
        seed: seeds A and B, together with the name of the map; their standard deviation is 0.02.

    Raises:
        ValueError: if the total leaves nothing to allocate, or no step is left for the allocation.
    """

    kept: Tensor
    """bool [maps, start]"""

    def __init__(
        self, model: Any, targets: Sequence[str], settings: AdaLoRA, start: int, steps: int, seed: int
    ) -> None:
        from peft import AdaLoraConfig, get_peft_model

        super().__init__(model)
        self.targets, self.total, self.orthogonality = tuple(targets), settings.total, settings.orthogonality
        initial, final = int(settings.initial * steps), int(settings.final * steps)
        self.start, self.last = start, steps - final
        if not 0 <= self.total < start * len(targets):
            raise ValueError(
                f"a total of {self.total} triplets is out of range: expected 0 to {start * len(targets) - 1}"
            )
        if initial >= self.last or self.last < 2:
            raise ValueError(
                f"{steps} steps are too few: the budget falls between the first {initial} and the last {final}"
            )
        config = AdaLoraConfig(
            task_type="CAUSAL_LM", target_modules=list(targets), init_r=start, lora_alpha=settings.alpha,
            tinit=initial, tfinal=final, deltaT=settings.every, beta1=settings.beta1, beta2=settings.beta2,
            orth_reg_weight=self.orthogonality, total_step=steps,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft uses an old name of transformers
            tuner: Any = get_peft_model(model, config, ADAPTER).base_model
        tuner.rankallocator.target_bgt = self.total
        self._tuner = (tuner,)  # in a tuple: as a submodule it would register the model twice
        self.register_buffer("kept", torch.ones(len(targets), start, dtype=torch.bool))
        for name in targets:
            for letter, weight in (("A", self._layer(name).lora_A), ("B", self._layer(name).lora_B)):
                source = generator(seed, "init", name, letter)
                weight[ADAPTER].data.copy_(0.02 * torch.randn(weight[ADAPTER].shape, generator=source))

    def _layer(self, name: str) -> Any:
        return self.model.get_submodule(name)

    def penalty(self) -> Tensor:
        """Return the orthogonality weight times the mean over all A and B of the norm of A A' - I, or B' B - I."""
        maps = [self._layer(name) for name in self.targets]
        grams = [a @ a.T for layer in maps for a in (layer.lora_A[ADAPTER], layer.lora_B[ADAPTER].T)]
        eye = torch.eye(self.start, device=grams[0].device)
        return self.orthogonality * torch.linalg.matrix_norm(torch.stack(grams) - eye).mean()

    def after_step(self, step: int) -> None:
        """Let peft score the triplets by the gradients of this step and mask the dropped ones.

        Raises:
            RuntimeError: if the final allocation differs from the total, which equal scores can cause.
        """
        (tuner,), now = self._tuner, step + 1
        tuner.update_and_allocate(now)
        pattern = tuner.peft_config[ADAPTER].rank_pattern
        if pattern:
            rows = [pattern[f"{name}.lora_E.{ADAPTER}"] for name in self.targets]
            self.kept.copy_(torch.tensor(rows))
        if now == self.last and int(self.kept.sum()) != self.total:
            raise RuntimeError(f"AdaLoRA allocated {int(self.kept.sum())} triplets instead of {self.total}")

    def count(self) -> Tensor:
        """Return how many triplets of each map the last allocation kept."""
        return self.kept.sum(-1)

    def state(self) -> dict[str, Tensor]:
        """Return the learner's state with the moving averages of the scores."""
        allocator = self._tuner[0].rankallocator
        averages = {f"{kind}.{name}": value for kind in AVERAGES for name, value in getattr(allocator, kind).items()}
        return super().state() | averages

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        super().restore(tensors)
        allocator, config = self._tuner[0].rankallocator, self._tuner[0].peft_config[ADAPTER]
        for kind in AVERAGES:
            averages = getattr(allocator, kind)
            for name, p in self.model.named_parameters():
                if f"{kind}.{name}" in tensors:
                    averages[name] = tensors[f"{kind}.{name}"].to(p.device)
                    allocator.ipt[name] = torch.zeros_like(p)
        config.rank_pattern = {
            f"{name}.lora_E.{ADAPTER}": row for name, row in zip(self.targets, self.kept.tolist(), strict=True)
        }

    @torch.no_grad()
    def cut(self, replica: int | None = None, share_frozen: bool = False) -> nn.Module:
        """Return the model with low-rank terms for the kept triplets: down = diag(E) A, up = B alpha / r."""
        shared = {id(p): p for p in self.model.parameters() if share_frozen and not p.requires_grad}
        model = copy.deepcopy(self.model, shared)
        for name, kept in zip(self.targets, self.kept, strict=True):
            replace(model, name, partial(_terms, kept))
        return deploy(model, share_frozen=share_frozen)


def _terms(kept: Tensor, layer: Any) -> LowRankLinear:
    """Turn a map of peft into low-rank terms of weight one, with the triplets ``kept``, bool [start]."""
    terms = LowRankLinear(layer.get_base_layer(), FixedCount(int(kept.sum()), r=1.0), seed=0, name="")
    terms.down.copy_((layer.lora_A[ADAPTER] * layer.lora_E[ADAPTER])[kept])
    # peft divides by ranknum, which keeps its initial value, plus 1e-5
    terms.up.copy_(layer.lora_B[ADAPTER][:, kept] * (layer.scaling[ADAPTER] / (layer.ranknum[ADAPTER] + 1e-5)))
    return terms
