"""Which run a configuration names.

A run is identified by its scientific configuration: what is computed, never how (device, workers, packing, folders).
The identifier is a readable prefix and the first ten hexadecimal digits of a SHA-256 over the canonical JSON of the
flattened scientific keys. Three rules keep it stable and let records be shared between studies:

* a key that was added to the schema later is left out while it has its default (:data:`ADDED_LATER`), and so is what
  a kind of groups does not set (``gate.kinds``);
* where a pretrained model lies, and how its activations are kept, is left out (:data:`CARRIED_OUT`);
* a key that the method does not use is left out (``unused`` of its settings class), so that the fixed model that a
  grown run retrains is the same run whatever price the boundary paid.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from experiments.contract.config import Config

SCIENTIFIC = (
    "task",
    "model",
    "gate",
    "method",
    "schedule",
    "train",
    "phases",
    "continue_with",
    "seed",
    "budget",
    "profile",
)

ADDED_LATER: dict[str, Any] = {
    "gate.K_max": 1024,
    "train.lr_boundary_shape.kind": "constant",
    "train.lr_boundary_shape.start": 0.0,
    "train.lr_boundary_shape.full": 1.0,
    "train.lr_boundary_shape.power": 1.0,
    "continue_with": [],
    "schedule.lambda0_last": None,
    "gate.kinds": None,
    "train.optimizer": "adam",
    "train.warmup": 0.0,
    "method.limit": math.log(100.0),
    "model": None,
    "budget": "paper",
    "schedule.kappa": 0.0,
    "schedule.commit": None,
    "task.replay": 0,
    "gate.order": "geometric",
    "gate.order_exponent": 1.0,
    "gate.order_ranks": None,
    "task.nodes": "planetoid",
}
"""Dotted key → default, for every scientific key added after the first release. Append; never edit or remove."""


CARRIED_OUT = ("model.path", "model.parameters", "model.kv_heads", "model.ffn", "model.gradient_checkpointing")
"""Keys of scientific blocks that do not change what is computed; the record holds the digest of the model's weights.
Of ``model=local`` the first says what the model is."""


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` → ``{"a.b": 1}``; lists are values."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def scientific(config: Config) -> dict[str, Any]:
    """The nested scientific part of a configuration, as it stands in the record."""
    return config.model_dump(mode="json", include=set(SCIENTIFIC))


def identity_keys(config: Config) -> dict[str, Any]:
    """The flattened keys that the run identifier is computed from."""
    carried_out = CARRIED_OUT if config.model is None or config.model.name != "local" else CARRIED_OUT[1:]
    left_out = tuple(key for key in (*config.method.unused, *carried_out) if key not in config.gate.sized_by)
    blocks = tuple(f"{name}." for name in left_out)
    flat = flatten(scientific(config))
    return {
        key: value
        for key, value in sorted(flat.items())
        if not ((named := _of_the_gate(key)) in left_out or named.startswith(blocks))
        and not (key in ADDED_LATER and ADDED_LATER[key] == value)
        and not (key.startswith("gate.kinds.") and value is None)
    }


def _of_the_gate(key: str) -> str:
    """The key by which the gate has the setting of a kind of groups; any other key as it is."""
    if not key.startswith("gate.kinds."):
        return key
    leaf = key.rpartition(".")[2]
    return f"schedule.{leaf}" if leaf == "lambda0" else f"gate.{leaf}"


def run_id(config: Config) -> str:
    """``<task>-<component>-<method><count>-s<seed>-<hash>``; file-name safe. A ``Run`` holds it: it takes 0.2 ms."""
    return name_of(config, identity_keys(config))


def name_of(config: Config, keys: Mapping[str, Any]) -> str:
    """The run identifier of a configuration whose :func:`identity_keys` are known already."""
    canonical = json.dumps(keys, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:10]
    method = f"{config.method.name}{config.method.suffix}"
    return f"{config.task.name}-{config.gate.component}-{method}-s{config.seed.value}-{digest}"
