"""
A component of your own
=======================

The library has no bank of bumps f_k(x) = a_k exp(-(x - m_k)² / s_k²), so this page defines one. A subclass of
``ngn.Bank`` says how to draw one component and how to compute all. Truncation, files and the trainer then work
with it.
"""

import torch
from picture import draw

import ngn


class Bumps(ngn.Bank):
    """f_k(x) = a_k exp(-((x - m_k) / s_k)^2). x: [N, 1]; gives [N, 1]."""

    last = ("a",)  # starts at zero; truncation multiplies the ordering weights into it

    def draw(self, source: torch.Generator) -> dict[str, torch.Tensor]:
        """Draw one bump."""
        return {"a": torch.zeros(1), "m": 6 * torch.rand(1, generator=source) - 3, "s": torch.ones(1)}

    def components(self, x: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """Compute the first bumps: [count, N, 1]."""
        a, m, s = (p[:count, None] for p in (self.a, self.m, self.s))
        return a * torch.exp(-(((x - m) / s) ** 2))


# %%
# The target is a sum of three bumps. The bank has twelve.

x = torch.linspace(-3, 3, 256).unsqueeze(-1)
y = sum(a * torch.exp(-(((x - m) / 0.6) ** 2)) for a, m in ((1.0, -1.8), (-0.8, 0.1), (0.6, 1.9)))
gate = ngn.CountGate(12, t0=8.0, r=0.8, lambda0=1e-2, alpha_max=1e-2)
learner = ngn.Learner(ngn.OrderedSum(Bumps(12, seeds=0), gate))
history = ngn.fit(learner, x, y, torch.nn.functional.mse_loss, ngn.TrainPlan(steps=800, lr=2e-2), progress="never")

# %%
small = learner.deploy(example=x, verbose=True)
for a, m, s in torch.cat([small.bank.a, small.bank.m, small.bank.s], 1).tolist():
    print(f"{a:+.2f} at {m:+.2f}, {abs(s):.2f} wide")
draw(history, learner)
