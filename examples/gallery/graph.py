"""
Graph convolution branches
==========================

A random graph has two communities. The class of a node is its community; its features say little about it.
The model is an ordered sum of branches f_k(X) = A relu(A X W_k + b_k) V_k, each of which looks two hops far.
"""

import torch
from picture import draw
from torch import nn

import ngn

torch.manual_seed(0)
n = 120
community = torch.arange(n) % 2
chance = torch.where(community[:, None] == community, 0.15, 0.02)
edges = torch.triu(torch.rand(n, n) < chance, 1)
features = torch.randn(n, 8) + 0.4 * community[:, None]
near = (edges | edges.T | torch.eye(n, dtype=torch.bool)).float()
A = near / (near.sum(0) * near.sum(1)[:, None]).sqrt()  # D^-1/2 (edges + I) D^-1/2


class Branches(ngn.Bank):
    """f_k(X) = A relu(A X W_k + b_k) V_k, 8 hidden units each. X: [nodes, 8]; gives [nodes, 2]."""

    last = ("V",)  # starts at zero; truncation multiplies the ordering weights into it

    def draw(self, source: torch.Generator) -> dict[str, torch.Tensor]:
        """Draw one branch."""
        return {"W": torch.randn(8, 8, generator=source) / 8**0.5, "b": torch.zeros(1, 8), "V": torch.zeros(8, 2)}

    def components(self, x: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """Compute the first branches: [count, nodes, 2]."""
        return A @ torch.relu(A @ x @ self.W[:count] + self.b[:count]) @ self.V[:count]


# %%
# Training uses full batches: the features of all nodes are one input.

gate = ngn.CountGate(12, t0=6.0, lambda0=3e-2, alpha_max=3e-2)
learner = ngn.Learner(ngn.OrderedSum(Branches(12, seeds=0), gate))
history = ngn.fit(
    learner, features, community, nn.functional.cross_entropy, ngn.TrainPlan(steps=200, lr=2e-2), progress="never"
)

# %%
small = learner.deploy(example=features, verbose=True)
with torch.no_grad():
    print(f"accuracy {(small(features).argmax(-1) == community).float().mean():.3f}")
draw(history, learner)
