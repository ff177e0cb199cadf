"""The base class and the types of settings, and the errors about them."""

from __future__ import annotations

import re
from typing import Annotated, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class ConfigError(ValueError):
    """The configuration cannot run. The message is written for the person who typed it."""


class Incomplete(ConfigError):
    """Nothing is wrong, but a required setting is missing: the configuration can be shown, but not run."""


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return a text with its control characters as escapes, such as ``\x1b``; line breaks and tabs stay.

    A terminal obeys escape sequences. So everything from a record or a file's name is printed through this function.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


class Closed(BaseModel):
    """A block of settings. It refuses unknown keys, NaN and infinities, and is immutable after the check."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _half(value: float) -> float:
    if abs(value) != 0.5:
        raise ValueError("must be 0.5 (keeps at least one component) or -0.5 (may keep none)")
    return value


Delta = Annotated[float, AfterValidator(_half)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Ratio = Annotated[float, Field(gt=0, le=1)]


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


Whole = BeforeValidator(_whole)
"""Accepts floats that are whole numbers, such as 1e3."""
Count = Annotated[int, Field(ge=1, strict=True), Whole]
Components = Annotated[int, Field(ge=1, le=2**16, strict=True), Whole]
"""Candidates of one group. Each is initialised separately, so a million would take minutes before the first step."""
NonNegativeInt = Annotated[int, Field(ge=0, strict=True), Whole]


def legal_name(block: type[Closed], key: str) -> str:
    """Return the name of a block: the only value of its key, which is declared as ``Literal["..."]``."""
    (name,) = get_args(block.model_fields[key].annotation)
    return str(name)
