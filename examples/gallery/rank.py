"""
The rank of a LoRA term
=======================

Of two maps of a frozen network, one changed by a matrix of rank three since training, the other not at all.
Low-rank terms on both learn their ranks; the map that needs none stays unchanged.
"""

import copy

import torch
from picture import draw
from torch import nn

import ngn

torch.manual_seed(0)
x = torch.randn(512, 24)
frozen = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24)).requires_grad_(False)
moved = copy.deepcopy(frozen)
moved[0].weight += 0.1 * torch.randn(24, 3) @ torch.randn(3, 24)
y = moved(x)

# %%
# ``delta=-0.5`` counts from none: a boundary near 0 keeps no term at all.


def gate(number: int) -> ngn.CountGate:
    return ngn.CountGate(16, delta=-0.5, t0=8.0, r=1.0, lambda0=2e-3)


ngn.attach_low_rank(frozen, ["0", "2"], gate, seed=0)
learner = ngn.CapacityLearner(frozen)
history = ngn.fit(learner, x, y, nn.functional.mse_loss, ngn.TrainPlan(steps=400, lr=1e-2), progress="never")

# %%
small = learner.deploy(example=x)
print(small)
with torch.no_grad():
    print(f"MSE {nn.functional.mse_loss(small(x), y):.1e}")
draw(history, learner, small)
