"""Whether a record is what a command would train now: the same numerics, sources, plug-ins, data and model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.config.numerics import numerics
from experiments.contract.config import Config
from experiments.data import data_root, sets
from experiments.data.errors import MissingData
from experiments.language.settings import BaseModel
from experiments.paths import RESULTS
from experiments.store.provenance import changed_since
from experiments.store.sources import changed_files, combined_digest, plugins_digest, sources_digest


def differences(record: Mapping[str, Any], config: Config, results: Path) -> list[str]:
    """Return how a record differs from what ``config`` would train now; empty if it does not.

    The suite's own records count by their numerics versions, which its tests guard. So do older
    records, which lack the digest of the sources. Data and models that are not on this machine are not compared.

    Args:
        results: folder of the record.

    Raises:
        DataError: if data on this machine are damaged.
    """
    found, then, now = [], record["code"]["numerics"], numerics(config)
    if then != now:
        found.append(f"by numerics version {then} (this code has {now})")
    if results.resolve() != RESULTS:
        found += _sources(record["code"], results)
    return found + data_differences(record, config)


def _sources(code: Mapping[str, Any], results: Path) -> list[str]:
    sources, plugins = code.get("sources"), code.get("plugins")
    if sources is None or (sources, plugins) == (sources_digest(), plugins_digest()):
        return []
    files = changed_files(results, sources, plugins)
    if files == []:
        return []
    if files is None and code["clean"] and code["source"] == "git" and plugins == plugins_digest():
        files = changed_since(code["commit"])
    what = "sources" if sources != sources_digest() else "plug-ins"
    return [f"by other {what} ({named(files)})" if files else f"by other {what}"]


def named(files: list[str]) -> str:
    """Return the first three names, and how many more there are."""
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")


def data_differences(record: Mapping[str, Any], config: Config) -> list[str]:
    """Return whether the data or the pretrained model of a record differ from those on this machine."""
    if config.profile != "full":
        return []
    found, root = [], data_root(config.data_root)
    try:
        data = _data_digest(tuple(config.task.data_sets.items()), root)
        if data is not None and data != record["data"]["sha256"]:
            found.append(f"on other data ({config.task.name} in {root} has sha256 {data[:10]}...)")
        model = None if config.model is None else _model_digest(config.model, root)
        if config.model is not None and model is not None and model != record["base"]["sha256"]:
            found.append(f"on other weights of model={config.model.name}")
    except MissingData:
        pass
    return found


@functools.cache
def _data_digest(parts: tuple[tuple[str, str], ...], root: Path) -> str | None:
    """Return the digest that a record has of these data sets; None if the suite has no reader of them."""
    if not all(name in sets.NAMES for _, name in parts):
        return None
    digests = {part: sets.verify(name, root).sha256 for part, name in parts}
    return combined_digest(digests) if len(digests) > 1 else next(iter(digests.values()))


@functools.cache
def _model_digest(settings: BaseModel, root: Path) -> str | None:
    from experiments.language.base import digest_of  # imported here because it imports torch

    return digest_of(settings, root)
