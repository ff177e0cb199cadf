"""
Coordinates of a state space
============================

A linear recurrence has one scalar state per component, here at most sixteen. The target is a slow moving
average of four channels. The recurrence learns how many states it needs.
"""

import torch
from picture import draw
from torch import nn

import ngn


class States(ngn.Bank):
    """f_k(x)_t = C_k h_t with h_t = a_k h_{t-1} + B_k x_t, a_k in (0, 1). x: [N, T, 4]; gives [N, T, 4]."""

    last = ("C",)  # starts at zero; truncation multiplies the ordering weights into it

    def draw(self, source: torch.Generator) -> dict[str, torch.Tensor]:
        """Draw one state."""
        return {"a": torch.zeros(()), "B": torch.randn(4, generator=source), "C": torch.zeros(4)}

    def components(self, x: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """Compute the first states: [count, N, T, 4]."""
        a, C, u = self.a[:count].sigmoid(), self.C[:count], x @ self.B[:count].T
        states = [u[:, 0]]
        for step in range(1, x.shape[1]):
            states.append(a * states[-1] + u[:, step])
        return torch.einsum("ntk,kc->kntc", torch.stack(states, 1), C)


torch.manual_seed(0)
x = torch.randn(16, 24, 4)
slow = torch.zeros_like(x)
for step in range(1, x.shape[1]):
    slow[:, step] = 0.8 * slow[:, step - 1] + 0.2 * x[:, step]

gate = ngn.CountGate(16, t0=6.0, r=0.9, lambda0=1e-2, alpha_max=1e-2)
learner = ngn.Learner(ngn.OrderedSum(States(16, seeds=0), gate))
history = ngn.fit(learner, x, slow, nn.functional.mse_loss, ngn.TrainPlan(steps=200, lr=1e-2), progress="never")

# %%
small = learner.deploy(example=x, verbose=True)
with torch.no_grad():
    print(f"MSE {nn.functional.mse_loss(small(x), slow):.1e}, variance of the target {slow.var():.1e}")
draw(history, learner)
