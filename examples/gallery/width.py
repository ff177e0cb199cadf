"""
Hidden units of an MLP
======================

A network with 64 hidden units learns how many it needs. The units form 16 slices of four. One boundary t decides
how many slices stay. The price ``lambda0`` of a slice lowers t, and the task loss raises it.
"""

import torch
from picture import draw
from torch import nn

import ngn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 256).unsqueeze(-1)
y = torch.sin(2 * x)
model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))

# %%
# ``learn_sizes`` finds the two linear maps and makes the width between them learnable. With ``t0`` near 0 the size
# grows from one slice. The ordering weights ``r ** k`` give later slices less weight.

learner = ngn.learn_sizes(model, {"": ngn.Width(16)}, example=x, t0=1e-4, r=0.8, lambda0=1e-3, alpha_max=1e-3)
history = ngn.fit(learner, x, y, nn.functional.mse_loss, ngn.TrainPlan(steps=1200, lr=3e-3), progress="never")

# %%
# The deployed model is the same two linear maps, smaller.

small = learner.deploy(example=x, verbose=True)
print(small)
with torch.no_grad():
    print(f"MSE {nn.functional.mse_loss(small(x), y):.1e}")
draw(history, learner)
