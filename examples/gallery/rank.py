"""
The rank of a LoRA term
=======================

A frozen network has two linear maps. The target needs a change of rank three in the first map, and no change in
the second. Both maps get low-rank terms, which learn their ranks.
"""

import copy

import torch
from picture import draw
from torch import nn

import ngn
from ngn.components.low_rank import attach_low_rank

torch.manual_seed(0)
x = torch.randn(512, 24)
frozen = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24)).requires_grad_(False)
moved = copy.deepcopy(frozen)
moved[0].weight += 0.1 * torch.randn(24, 3) @ torch.randn(3, 24)
y = moved(x)

# %%
# With ``delta=-0.5`` the count can be 0: a boundary near 0 keeps no term.


def gate(number: int) -> ngn.CountGate:
    return ngn.CountGate(16, delta=-0.5, t0=8.0, r=1.0, lambda0=2e-3)


attach_low_rank(frozen, ["0", "2"], gate, seed=0)
learner = ngn.Learner(frozen)
history = ngn.fit(learner, x, y, nn.functional.mse_loss, ngn.TrainPlan(steps=400, lr=1e-2), progress="never")

# %%
small = learner.deploy(example=x, verbose=True)
print(small)
with torch.no_grad():
    print(f"MSE {nn.functional.mse_loss(small(x), y):.1e}")
draw(history, learner)
