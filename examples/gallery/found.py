"""
All sizes of a network
======================

A small residual network learns all of its channels at once, under a budget of half of its multiply-adds. No module is
named.
"""

import torch
from picture import draw, noisy_lines
from torch import nn

import ngn

torch.manual_seed(0)
images, label = noisy_lines(256)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x):
        return x + self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))


model = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1), Block(12), Block(12), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(12, 4)
)

# %%
# The residual stream is one group: the first convolution, the end of each block, and all that reads them.

print(ngn.find_sizes(model, images[:2]))

# %%
# Without names ``learn_sizes`` takes all groups that pass a trial.

learner = ngn.learn_sizes(model, example=images[:2], budget=ngn.Budget(macs="50%", example=images[:2]))
history = ngn.fit(
    learner, images, label, nn.functional.cross_entropy, ngn.TrainPlan(steps=200, lr=1e-2), progress="never"
)

# %%
# The deployed network is an ordinary module with fewer channels.

small = learner.deploy(example=images, verbose=True)
with torch.no_grad():
    print(f"accuracy {(small(images).argmax(-1) == label).float().mean():.3f}")
draw(history, learner)
