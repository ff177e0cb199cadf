"""The words in which the keys of a record are declared."""

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
"""In a type: the key may be missing. None itself is never written."""


def key(says: str, **limits: Any) -> Any:
    """What docs/records.md says of a key, and pydantic's names for the limits of its value."""
    return Field(description=says, **limits)


def present(block: Any) -> dict[str, Any]:
    """The attributes that are there, by name."""
    values = {field.name: getattr(block, field.name) for field in dataclasses.fields(block)}
    return {name: value for name, value in values.items() if value is not None}
