"""How the suite finds its parts: the modules of a folder of its own, and those of the folders in $NGN_PLUGINS.

Methods and tasks are settings classes (:func:`described`); tables, figures and studies are values (:func:`found`).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar, get_args

from experiments.blocks import Closed, ConfigError, legal_name

LAST = 1000
"""The rank of what names none: after everything that the suite has."""


class Ranked(Protocol):
    """A table, a figure or a study."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""

    @property
    def rank(self) -> int:
        """Its place among the others; equal ranks stand in the order of their names."""


Block = TypeVar("Block", bound=Closed)
Part = TypeVar("Part", bound=Ranked)


def plugin_folders() -> list[Path]:
    """The folders of $NGN_PLUGINS, separated as in $PATH; each may have folders of parts, and ``conf/``."""
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
        ConfigError: if two classes have the same name, or two files.
    """
    classes: dict[str, type[Block]] = {}
    for module in _modules(package, path):
        for block in _blocks(vars(module).values(), module.__name__, base):
            name = legal_name(block, "name")
            if name in classes:
                raise ConfigError(f"{name} is described twice: in {classes[name].__module__} and {block.__module__}")
            classes[name] = block
    return classes


def found(package: str, path: list[str], kind: type[Part]) -> dict[str, Part]:
    """The values of a kind at the top level of the modules of a package, by name, in the order of their ranks.

    Args:
        package, path: as in :func:`described`.
        kind: their class.

    Raises:
        ConfigError: if two values have the same name, or two files.
    """
    parts: dict[str, tuple[Part, str]] = {}
    for module in _modules(package, path):
        for value in vars(module).values():
            if not isinstance(value, kind):
                continue
            same, where = parts.setdefault(value.name, (value, module.__name__))
            if same is not value:  # the same value again is one that another module imports
                raise ConfigError(f"{value.name} is there twice: in {where} and {module.__name__}")
    return {part.name: part for part, _ in sorted(parts.values(), key=lambda pair: (pair[0].rank, pair[0].name))}


def _modules(package: str, path: list[str]) -> Iterator[ModuleType]:
    """Every module of a package but ``base``, those of plug-ins last."""
    path += [str(folder / package.rpartition(".")[2]) for folder in plugin_folders()]
    places: dict[str, str] = {}
    for place in path:
        for module in pkgutil.iter_modules([place]):
            if module.name in places:
                raise ConfigError(
                    f"{module.name} is in {places[module.name]} and in {place}. Give your file another name."
                )
            places[module.name] = place
    return (importlib.import_module(f"{package}.{name}") for name in places if name != "base")


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
