"""Two-hop graph convolution branches: f_k = A relu(A X W_1k + b_1k) W_2k + b_2k, with A the normalised adjacency."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ngn.components.base import Bank, Seeds, uniform


@dataclass(frozen=True)
class GraphInput:
    """A graph with the precomputed parts of a two-hop convolution towards some of its nodes.

    The first hop A X does not depend on the parameters. So it is computed once, and only for nodes that reach the
    targets: 644 of 2,708 for Cora's 140 training nodes. The result is exactly the same.

    Attributes:
        features: X, [nodes, features].
        edge_index: int64 [2, edges], both directions, without self loops.
        targets: indices of the output nodes, [N].
        propagated: rows of A X at the M nodes that reach the targets, [M, features].
        hop: rows of A at the targets and columns at the same M nodes, [N, M].
    """

    features: Tensor
    edge_index: Tensor
    targets: Tensor
    propagated: Tensor
    hop: Tensor

    @staticmethod
    def of(features: Tensor, edge_index: Tensor, targets: Tensor) -> GraphInput:
        """Compute the first hop with A = D^-1/2 (adjacency + I) D^-1/2, torch-geometric's ``gcn_norm``."""
        from torch_geometric.nn.conv.gcn_conv import gcn_norm

        nodes = features.shape[0]
        index, weight = gcn_norm(edge_index, None, nodes, add_self_loops=True, dtype=features.dtype)
        adjacency = torch.sparse_coo_tensor(index, weight, (nodes, nodes), check_invariants=True).coalesce()
        propagated = torch.sparse.mm(adjacency, features)
        rows = torch.full((nodes,), -1, dtype=torch.int64, device=features.device)
        rows[targets] = torch.arange(len(targets), device=features.device)
        (i, j), value = adjacency.indices(), adjacency.values()
        wanted = rows[i] >= 0
        reached, column = torch.unique(j[wanted], return_inverse=True)
        hop = features.new_zeros(len(targets), len(reached))
        hop[rows[i[wanted]], column] = value[wanted]
        return GraphInput(features, edge_index, targets, propagated[reached], hop)

    def to(self, device: torch.device) -> GraphInput:
        """Return a copy on a device."""
        return GraphInput(*(part.to(device) for part in vars(self).values()))


class GCNBank(Bank):
    """K two-hop graph convolution branches, stacked into two matrix products.

    Args:
        features, width, out: sizes of the input features, the hidden layer and the output vector.

    >>> import torch, ngn
    >>> from experiments.models.gcn import GraphInput
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> x = GraphInput.of(torch.eye(3), path, targets=torch.tensor([0, 2]))
    >>> GCNBank(3, width=4, out=5, K=2, seeds=0)(x, None).shape
    torch.Size([2, 5])
    """

    def __init__(self, features: int, width: int, out: int, K: int, seeds: Seeds, name: str | int = 0) -> None:
        self.features, self.width, self.out = features, width, out
        super().__init__(K, seeds, name)

    last = ("W2", "b2")
    shared_biases = ("b2",)
    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        bound = (6.0 / (self.features + self.width)) ** 0.5  # Glorot, torch-geometric's default
        return {
            "W1": uniform((self.features, self.width), 1, source) * bound,
            "b1": torch.zeros(self.width),
            "W2": torch.zeros(self.width, self.out),
            "b2": torch.zeros(self.out),
        }

    def _hidden(self, x: GraphInput, k: int) -> Tensor:
        """Return relu(A X W_1k + b_1k) at the M nodes that reach the targets, [*R, k, M, width]."""
        W = self.W1.narrow(-3, 0, k)
        b = self.b1.narrow(-2, 0, k)
        # All branches share their input, so their first maps are one wide matrix product.
        wide = torch.movedim(W, -2, 0).reshape(self.features, -1)
        z = (x.propagated @ wide).unflatten(-1, (*W.shape[:-2], self.width))
        return F.relu(torch.movedim(z, 0, -2) + b.unsqueeze(-2))

    def forward(self, x: GraphInput, coefficients: Tensor | None) -> Tensor:
        if coefficients is None:
            return x.hop @ (self._hidden(x, self.K) @ self.W2).sum(-3) + self.b2.sum(-2).unsqueeze(-2)
        k = coefficients.shape[-1]
        c = coefficients.to(self.W2.dtype).unsqueeze(-1)
        W = self.W2.narrow(-3, 0, k) * c.unsqueeze(-1)
        summed = (self._hidden(x, k) @ W).sum(-3)
        return x.hop @ summed + (self.b2.narrow(-2, 0, k) * c).sum(-2).unsqueeze(-2)

    def components(self, x: GraphInput, count: int | None = None) -> Tensor:
        k = self.K if count is None else count
        return x.hop @ (self._hidden(x, k) @ self.W2.narrow(-3, 0, k)) + self.b2.narrow(-2, 0, k).unsqueeze(-2)
