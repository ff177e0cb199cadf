"""Keep a total of low-rank terms over all maps, by one value of each: singular values, or explained variances (EVA)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ngn.components.low_rank import LowRankLinear
from ngn.gate import prefix
from ngn.learner import Learner
from ngn.methods.base import Mode
from ngn.methods.fixed import Retained


class SharedTotal(Learner):
    """Divide a total of plain low-rank terms among maps.

    Args:
        model: a model whose axes belong to :class:`~ngn.components.low_rank.LowRankLinear` modules, with capacities of
            :attr:`kind` and weights of one.
        total: terms to keep, summed over the maps.

    Raises:
        ValueError: if an axis is of another kind, or the total is not between 0 and the number of terms.
    """

    kind: ClassVar[type[Retained]] = Retained

    def __init__(self, model: nn.Module, total: int) -> None:
        super().__init__(model)
        self.maps = [module for module in model.modules() if isinstance(module, LowRankLinear)]
        self.capacities: list[Retained] = [axis.capacity for axis in self.axes]  # type: ignore[misc]
        plain = all(isinstance(c, self.kind) and bool((c.w == 1).all()) for c in self.capacities)
        if not plain or [map_.axis for map_ in self.maps] != self.axes:
            what = f"with capacities of {self.kind.__name__} and weights of one"
            raise ValueError(f"every axis must belong to a LowRankLinear, {what}")
        most = sum(capacity.K for capacity in self.capacities)
        if not 0 <= total <= most:
            raise ValueError(f"total must be between 0 and {most} terms, not {total}")
        self.total = total

    def keep_largest(self, values: list[Tensor]) -> list[int]:
        """Keep as many terms of each map as it has of the ``total`` largest values, float64 [at most K] each.

        Returns:
            The number of terms of each map.
        """
        largest = torch.cat(values).sort(descending=True, stable=True).indices[: self.total]
        owner = torch.cat([torch.full_like(s, number) for number, s in enumerate(values)])[largest]
        ranks = [int((owner == number).sum()) for number in range(len(values))]
        for capacity, rank in zip(self.capacities, ranks, strict=True):
            capacity.left.fill_(rank)
        return ranks


class SingularValueLearner(SharedTotal):
    """Train plain low-rank terms, then keep the largest singular values of all products B A together.

    After training, ``up`` and ``down`` of every map are replaced by the singular value decomposition of their product:
    up diag(c) down = P S Q' → (P S^1/2) (S^1/2 Q'). This changes only the basis. Truncation then keeps the terms whose
    singular values are among the ``total`` largest of the model. No other allocation of the total is closer to the
    products in the Frobenius norm.

    >>> import torch, ngn
    >>> from ngn.components.low_rank import attach_low_rank
    >>> from ngn.methods.fixed import Retained
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)).requires_grad_(False)
    >>> _ = attach_low_rank(model, ["0", "1"], lambda number: Retained(4), seed=0)
    >>> learner, x = SingularValueLearner(model, total=3), torch.randn(32, 6)
    >>> _ = ngn.fit(learner, x, x.sin(), torch.nn.functional.mse_loss, ngn.TrainPlan(steps=9), progress="never")
    >>> int(learner.count().sum())
    3
    """

    @torch.no_grad()
    def finish(self, batches: Any) -> None:
        self.keep_largest([_rotate(map_) for map_ in self.maps])


def _rotate(map_: LowRankLinear) -> Tensor:
    """Rotate ``map_`` into the basis of its singular vectors. Return its singular values, float64 [K]."""
    (q, upper), (p, lower) = torch.linalg.qr(map_.up.double()), torch.linalg.qr(map_.down.double().T)
    left, s, right = torch.linalg.svd(upper @ lower.T, full_matrices=False)
    up, down, values = (torch.zeros_like(value, dtype=torch.float64) for value in (map_.up, map_.down, map_.down[:, 0]))
    up[:, : len(s)], down[: len(s)], values[: len(s)] = q @ left * s.sqrt(), s.sqrt()[:, None] * (p @ right.T).T, s
    map_.up.copy_(up)
    map_.down.copy_(down)
    return values


class Allotted(Retained):
    """Use the first ``left`` of K components, in training too."""

    def gates(self, mode: Mode) -> Tensor:
        return prefix(self.left, self.K).to(torch.float64)


class ExplainedVarianceLearner(SharedTotal):
    """Allot terms to maps by the explained variance of their inputs, then train them.

    After Paischer et al., "One initialization to rule them all: fine-tuning via explained variance adaptation", 2024:

        X = U S V' - the inputs of a map, centred;  explained variance of direction k: s_k^2 / sum_j s_j^2

    The largest of all maps get a term each: A_k = v_k, B_k = 0. peft's implementation decomposes batch after batch
    until the directions stand still; here the batches are decomposed together. Terms are added with a weight of one, as
    those of all methods of the suite, where the authors scale each map by its rank.

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
