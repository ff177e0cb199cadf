"""
Blocks of a sum
===============

This is the structure of the paper: a sum of small networks f_0, f_1, ... ``OrderedSum`` can be any part of a
model; here it is the whole model. Its components are one bank of stacked tensors, so training can add components.
"""

import torch
from picture import draw

import ngn


class Blocks(ngn.Bank):
    """f_k(x) = tanh(x W_k + b_k) A_k, 16 hidden units each. x: [N, 1]; gives [N, 1]."""

    last = ("A",)  # starts at zero; truncation multiplies the ordering weights into it

    def draw(self, source: torch.Generator) -> dict[str, torch.Tensor]:
        """Draw one block."""
        W, b = torch.randn(2, 1, 16, generator=source)
        return {"W": 4 * W, "b": b, "A": torch.zeros(16, 1)}

    def components(self, x: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """Compute the first blocks: [count, N, 1]."""
        return torch.tanh(x @ self.W[:count] + self.b[:count]) @ self.A[:count]


x = torch.linspace(-3, 3, 256).unsqueeze(-1)
y = torch.sin(3 * x) + 0.3 * torch.sin(9 * x)


def mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return one loss per model."""
    return (output - target).square().mean((-2, -1))


# %%
# ``None`` presets no number of blocks. The boundary grows from near 0, and training adds a block when the boundary
# reaches it.

gate = ngn.CountGate(None, lambda0=1e-3, alpha_max=1e-3)
bank = Blocks(gate.K, seeds=0)
learner = ngn.Learner(ngn.OrderedSum(bank, gate))
history = ngn.fit(learner, x, y, mse, ngn.TrainPlan(steps=1000, lr=3e-3, clip=0.1), progress="never")

# %%
small = learner.deploy(example=x, verbose=True)
with torch.no_grad():
    print(f"MSE soft {float(mse(learner(x), y)):.1e}, deployed {float(mse(small(x), y)):.1e}")
draw(history, learner)
