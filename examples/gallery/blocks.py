"""
Blocks of a sum
===============

The structure of the paper: a sum of small networks, f_0 first. ``OrderedSum`` can be any part of a model; here
it is the whole model. Its components are one bank of stacked tensors, so they can be allocated as needed.
"""

import torch
from picture import draw

import ngn


class Blocks(ngn.Bank):
    """f_k(x) = tanh(x W_k + b_k) A_k, 16 hidden units each. x: [N, 1]; gives [N, 1]."""

    last = ("A",)  # zero at the start, and what truncation multiplies the ordering weights into

    def draw(self, source: torch.Generator) -> dict[str, torch.Tensor]:
        """One block."""
        W, b = torch.randn(2, 1, 16, generator=source)
        return {"W": 4 * W, "b": b, "A": torch.zeros(16, 1)}

    def components(self, x: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """[count, N, 1]."""
        return torch.tanh(x @ self.W[:count] + self.b[:count]) @ self.A[:count]


x = torch.linspace(-3, 3, 256).unsqueeze(-1)
y = torch.sin(3 * x) + 0.3 * torch.sin(9 * x)


def mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """One loss per model."""
    return (output - target).square().mean((-2, -1))


# %%
# ``K=None`` presets no number of blocks: the boundary grows from near 0, and blocks are made as it comes to
# them.

gate = ngn.CountGate(None, lambda0=1e-3, alpha_max=1e-3)
bank = Blocks(gate.K, seeds=0)
learner = ngn.CapacityLearner(ngn.OrderedSum(bank, gate))
history = ngn.fit(learner, x, y, mse, ngn.TrainPlan(steps=1000, lr=3e-3, clip=0.1), progress="never")

# %%
small = learner.deploy(example=x)
with torch.no_grad():
    print(f"MSE soft {float(mse(learner(x), y)):.1e}, deployed {float(mse(small(x), y)):.1e}")
draw(history, learner, small)
