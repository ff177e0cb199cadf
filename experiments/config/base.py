"""What the blocks of the configuration are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Closed(BaseModel):
    """A block of settings that refuses unknown keys, NaN and infinities, and cannot be changed once checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _half(value: float) -> float:
    if abs(value) != 0.5:
        raise ValueError("must be 0.5 (at least one component is kept) or -0.5 (an empty prefix is allowed)")
    return value


Delta = Annotated[float, AfterValidator(_half)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, strict=True)]
