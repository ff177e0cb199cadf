"""Discover the parts of the suite: in the modules of its own folders and of the folders in $NGN_PLUGINS.

Methods and tasks are settings classes (:func:`discover_classes`). Studies, their tables, figures and claims are values
(:func:`discover_values`).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar, get_args

from experiments.core.blocks import Closed, ConfigError, legal_name

LAST = 1000
"""The default rank: after all parts of the suite."""


class Ranked(Protocol):
    """A study, a table, a figure or a claim."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    @property
    def rank(self) -> int:
        """Its position in lists. Equal ranks are sorted by name."""


Block = TypeVar("Block", bound=Closed)
Part = TypeVar("Part", bound=Ranked)


def plugin_folders() -> list[Path]:
    """Return the folders of $NGN_PLUGINS, separated as in $PATH. Each may have folders of parts, and ``conf/``."""
    return [Path(name).absolute() for name in os.environ.get("NGN_PLUGINS", "").split(os.pathsep) if name]


def conf_folder() -> Path | None:
    """Return the folder of $NGN_CONF, whose files are additional choices; None if it is not set."""
    name = os.environ.get("NGN_CONF")
    return Path(name).absolute() if name else None


def discover_classes(package: str, path: list[str], base: type[Block]) -> dict[str, type[Block]]:
    """Return the settings classes in the modules of a package, by name.

    Args:
        package: the dotted name of the package. A module called ``base`` is ignored.
        path: the ``__path__`` of the package. The folder of this name in every plug-in is added to it.
        base: the base class of the settings classes.

    Raises:
        ConfigError: if two classes, or two files, have the same name.
    """
    classes: dict[str, type[Block]] = {}
    for module in _modules(package, path):
        for block in vars(module).values():
            if not (isinstance(block, type) and issubclass(block, base) and block.__module__ == module.__name__):
                continue
            if "name" not in block.model_fields or not get_args(block.model_fields["name"].annotation):
                continue  # a base class, which has no name
            name = legal_name(block, "name")
            if name in classes:
                raise ConfigError(
                    f"{name} has two settings classes, in {classes[name].__module__} and {block.__module__}: rename one"
                )
            classes[name] = block
    return classes


def discover_values(package: str, path: list[str], kind: type[Part]) -> dict[str, Part]:
    """Return the values of a class at the top level of the modules of a package, by name, in the order of their ranks.

    A tuple at the top level of a module may hold several.

    Args:
        package, path: as in :func:`discover_classes`.
        kind: the class of the values.

    Raises:
        ConfigError: if two values, or two files, have the same name, or a plug-in has a folder of an older layout.
    """
    for former in (folder / name for folder in plugin_folders() for name in ("tables", "figures")):
        if any(former.glob("*.py")):  # git leaves folders of caches
            raise ConfigError(f"{former}: is read no more; move its files to {former.with_name('studies')}")
    parts: dict[str, tuple[Part, str]] = {}
    for module in _modules(package, path):
        for value in values_of(module, kind):
            same, where = parts.setdefault(value.name, (value, module.__name__))
            if same is not value:  # the same value occurs again if another module imports it
                raise ConfigError(f"{value.name} is defined twice, in {where} and {module.__name__}: rename one")
    return {part.name: part for part, _ in sorted(parts.values(), key=lambda pair: (pair[0].rank, pair[0].name))}


def values_of(module: ModuleType, kind: type[Part]) -> Iterator[Part]:
    """Yield the values of a class at the top level of a module, alone or in tuples."""
    top = list(vars(module).values())
    return (value for value in chain(top, *(one for one in top if isinstance(one, tuple))) if isinstance(value, kind))


def _modules(package: str, path: list[str]) -> Iterator[ModuleType]:
    """Yield every module of a package except ``base``; modules of plug-ins come last."""
    places_of_plugins = [str(folder / package.rpartition(".")[2]) for folder in plugin_folders()]
    path += [place for place in dict.fromkeys(places_of_plugins) if place not in path]
    places: dict[str, str] = {}
    for place in path:
        for module in pkgutil.iter_modules([place]):
            if module.name in places:
                raise ConfigError(
                    f"two modules are called {module.name}, in {places[module.name]} and in {place}: rename your file"
                )
            places[module.name] = place
    return (importlib.import_module(f"{package}.{name}") for name in places if name != "base")
