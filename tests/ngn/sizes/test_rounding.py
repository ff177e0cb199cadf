"""Trials of cuts where rounding alone moves a model more than usual, as it does deep models on a GPU."""

from __future__ import annotations

import pytest
import torch
from sizable import Layers, chain
from torch import Tensor, nn

import ngn
from ngn.methods.fixed import Retained


class Coarse(nn.Module):
    """Rounds to multiples of 2^-12, as adding a large number does; a last bit can move a result by one of them."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 4e3) - 4e3


class OtherOrder(nn.Linear):
    """A linear map that adds fewer inputs in another order, as another kernel does, and may be wrong by ``off``."""

    off = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.shape[1] == 64:
            return super().forward(x)
        return (x.flip(-1)[..., None, :] * self.weight.flip(-1)).sum(-1) + self.bias + self.off


def model(*behind: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), OtherOrder(64, 32), *behind)


X = torch.randn(256, 16, generator=torch.Generator().manual_seed(1))


def test_what_the_model_makes_of_rounding_is_no_wrong_cut() -> None:
    made = model(Coarse())
    small = ngn.learn_sizes(made, {"0": ngn.Width(64)}, example=X, capacity=lambda _, K: Retained(K, 20)).deploy()
    assert small[0].out_features == 20


def test_a_wrong_cut_is_found_beside_such_rounding() -> None:
    made = model(Coarse())
    made[2].off = 0.01  # type: ignore[assignment]
    with pytest.raises(ValueError, match="the model computes something else"):
        ngn.learn_sizes(made, {"0": ngn.Width(64)}, example=X)


def test_a_model_that_rounds_little_allows_no_more_than_usual() -> None:
    made = model()
    made[2].off = 1e-4  # type: ignore[assignment]
    with pytest.raises(ValueError, match="the model computes something else"):
        ngn.learn_sizes(made, {"0": ngn.Width(64)}, example=X)


class Sharp(nn.Module):
    """A layer that amplifies what rounding moves 32 times, as sharp cosine attention does."""

    def __init__(self, *between: nn.Module) -> None:
        super().__init__()
        self.mlp = chain(16, 32, *between, 16)

    def forward(self, x: Tensor) -> Tensor:
        return (32 * (x + self.mlp(x))).sin()


class Wrong(nn.Module):
    """Computes something else of fewer units, by less than the layers behind it make of rounding."""

    def forward(self, h: Tensor) -> Tensor:
        return h.tanh() * (1 + 1e-4 * (h.shape[-1] < 32))


def test_float64_tells_a_wrong_cut_from_rounding_that_is_larger() -> None:
    made = Layers(Sharp(), Sharp(Wrong()), Sharp())
    before = made.state_dict(keep_vars=True)
    learner = ngn.learn_sizes(made, {"layers.*.mlp": ngn.Width(4)}, example=X[:8])
    assert learner.names == ["layers.0.mlp", "layers.2.mlp"]
    after = learner.model.state_dict(keep_vars=True)
    assert all(after[name] is value and value.dtype == torch.float32 for name, value in before.items())
