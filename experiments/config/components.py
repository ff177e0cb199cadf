"""The ordered components: what one candidate is, how many there are, and where the boundary starts."""

from __future__ import annotations

from typing import Annotated, Literal, Union

from pydantic import Field, model_validator

from experiments.config.base import Closed, Count, Delta, Positive

Ratio = Annotated[float, Field(gt=0, le=1)]


class _Gate(Closed):
    K: Count | None
    """Candidate components; null allocates them as the boundary advances."""
    K_max: Count = 1024
    """Where growth without a preset K stops with an error."""
    delta: Delta = 0.5
    r: Ratio = 0.5
    """Ordering weights w_k = r^k."""
    t0: Positive = 1e-4
    """Initial boundary."""

    @property
    def groups(self) -> int:
        """Ordered groups of components in the model, each with a boundary of its own."""
        return 1

    @model_validator(mode="after")
    def _boundary_inside(self) -> _Gate:
        limit, name = (self.K_max, "K_max") if self.K is None else (self.K, "K")
        if self.t0 > limit:
            raise ValueError(f"the initial boundary t0 = {self.t0:g} lies beyond the {name} = {limit} candidates")
        return self


class MLPGate(_Gate):
    """tanh MLP blocks; ``features`` is the width of the blocks' output where a shared linear head follows."""

    component: Literal["mlp"]
    width: Count
    hidden_layers: Count = 2
    features: Count | None = None


class ConvGate(_Gate):
    """Convolution branches: 3x3 convolution, 2x2 max-pooling and ReLU for each channel entry, then a linear map."""

    component: Literal["conv"]
    channels: Annotated[list[Count], Field(min_length=1, max_length=4)]


class GCNGate(_Gate):
    """Two-hop graph convolution branches of the given hidden width."""

    component: Literal["gcn"]
    width: Count


class LatentGate(_Gate):
    """Rank-one terms of a variational bottleneck, between an encoder and a decoder of GELU layers."""

    component: Literal["latent"]
    width: Count
    hidden_layers: Count


class LayersGate(_Gate):
    """A boundary for each of several layers of tanh maps; f_0 is the identity in all layers but the last."""

    component: Literal["layers"]
    layers: Annotated[int, Field(ge=2, strict=True)]
    r_last: Ratio | None = None
    """r of the last layer, linear from ``gate.r`` at the first; null for the same in all."""

    @property
    def groups(self) -> int:
        return self.layers


class ChainGate(_Gate):
    """One boundary over a chain of tanh updates of the given hidden width."""

    component: Literal["chain"]
    width: Count


GateConfig = Annotated[
    Union[MLPGate, ConvGate, GCNGate, LatentGate, LayersGate, ChainGate], Field(discriminator="component")
]
