"""Whether a record counts as a run: its configuration, numerics, sources, plug-ins, data and model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.config.identity import flatten, identity_keys, numerics
from experiments.core.config import Config
from experiments.core.paths import RESULTS
from experiments.core.pretrained import BaseModel
from experiments.data import MissingData, data_root
from experiments.store.provenance import changed_files, changed_since, code, combined_digest, made_by, named


@dataclass(frozen=True)
class Fault:
    """Why a record does not count.

    Attributes:
        kind: foreign, numerics, data, dirty, or changed (other sources, data or weights than on this machine).
        text: in a few words, which follow the name of the run or the file.
    """

    kind: str
    text: str


def fault_of(
    record: Mapping[str, Any],
    config: Config,
    results: Path | None = None,
    allow_dirty: bool = False,
    keys: Mapping[str, Any] | None = None,
) -> Fault | None:
    """Return why a valid record does not count as the run of ``config``, or None if it does.

    Args:
        results: folder of the record, to compare it with the sources, data and models of this machine as well. The
            suite's own records count by their numerics versions, which its tests guard. So do older records, which
            lack the digest of the sources. Data and models that are not on this machine are not compared.
        allow_dirty: whether records of uncommitted code count.
        keys: the configuration's :func:`experiments.config.identity.identity_keys`, if already known.

    Raises:
        DataError: if data on this machine are damaged.
    """
    stored = flatten(record["config"])
    for key, value in (identity_keys(config) if keys is None else keys).items():
        if key not in stored or stored[key] != value:
            return Fault("foreign", f"holds another configuration than its name says ({key})")
    then, now = record["code"]["numerics"], numerics(config)
    if then != now:
        return Fault("numerics", f"was trained by numerics version {then} (this code has {now})")
    name = record["data"]["name"]
    if name != config.task.name and config.profile == "full":  # smoke data have names of their own
        return Fault("data", f"was trained on {name}, not on {config.task.name}")
    if not record["code"]["clean"] and not allow_dirty:
        return Fault("dirty", "was made by uncommitted code or with plug-ins; commit the code")
    if results is None:
        return None
    differences = data_differences(record, config)
    if results.resolve() != RESULTS:
        differences = _sources(record["code"], results) + differences
    return Fault("changed", f"was trained {' and '.join(differences)}") if differences else None


def _sources(then: Mapping[str, Any], results: Path) -> list[str]:
    """Return whether other sources or plug-ins trained a record. Those of one clean commit need not be read."""
    sources, plugins = then.get("sources"), then.get("plugins")
    if sources is None or (then["clean"] and code().clean and then["commit"] == code().commit):
        return []
    now = made_by()
    if (sources, plugins) == (now["sources"], now.get("plugins")):
        return []
    files = changed_files(results, sources, plugins)
    if files == []:
        return []
    if files is None and then["clean"] and then["source"] == "git" and plugins == now.get("plugins"):
        files = changed_since(then["commit"])
    what = "sources" if sources != now["sources"] else "plug-ins"
    return [f"by other {what} ({named(files)})" if files else f"by other {what}"]


def data_differences(record: Mapping[str, Any], config: Config) -> list[str]:
    """Return whether the data or the pretrained model of a record differ from those on this machine."""
    if config.profile != "full":
        return []
    differences, root = [], data_root(config.data_root)
    try:
        data = _data_digest(tuple(config.task.data_sets.items()), root)
        if data is not None and data != record["data"]["sha256"]:
            differences.append(f"on other data ({config.task.name} in {root} has sha256 {data[:10]}...)")
        model = None if config.model is None else _model_digest(config.model, root)
        if config.model is not None and model is not None and model != record["base"]["sha256"]:
            differences.append(f"on other weights of model={config.model.name}")
    except MissingData:
        pass
    return differences


@functools.cache
def _data_digest(parts: tuple[tuple[str, str], ...], root: Path) -> str | None:
    """Return the digest that a record has of these data sets; None if the suite has no reader of them."""
    from experiments.data import sets  # imported here: it reads archives and the network, and many need no digest

    if not all(name in sets.NAMES for _, name in parts):
        return None
    digests = {part: sets.verify(name, root).sha256 for part, name in parts}
    return combined_digest(digests) if len(digests) > 1 else next(iter(digests.values()))


@functools.cache
def _model_digest(settings: BaseModel, root: Path) -> str | None:
    from experiments.tasks.language.base import digest_of  # imported here because it imports torch

    return digest_of(settings, root)
