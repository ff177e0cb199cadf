"""What a piece of work is: its model, data and settings, in three sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from experiments.data.source import DataInfo
from ngn.measuring import multiply_adds
from ngn.sizes.base import ByImportance, Size
from ngn.train.batches import Batches
from ngn.train.plan import Autocast

FOR_LANGUAGE = ("Wanda, even", "Minitron", "Sheared-LLaMA's masks")
FOR_TRAINED = ("NGN, sizes fixed early", "as given")
SCALES = ("tiny", "small", "full")
"""tiny: seconds on synthetic data; small: affordable on two cores; full: the usual training of these models."""


@dataclass(frozen=True)
class Settings:
    """Settings of a training.

    Attributes:
        steps, batch: the same for all methods; steps before and after a cut count together.
        held: number of scored samples (images, characters).
        lr: peak rate of AdamW. It rises over the first twentieth of the steps, then falls along a cosine to 0.
        weight_decay: of all weights, decoupled: a step takes lr * weight_decay of each. Boundaries have none.
        before: fraction of the steps before a trained model is cut.
        restart: whether the learning rate restarts after the cut.
        strength: factor on a published method's own strength of sparsity, of its L1 norm or its barrier.
        K: largest number of components of a size that NGN learns.
        lr_boundary, commit: learning rate of NGN's boundaries, and the fraction of steps after which they are integers.
        autocast: "none" or "bf16", in which training steps compute; weights, optimiser and scores are in float32.
    """

    steps: int
    batch: int
    held: int
    lr: float = 3e-3
    weight_decay: float = 0.0
    before: float = 0.5
    restart: bool = False
    strength: float = 1.0
    K: int = 16
    lr_boundary: float = 0.2
    commit: float = 0.5
    autocast: Autocast = "none"


@dataclass(frozen=True, eq=False)
class Workload:
    """One piece of work.

    Attributes:
        model: width → model; width 1 is the dense model.
        sizes: the sizes that NGN learns and magnitude pruning cuts, with K components each.
        uncut: modules whose outputs Torch-Pruning may not cut.
        example: inputs of the timed forward pass.
        batches: seed → batches.
        score: scores a model in eval mode, on validation data or finally on test data.
        better: 1 if a higher score is better, else -1.
        limited: what a model may have only a share of.
        outside: the part of that which belongs to no size; the share is of the rest.
        order: the order in which units are kept where sizes are learned; None keeps the first.
        held_out: validation data on which NGN judges whether sizes may part; None where slopes alone say so.
        base: identity of the trained weights that every method starts from, if any.
        meaningless: methods that this work does not have: those that train another model from the start where all begin
            with trained weights, those for trained weights, those that need batch norm, and those for language models.
    """

    name: str
    unit: str
    better: int
    settings: Settings
    info: DataInfo
    model: Callable[[float], nn.Module]
    sizes: Callable[[int | None, ByImportance], dict[str, Size]]
    uncut: tuple[str, ...]
    example: Tensor
    batches: Callable[[int], Batches]
    loss: Callable[[nn.Module, Any], Tensor]
    score: Callable[[nn.Module, bool], float]
    limited: Literal["parameters", "macs"] = "parameters"
    outside: int = 0
    order: Literal["magnitude", "wanda"] | None = None
    held_out: Batches | None = None
    base: DataInfo | None = None
    meaningless: tuple[str, ...] = FOR_LANGUAGE + FOR_TRAINED

    def cost(self, model: nn.Module) -> int:
        """Count the parameters, or the multiply-adds for one sample; leave the model in eval mode."""
        model.eval()
        return COUNTS[self.limited](model, self.example[:1])


def computing(settings: Settings) -> torch.autocast:
    """The precision of training steps."""
    return torch.autocast("cpu", torch.bfloat16, enabled=settings.autocast == "bf16")


def parameters(model: nn.Module) -> int:
    """Count the parameters."""
    return sum(p.numel() for p in model.parameters())


COUNTS: dict[str, Callable[[nn.Module, Tensor], int]] = {
    "parameters": lambda model, _: parameters(model),
    "macs": lambda model, x: multiply_adds(lambda: model(x)),
}
