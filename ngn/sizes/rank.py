"""Learned ranks of low-rank terms next to linear layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from ngn.components.low_rank import attach_low_rank
from ngn.methods.ngn import COMMIT, CountGate
from ngn.sizes.base import Maker, Size


class Rank(Size):
    """``K`` new low-rank terms next to a linear layer (:class:`~ngn.components.low_rank.LowRankLinear`).

    The boundary starts at 0.1, with delta = -1/2. A layer may end without terms; it is then the original layer.

    Args:
        K, gate: see :class:`Size`.
        seed: seed of the terms.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 3))
    >>> learner = ngn.learn_sizes(model, {"*": ngn.Rank(4, t0=1.8)}, frozen=True)
    >>> learner.names, learner.count().tolist()
    (['0', '1'], [2, 2])
    """

    unit = "terms"
    tried = False  # a layer without terms is the original one

    def __init__(self, K: int, seed: int = 0, **gate: Any) -> None:
        super().__init__(K, **gate)
        self.seed = seed

    def gate(self, K: int, common: dict[str, Any]) -> CountGate:
        return CountGate(K, **({"delta": -0.5, "t0": 0.1, "commit": COMMIT} | common | self.settings))

    def takes(self, module: nn.Module) -> bool:
        return isinstance(module, nn.Linear)

    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        assert self.K is not None
        K = self.K
        attach_low_rank(model, [name], lambda number: make(name, K), self.seed)
        axis: Any = model.get_submodule(name).axis
        axis.name, axis.unit = name, self.unit
