"""
Layers of a residual stack
==========================

One boundary over eight residual layers learns how many stay. Removing a layer adds 0 to the residual stream,
so the other layers do not change.
"""

import torch
from picture import draw
from torch import nn

import ngn

torch.manual_seed(0)
x = 2 * torch.rand(512, 2) - 1
y = (torch.sin(4 * x[:, :1]) * x[:, 1:]).sign()  # two classes on a chequerboard


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return h + self.down(nn.functional.gelu(self.up(self.norm(h))))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Linear(2, 16), nn.Linear(16, 1)
        self.layers = nn.ModuleList(Layer() for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


# %%
learner = ngn.learn_sizes(Stack(), {"layers": ngn.Depth()}, example=x[:2], lambda0=0.1, alpha_max=0.1)
history = ngn.fit(
    learner, x, y, nn.functional.mse_loss, ngn.TrainPlan(steps=200, lr=3e-3, lr_boundary=0.1), progress="never"
)

# %%
# Deployment shortens the list of layers. By default the last layer always stays.

small = learner.deploy(example=x, verbose=True)
print(len(small.layers), "of 8 layers")
with torch.no_grad():
    print(f"accuracy {(small(x).sign() == y).float().mean():.3f}")
draw(history, learner)
