"""
Channels of a convolution
=========================

Small images show a bar in one of four directions. A convolution with 24 channels and batch normalisation
learns how many channels it needs.
"""

import torch
from picture import draw, noisy_lines
from torch import nn

import ngn

torch.manual_seed(0)
images, label = noisy_lines(256)

model = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.Conv2d(24, 8, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveMaxPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 4),
)

# %%
# Name only the convolution. ``learn_sizes`` finds the normalisation after it, and the next convolution, by tracing the
# model on an example.

learner = ngn.learn_sizes(model, {"0": ngn.Channels()}, example=images[:2], lambda0=0.1, alpha_max=0.1)
history = ngn.fit(
    learner,
    images,
    label,
    nn.functional.cross_entropy,
    ngn.TrainPlan(steps=200, lr=1e-2, lr_boundary=0.2),
    progress="never",
)

# %%
# At the start all gates are open, because t is beyond the last channel. Training then lowers the boundary.

small = learner.deploy(example=images, verbose=True)
print(small[:4])
with torch.no_grad():
    print(f"accuracy {(small(images).argmax(-1) == label).float().mean():.3f}")
draw(history, learner)
