"""Small instances of every ordered component, with inputs and references that do not use the banks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.models.conv import ConvBank
from experiments.models.depth import ChainBank, TanhBank
from experiments.models.gcn import GCNBank, GraphInput
from experiments.models.latent import RankOneBank
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel, StackedLinear
from ngn.components.base import Bank, OrderedSum

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 0, 5], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 5, 0]])


@dataclass(frozen=True)
class Structure:
    """A kind of ordered component small enough to test exhaustively."""

    name: str
    bank: Callable[..., Bank]
    x: Callable[[torch.dtype], Any]
    out: int


def _graph(dtype: torch.dtype) -> GraphInput:
    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    return GraphInput.of(x, EDGES, torch.tensor([0, 2, 5, 8]))


def _randn(*shape: int) -> Callable[[torch.dtype], Tensor]:
    return lambda dtype: torch.randn(*shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64).to(dtype)


STRUCTURES = [
    Structure("mlp", lambda K, seeds: MLPBank([2, 5, 4, 3], K, seeds), _randn(11, 2), 3),
    Structure("mlp-one-input", lambda K, seeds: MLPBank([1, 5, 5, 1], K, seeds), _randn(11, 1), 1),
    Structure("conv", lambda K, seeds: ConvBank((2, 8, 8), (3, 4), 3, K, seeds), _randn(7, 2, 8, 8), 3),
    Structure("gcn", lambda K, seeds: GCNBank(6, 4, 3, K, seeds), _graph, 3),
    Structure("rank-one", lambda K, seeds: RankOneBank(4, 3, K, seeds), _randn(11, 4), 3),
    Structure("tanh", lambda K, seeds: TanhBank(2, K, seeds), _randn(11, 2), 2),
    Structure("tanh-identity", lambda K, seeds: TanhBank(2, K, seeds, identity=True), _randn(11, 2), 2),
    Structure("chain", lambda K, seeds: ChainBank(2, 5, K, seeds), _randn(11, 2), 2),
]


def awake(bank: Bank) -> Bank:
    """Fill the zero-initialised last maps, so that outputs depend on every component."""
    source = torch.Generator().manual_seed(77)
    with torch.no_grad():
        for p in bank.parameters():
            # One draw per component index, so that stacks and plain banks of any K agree.
            like = p[..., :1, :] if p.dim() == 1 else p
            p.add_(0.3 * torch.randn(like.shape, generator=source, dtype=torch.float64).to(p))
    return bank


def model_of(bank: Bank, capacity: nn.Module, head: bool, seeds: Any) -> nn.Module:
    """Put the bank under a capacity, with or without a shared linear head."""
    group = OrderedSum(bank, capacity)  # type: ignore[arg-type]
    out = getattr(bank, "out", None) or bank.sizes[-1]  # type: ignore[union-attr]
    return ParallelModel(group, StackedLinear(out, 4, seeds) if head else None)
