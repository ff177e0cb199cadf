"""Types and helpers that declare the keys of a record."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

FORBID = ConfigDict(extra="forbid", allow_inf_nan=False)
Natural = Annotated[int, Field(ge=0, le=2**53)]
AtLeastOne = Annotated[int, Field(ge=1, le=2**53)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
SizeValue = Annotated[float, Field(ge=0, le=2**31)]
"""A size before rounding. Models have at most 2**16 components of a group, or grow one by one."""
Share = Annotated[float, Field(ge=0, le=1)]
ERRORS = frozenset({"mse", "nmse", "loss", "nats", "bits_per_character", "perplexity"})
PER_CENT = frozenset({"accuracy", "exact_match", "string_match", "f1", "strict", "flexible", "decimal"})


def _bounded(scores: dict[str, float]) -> dict[str, float]:
    """Refuse impossible values of the known scores. Those of a task of one's own are any numbers."""
    for name, score in scores.items():
        if (name in ERRORS or name in PER_CENT) and score < 0:
            raise ValueError(f"{name} must be at least 0")
        if name in PER_CENT and score > 100:
            raise ValueError(f"{name} must be at most 100")
    return scores


Scores = Annotated[dict[str, float], Field(min_length=1), AfterValidator(_bounded)]


def key(description: str, **limits: Any) -> Any:
    """Declare a key: its description in docs/records.md, and limits of its value by pydantic's names."""
    return Field(description=description, **limits)


def without_none(block: Any) -> dict[str, Any]:
    """Return the attributes that are not None: name → value."""
    values = {field.name: getattr(block, field.name) for field in dataclasses.fields(block)}
    return {name: value for name, value in values.items() if value is not None}
