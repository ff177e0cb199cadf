"""Types and helpers that declare the keys of a record."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

FORBID = ConfigDict(extra="forbid")
Natural = Annotated[int, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0)]
Scores = Annotated[dict[str, float], Field(min_length=1)]
Absent = SkipJsonSchema[None]
"""Added to a type: the key may be missing. A record never holds null for it."""


def key(description: str, **limits: Any) -> Any:
    """Declare a key: its description in docs/records.md, and limits of its value by pydantic's names."""
    return Field(description=description, **limits)


def without_none(block: Any) -> dict[str, Any]:
    """Return the attributes that are not None: name → value."""
    values = {field.name: getattr(block, field.name) for field in dataclasses.fields(block)}
    return {name: value for name, value in values.items() if value is not None}
