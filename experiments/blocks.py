"""What the blocks of a configuration are made of, and how the modules that describe methods and tasks are found."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class ConfigError(ValueError):
    """A configuration that cannot run. The message is written for the person who typed it."""


class Incomplete(ConfigError):
    """Nothing is wrong, but something is still to be said, so that it can be shown but not run."""


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
Fraction = Annotated[float, Field(gt=0, lt=1)]
Ratio = Annotated[float, Field(gt=0, le=1)]


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


Whole = BeforeValidator(_whole)
"""1e3 is a thousand."""
Count = Annotated[int, Field(ge=1, strict=True), Whole]
Components = Annotated[int, Field(ge=1, le=2**16, strict=True), Whole]
"""Candidates of one group: each is initialised by itself, so a million would take minutes before the first step."""
Size = Annotated[int, Field(ge=0, strict=True), Whole]

Block = TypeVar("Block", bound=Closed)


def legal_name(block: type[Closed], key: str) -> str:
    """The one value of a key that is declared as ``Literal["..."]``: the name of the block."""
    (name,) = get_args(block.model_fields[key].annotation)
    return str(name)


def plugin_folders() -> list[Path]:
    """The folders of $NGN_PLUGINS, separated as in $PATH; each may have ``methods/``, ``tasks/`` and ``conf/``."""
    return [Path(name).absolute() for name in os.environ.get("NGN_PLUGINS", "").split(os.pathsep) if name]


def conf_folder() -> Path | None:
    """The folder of $NGN_CONF, whose files are choices beside those of ``conf/``; None where it is not set."""
    name = os.environ.get("NGN_CONF")
    return Path(name).absolute() if name else None


def described(package: str, path: list[str], base: type[Block]) -> dict[str, type[Block]]:
    """The settings classes that the modules of a package define, by name.

    Args:
        package: its dotted name. A module called ``base`` is not looked into.
        path: its ``__path__``, to which the folder of that name in every plug-in is added.
        base: what they derive from.

    Raises:
        ConfigError: if two classes have the same name.
    """
    path += [str(folder / package.rpartition(".")[2]) for folder in plugin_folders()]
    classes: dict[str, type[Block]] = {}
    for module in pkgutil.iter_modules(path):
        if module.name == "base":
            continue
        loaded = importlib.import_module(f"{package}.{module.name}")
        for block in _blocks(vars(loaded).values(), loaded.__name__, base):
            name = legal_name(block, "name")
            if name in classes:
                raise ConfigError(f"{name} is described twice: in {classes[name].__module__} and {block.__module__}")
            classes[name] = block
    return classes


def _blocks(values: Iterable[object], module: str, base: type[Block]) -> list[type[Block]]:
    """The classes that ``module`` itself defines, but those that others are to derive from."""
    return [
        value
        for value in values
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module
        and get_args(value.model_fields["name"].annotation if "name" in value.model_fields else None)
    ]
