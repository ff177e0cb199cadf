"""The base class and the types of settings, and the errors about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator


class ConfigError(ValueError):
    """The configuration cannot run. The message is written for the person who typed it."""


class Incomplete(ConfigError):
    """Nothing is wrong, but a required setting is missing: the configuration can be shown, but not run."""


CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters without a glyph that change how the text around them is shown or read: C0, C1 and escape bytes, separators
of lines, marks of direction, unpaired surrogates."""


def control_in(text: str) -> str | None:
    """Return the first control character of a text as ``U+001B``; None if there is none."""
    match = None if text.isprintable() else CONTROL.search(text)
    return None if match is None else f"U+{ord(match[0]):04X}"


def visible(text: object) -> str:
    """Return a text in which each control character is written as ``<U+001B>``."""
    return CONTROL.sub(lambda match: f"<U+{ord(match[0]):04X}>", str(text))


def printable(text: str) -> str:
    """Return :func:`visible` text in which line breaks and tabs stay: a terminal obeys other control characters."""
    return "".join(part if part in ("\n", "\t") else visible(part) for part in re.split("([\n\t])", text))


def _texts(part: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield (its place, text) of every key and text in a part of a record."""
    if isinstance(part, str):
        yield where, part
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield where, key
            yield from _texts(value, f"{where}.{key}".lstrip("."))
    elif isinstance(part, list | tuple):
        for value in part:
            yield from _texts(value, where)


def refuse_control(content: Any) -> None:
    """Raise a ValueError if a key or text has a control character; only stories of a model may have several lines."""
    for where, text in _texts(content, ""):
        character = control_in(text.replace("\n", "") if where.startswith("phases.") and ".samples." in where else text)
        if character is not None:
            raise ValueError(f"{visible(where) or 'a key'} has the control character {character}; no text may have one")


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _Explaining(ModelMetaclass):
    """Makes ``Block(key=value)`` raise a ConfigError. Blocks inside others are checked with these, by pydantic."""

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        try:
            return super().__call__(*args, **settings)
        except ValidationError as error:
            lines = []
            for fault in error.errors():
                key, message = ".".join(map(str, fault["loc"])), str(fault["msg"]).removeprefix("Value error, ")
                lines.append(f"{key}: {message} (given: {fault['input']!r})" if key else message)
            raise ConfigError("\n".join(lines)) from None


class Closed(BaseModel, metaclass=_Explaining):
    """A block of settings. It refuses unknown keys, NaN, infinities and control characters, and is immutable after the
    check."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="after")
    def _printable(self) -> Self:
        for name, value in self.__dict__.items():
            if isinstance(value, str) and (character := control_in(value)) is not None:
                raise ValueError(f"{name} contains the control character {character}: remove it")
        return self


def _half(value: float) -> float:
    if abs(value) != 0.5:
        raise ValueError("must be 0.5 (keeps at least one component) or -0.5 (may keep none)")
    return value


Delta = Annotated[float, AfterValidator(_half)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Ratio = Annotated[float, Field(gt=0, le=1)]


Whole = BeforeValidator(
    lambda value: int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
)
"""Accepts floats that are whole numbers, such as 1e3."""
Count = Annotated[int, Field(ge=1, strict=True), Whole]
Components = Annotated[int, Field(ge=1, le=2**16, strict=True), Whole]
"""Candidates of one group. Each is initialised separately, so a million would take minutes before the first step."""
NonNegativeInt = Annotated[int, Field(ge=0, strict=True), Whole]


def legal_name(block: type[Closed], key: str) -> str:
    """Return the name of a block: the only value of its key, which is declared as ``Literal["..."]``."""
    (name,) = get_args(block.model_fields[key].annotation)
    return str(name)
