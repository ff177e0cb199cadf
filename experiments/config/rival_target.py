"""The total number of components for a rival method, from the record of the learned model ``method.like``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.paths import RESULTS, RUNS, SCRATCH
from experiments.methods.fixed import Rival
from experiments.store.records import Store


def _learned(run_id: str, results: str | None) -> tuple[Mapping[str, Any], int]:
    """Return the complete record of a learned model, from ``results`` or a default folder, and its retained components.

    Raises:
        ConfigError: if there is no such record, or it has no learned size.
    """
    places = [Path(results).expanduser()] if results else []
    for root in (*places, RUNS, RESULTS, SCRATCH / "results"):
        record = Store(root).get(run_id)
        if record is not None:
            if "grown" not in record["phases"] or record["status"] != "complete":
                raise ConfigError(f"method.like={run_id}: that run learned no size, or its training diverged")
            return record, sum(record["phases"]["grown"]["count"])
    raise ConfigError(f"method.like={run_id}: there is no such record; train that run first, or give method.target=N")


def with_target(nested: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set ``method.target`` from ``method.like``; a ConfigError without such a record."""
    method = nested["method"]
    return {**nested, "method": {**method, "target": _learned(str(method["like"]), nested.get("results"))[1]}}


def check_target(config: Config) -> None:
    """Refuse a record ``method.like`` of another task or model, or of another total than ``method.target``."""
    method = config.method
    assert isinstance(method, Rival)
    assert method.like is not None
    record, retained = _learned(method.like, config.results)
    for key, wanted in (("task", config.task.name), ("gate", config.gate.component)):
        name = record["config"][key]["component" if key == "gate" else "name"]
        if name != wanted:
            raise ConfigError(f"method.like={method.like}: that run has {key}={name}, but this one has {key}={wanted}")
    theirs, ours = record["config"].get("model") or {}, config.model
    name, path = (None, None) if ours is None else (ours.name, ours.path)
    if theirs.get("name") != name or (name == "local" and theirs.get("path") != path):
        raise ConfigError(f"method.like={method.like}: that run adapts another model; name a run on the same model")
    if retained != method.target:
        raise ConfigError(
            f"method.like={method.like}: that run retains {retained} components, not "
            f"method.target={method.target}; remove method.target to use its number"
        )
