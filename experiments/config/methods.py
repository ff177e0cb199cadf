"""The ``method`` block: one class a learner of capacity."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, model_validator

from experiments.config.base import Closed, NonNegative, Positive


class NGN(Closed):
    """The count is learned by the boundary of a sigmoid gate."""

    name: Literal["ngn"]


_Size = Annotated[int, Field(ge=0, strict=True)]


class Fixed(Closed):
    """A plain model of ``count`` components, without a gate or a capacity penalty; a list has one count a group."""

    name: Literal["fixed"]
    count: _Size | Annotated[list[_Size], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _needs_count(self) -> Fixed:
        if self.count is None:
            raise ValueError("a fixed model needs its size: add method.count=N")
        return self


Fraction = Annotated[float, Field(gt=0, lt=1)]


class STE(Closed):
    """NGN's boundary and objective with the hard prefix in the forward pass (straight-through estimator)."""

    name: Literal["ste"]


class L0(Closed):
    """Hard-concrete gates, one a component, independent of one another and without ordering weights."""

    name: Literal["l0"]
    price: NonNegative
    """lambda, times the expected number of open gates; not divided by the number of samples."""
    temperature: Positive
    open_probability: Fraction
    """Sigmoid of the gates' initial parameter."""
    stretch_low: Annotated[float, Field(lt=0)]
    stretch_high: Annotated[float, Field(gt=1)]


class AWNN(Closed):
    """Width by a learned exponential importance: the live prefix holds a part ``quantile`` of its mass."""

    name: Literal["awnn"]
    quantile: Fraction
    width: Positive
    """Initial width."""
    prior_sd: Positive
    """Standard deviation of the Gaussian prior on the components' parameters."""


class Decay(Closed):
    """The count gate with a learned decay r of its ordering weights, without its boundary, or over normalised f_k."""

    name: Literal["decay"]
    learn_r: StrictBool
    boundary: StrictBool
    normalise: StrictBool
    """Divide every f_k by its root mean square over the batch."""
    quantile: Fraction
    """Without a boundary: the part of the finite mass of the weights that the deployed prefix holds."""
    eps: Positive
    """Added to the mean square before its root is taken."""

    @model_validator(mode="after")
    def _something_to_learn(self) -> Decay:
        if not (self.learn_r or self.boundary):
            raise ValueError("with learn_r=false and boundary=false nothing is learned: use method=fixed")
        if self.boundary and not self.learn_r and not self.normalise:
            raise ValueError("learn_r=false, boundary=true and normalise=false is method=ngn: use that")
        return self
