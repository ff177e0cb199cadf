"""EVA (Paischer et al., "One initialization to rule them all: fine-tuning via explained variance adaptation", 2024):
ranks and directions of low-rank terms from the inputs of their maps.

    X = U S V' - the inputs of a map, centred;  explained variance of direction k: s_k^2 / sum_j s_j^2

The largest of all maps get a term each: A_k = v_k, B_k = 0. peft's implementation decomposes batch after batch until
the directions stand still; here the batches are decomposed together. Terms are added with a weight of one, as those of
all methods of the suite, where the authors scale each map by its rank.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from experiments.methods.low_rank.svd import SharedTotal
from ngn.gate import prefix
from ngn.methods.base import Mode
from ngn.methods.fixed import Retained


class Allotted(Retained):
    """Use the first ``left`` of K components, in training too."""

    def gates(self, mode: Mode) -> Tensor:
        return prefix(self.left, self.K).to(torch.float64)


class ExplainedVarianceLearner(SharedTotal):
    """Allot terms to maps by the explained variance of their inputs, then train them.

    Args:
        model, total: see :class:`SharedTotal`.
        batches: number of training batches, from the first, whose activations are read.
        loss: (model, batch) → loss; it runs the model on a batch.
    """

    kind = Allotted

    def __init__(self, model: nn.Module, total: int, batches: int, loss: Callable[[nn.Module, Any], Tensor]) -> None:
        super().__init__(model, total)
        self.batches, self.loss = batches, loss

    @torch.no_grad()
    def prepare(self, batches: Any) -> None:
        """Set the ranks, and the directions of the terms that are in use."""
        bases = [_directions(*sums) for sums in self._sums(batches)]
        ranks = self.keep_largest([ratios[: c.K] for (ratios, _), c in zip(bases, self.capacities, strict=True)])
        for map_, rank, (_, directions) in zip(self.maps, ranks, bases, strict=True):
            map_.down[:rank] = directions[:rank].to(map_.down)

    def _sums(self, batches: Any) -> list[tuple[int, Tensor, Tensor]]:
        """Number of inputs, their sum [in] and X' X [in, in] in float64, of each map."""
        sums: list[Any] = [(0, 0.0, 0.0)] * len(self.maps)

        def hook(number: int) -> Callable[[nn.Module, Any], None]:
            def add(_: nn.Module, args: Any) -> None:
                x = args[0].flatten(0, -2).double()
                n, total, products = sums[number]
                sums[number] = n + len(x), total + x.sum(0), products + x.T @ x

            return add

        with ExitStack() as hooks:
            for number, map_ in enumerate(self.maps):
                hooks.enter_context(map_.register_forward_pre_hook(hook(number)))
            for number in range(self.batches):
                self.loss(self.model, batches.at(number))
        return sums


def _directions(n: int, total: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """Explained variances, falling, [in], and directions as rows, [in, in], of centred inputs."""
    centred = products - torch.outer(total, total) / n
    values, vectors = torch.linalg.eigh(centred)
    return values.flip(0).clamp(min=0) / centred.trace(), vectors.T.flip(0)
