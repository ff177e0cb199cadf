"""
State coordinates of a selective state space
============================================

A Mamba block has N state coordinates per channel, here sixteen at most. Its task is a slow moving average of
the input; it learns how many coordinates that takes.
"""

import torch
from picture import draw
from torch import nn

import ngn
from experiments.models.state_space import MambaBlock

torch.manual_seed(0)
x = torch.randn(16, 24, 4)
slow = torch.zeros_like(x)
for step in range(1, x.shape[1]):
    slow[:, step] = 0.8 * slow[:, step - 1] + 0.2 * x[:, step]

gate = ngn.CountGate(16, t0=6.0, r=0.9, lambda0=1e-2, alpha_max=1e-2)
learner = ngn.CapacityLearner(MambaBlock(4, gate, seed=0))
course = ngn.fit(learner, x, slow, nn.functional.mse_loss, ngn.TrainPlan(steps=200, lr=1e-2), progress="never")

# %%
small = learner.deploy(example=x)
with torch.no_grad():
    print(f"MSE {nn.functional.mse_loss(small(x), slow):.1e}, variance of the target {slow.var():.1e}")
draw(course, learner, small)
