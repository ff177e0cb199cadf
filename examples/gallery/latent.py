"""
The dimension of a latent space
===============================

Data points with 20 entries lie on a curved surface of three dimensions. The bottleneck of an autoencoder learns
how many coordinates it needs. An ``OrderedAxis`` multiplies the activation by the gates. Its cuts name the
tensors that truncation shortens.
"""

import torch
from picture import draw
from torch import nn

import ngn
from ngn.cuts import inputs, outputs

torch.manual_seed(0)
z = 2 * torch.rand(512, 3) - 1
x = torch.tanh(z @ torch.randn(3, 20))

down, up = nn.Linear(20, 10), nn.Linear(10, 64)
gate = ngn.CountGate(10, t0=8.0, r=1.0, lambda0=1e-2, alpha_max=1e-2)
axis = ngn.OrderedAxis(gate, [*outputs(down), *inputs(up)])
learner = ngn.Learner(nn.Sequential(down, axis, up, nn.Tanh(), nn.Linear(64, 20)))
history = ngn.fit(
    learner, x, x, nn.functional.mse_loss, ngn.TrainPlan(steps=800, lr=5e-3, lr_boundary=0.1), progress="never"
)

# %%
small = learner.deploy(example=x, verbose=True)
print(small)
with torch.no_grad():
    print(f"MSE {nn.functional.mse_loss(small(x), x):.1e}, variance of the data {x.var():.2f}")
draw(history, learner)
