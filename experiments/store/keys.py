"""Types and helpers that declare the keys of a record."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

FORBID = ConfigDict(extra="forbid")
Natural = Annotated[int, Field(ge=0, le=2**53)]
AtLeastOne = Annotated[int, Field(ge=1, le=2**53)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
SizeValue = Annotated[float, Field(ge=0, le=2**31)]
"""A size before rounding. Models have at most 2**16 components of a group, or grow one by one."""
Share = Annotated[float, Field(ge=0, le=1)]
ERRORS = "^(n?mse|loss|nats|bits_per_character|perplexity)$"
PER_CENT = "^(accuracy|exact_match|string_match|f1|strict|flexible|decimal)$"


def _bounded_scores(schema: dict[str, Any]) -> None:
    """Add the bounds of the known scores. Those of a task of one's own are any numbers."""
    number = {"type": "number", "minimum": 0}
    schema["patternProperties"] = {ERRORS: number, PER_CENT: {**number, "maximum": 100}}


Scores = Annotated[dict[str, float], Field(min_length=1, json_schema_extra=_bounded_scores)]
Absent = SkipJsonSchema[None]
"""Added to a type: the key may be missing. A record never holds null for it."""


def key(description: str, **limits: Any) -> Any:
    """Declare a key: its description in docs/records.md, and limits of its value by pydantic's names."""
    return Field(description=description, **limits)


def without_none(block: Any) -> dict[str, Any]:
    """Return the attributes that are not None: name → value."""
    values = {field.name: getattr(block, field.name) for field in dataclasses.fields(block)}
    return {name: value for name, value in values.items() if value is not None}
