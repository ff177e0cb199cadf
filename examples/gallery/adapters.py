"""
Adapter widths
==============

Two layers of a frozen network each get an adapter, h + U gelu(D h). Only the output of the first layer has to
change, so the second adapter needs less width.
"""

import torch
from picture import draw
from torch import nn

import ngn
from ngn.cuts import inputs, outputs


class Adapter(nn.Module):
    """h + U gelu(D h) after a layer; its width is one ordered axis of two tensors."""

    def __init__(self, layer: nn.Linear, gate: ngn.CountGate) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.out_features, gate.K, bias=False)
        self.up = nn.Linear(gate.K, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.axis = ngn.OrderedAxis(gate, outputs(self.down) + inputs(self.up))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, in] → [N, out]"""
        h = self.layer(x)
        return h + self.up(self.axis(nn.functional.gelu(self.down(h))))


torch.manual_seed(0)
x = torch.randn(512, 12)
frozen = nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12)).requires_grad_(False)
h = frozen[0](x)
y = frozen[1:](h + nn.functional.gelu(h @ torch.randn(12, 2)) @ torch.randn(2, 12))

# %%
# With ``delta=-0.5`` the count can be 0: a boundary near 0 removes the whole adapter.


def gate() -> ngn.CountGate:
    """A gate for one adapter."""
    return ngn.CountGate(8, delta=-0.5, t0=6.0, r=1.0, lambda0=1e-2, alpha_max=1e-2)


model = nn.Sequential(Adapter(frozen[0], gate()), frozen[1], Adapter(frozen[2], gate()))
learner = ngn.Learner(model)
history = ngn.fit(learner, x, y, nn.functional.mse_loss, ngn.TrainPlan(steps=400, lr=1e-2), progress="never")

# %%
small = learner.deploy(example=x, verbose=True)
print(small)
with torch.no_grad():
    print(f"MSE {nn.functional.mse_loss(small(x), y):.1e}")
draw(history, learner)
