"""
Adapter widths
==============

Adapters h + U gelu(D h) stand behind two layers of a frozen network. Only what the first layer gives has to
be bent, so the other adapter gets by with less.
"""

import torch
from picture import draw
from torch import nn

import ngn
from experiments.models.adapter import attach_adapters

torch.manual_seed(0)
x = torch.randn(512, 12)
frozen = nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12)).requires_grad_(False)
h = frozen[0](x)
y = frozen[1:](h + nn.functional.gelu(h @ torch.randn(12, 2)) @ torch.randn(2, 12))

# %%
# ``delta=-0.5`` counts from none: a boundary near 0 keeps no adapter at all.


def gate(number: int) -> ngn.CountGate:
    return ngn.CountGate(8, delta=-0.5, t0=6.0, r=1.0, lambda0=1e-2, alpha_max=1e-2)


attach_adapters(frozen, ["0", "2"], 12, gate, seed=0)
learner = ngn.CapacityLearner(frozen)
course = ngn.fit(learner, x, y, nn.functional.mse_loss, ngn.TrainPlan(steps=400, lr=1e-2), progress="never")

# %%
small = learner.deploy(example=x)
print(small)
with torch.no_grad():
    print(f"MSE {nn.functional.mse_loss(small(x), y):.1e}")
draw(course, learner, small)
