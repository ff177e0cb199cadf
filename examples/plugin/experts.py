"""Learn how many experts each layer of a mixture needs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import ngn


class Mix(nn.Module):
    """sum_e score_e output_e. Scores: [N, experts]; outputs: one [N, width] per expert."""

    def forward(self, scores: Tensor, outputs: list[Tensor]) -> Tensor:
        return sum(scores[..., e, None] * output for e, output in enumerate(outputs))


class Mixture(nn.Module):
    """y = x + sum_e sigmoid(r_e(x)) E_e(x) over the experts E_e. x: [N, width]."""

    def __init__(self, width: int = 8, experts: int = 6) -> None:
        super().__init__()
        self.router, self.mix = nn.Linear(width, experts), Mix()
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(torch.sigmoid(self.router(x)), [expert(x) for expert in self.experts])


class Experts(ngn.Size):
    """The experts of a mixture."""

    unit = "experts"  # what reports call them

    def attach(self, model: nn.Module, name: str, make: Callable[[str, int], ngn.Capacity]) -> None:
        mixture = model.get_submodule(name)
        if not isinstance(mixture, Mixture):
            raise ValueError(f"{name} is a {type(mixture).__name__}, not a Mixture")
        K = self.divided(name, len(mixture.experts))
        cuts = [ngn.cuts.Cut(mixture, "experts", 0), *ngn.cuts.outputs(mixture.router)]
        self.axis(name, K, make, cuts, consumers=[mixture.mix])


def network() -> nn.Module:
    """Two mixtures of six experts each."""
    return nn.Sequential(Mixture(), Mixture())


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


if __name__ == "__main__":
    torch.manual_seed(0)
    x, sizes = torch.randn(256, 8), {"*": Experts()}
    learner = ngn.learn_sizes(network(), sizes, budget=ngn.Budget(parameters="60%"), example=x)
    ngn.fit(learner, x, x.sin(), nn.functional.mse_loss, ngn.TrainPlan(steps=50), progress="never")
    small = learner.deploy(example=x)
    ngn.save(small, "scratch/small.safetensors")

    fresh = network()
    ngn.learn_sizes(fresh, sizes, example=x)  # as before the training
    again = ngn.load(fresh, "scratch/small.safetensors")
    print(f"experts: {sum(len(layer.experts) for layer in small)} of 12")
    print(f"parameters: {parameters(small)} of {parameters(network())}")
    print(f"the loaded model gives the same outputs: {torch.equal(again(x), small(x))}")
