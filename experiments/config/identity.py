"""The run id of a configuration, and the paths of the files of a run: record, models, checkpoints. Imports no torch.

A run id depends on the scientific configuration: on what is computed, and never on how (device, workers, packing,
folders). It has a readable prefix, and the first ten hexadecimal digits of a SHA-256 over the canonical JSON of the
flattened scientific keys. Three rules keep run ids stable and let studies share records. The hash omits:

* keys that were added to the schema later, while they have their default (:data:`ADDED_LATER`), and values that a kind
  of groups does not set (``gate.kinds``);
* the folder of a pretrained model and the way its activations are kept (:data:`EXECUTION_KEYS`);
* keys that the method or the components do not use (``unused`` of their settings classes). So the fixed model that a
  grown run retrains is the same run at every price.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.core.config import Config
from experiments.core.paths import RUNS, SCRATCH
from experiments.methods.fixed import Fixed
from experiments.store.provenance import code
from experiments.store.records import Store

SCIENTIFIC = (
    "task",
    "model",
    "gate",
    "method",
    "limit",
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
    "train.matmul": "highest",
    "limit.parameters": None,
    "limit.macs": None,
    "model.package": None,
    "model.constructor": None,
    "method.teacher": False,
    "method.residual": False,
    "task.corpus": "any",
}
"""Dotted key → default, for every scientific key added after the first release. Append; never edit or remove."""


EXECUTION_KEYS = (
    "model.path", "model.parameters", "model.kv_heads", "model.ffn", "model.gradient_checkpointing",
    "model.hidden", "model.head_dim", "model.vocab",
)  # fmt: skip
"""Keys of scientific blocks that do not change what is computed. The record holds the digest of the model's weights.
For ``model=local``, and models of a package, the first key does count, as only the path identifies the weights."""


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten ``{"a": {"b": 1}}`` to ``{"a.b": 1}``. Lists count as values."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def scientific(config: Config) -> dict[str, Any]:
    """Return the scientific part of a configuration, nested, as in the record."""
    return config.model_dump(mode="json", include=set(SCIENTIFIC))


def identity_keys(config: Config) -> dict[str, Any]:
    """Return the flattened keys that determine the run id."""
    model = config.model
    by_path = model is not None and (model.name == "local" or model.package is not None)
    execution = () if model is None else EXECUTION_KEYS[1:] if by_path else EXECUTION_KEYS
    omitted = {*config.method.unused, *config.gate.unused, *execution} - {*config.gate.sized_by}
    blocks = tuple(f"{name}." for name in omitted)
    keys = {}
    for key, value in sorted(flatten(scientific(config)).items()):
        if key in ADDED_LATER and ADDED_LATER[key] == value:
            continue
        named = key
        if key.startswith("gate.kinds."):  # the value of a kind of groups belongs where the gate's own does
            leaf = key.rpartition(".")[2]
            named = f"schedule.{leaf}" if leaf == "lambda0" else f"gate.{leaf}"
        unset = named != key and value is None
        if not (unset or named in omitted or named.startswith(blocks)):
            keys[key] = value
    return keys


def run_id(config: Config) -> str:
    """Return ``<task>-<component>-<method><count>-s<seed>-<hash>``, safe as a file name; it takes 0.2 ms."""
    return name_with(config, config.seed.value, canonical(identity_keys(config)))


def numerics(config: Config) -> dict[str, int]:
    """Return the numerics versions in a record of this run: which computations made its numbers.

    Every task and every method has one, ``numerics`` of its settings class. A run that retrains at a fixed size has
    that method's, too. Bump it with every change that alters their numbers, however slightly. Records of an older
    version are then stale: they are reported and refused, never mixed with new ones. Golden losses detect a missing
    bump.
    """
    versions = {"task": config.task.numerics, "method": config.method.numerics}
    if config.method.name != "fixed" and "fixed" in config.phases:
        versions["fixed"] = Fixed.numerics
    return versions


def canonical(keys: Mapping[str, Any]) -> str:
    """Return the text whose digest names a run."""
    return json.dumps(keys, sort_keys=True, separators=(",", ":"), allow_nan=False)


def name_with(config: Config, seed: int, canonical: str) -> str:
    """Return the run id of a configuration with another seed and the :func:`canonical` text of its keys."""
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:10]
    method = f"{config.method.name}{config.method.suffix}"
    return f"{config.task.name}-{config.gate.component}-{method}-s{seed}-{digest}"


@dataclass(frozen=True)
class Run:
    """A configuration with its run id and its folder. Both are computed once, so pass a ``Run`` on, not its parts.

    Attributes:
        config: the checked configuration.
        id: its name, :func:`~experiments.config.identity.run_id`.
    """

    config: Config
    id: str

    @staticmethod
    def of(config: Config) -> Run:
        """Make the run of a configuration."""
        return Run(config, run_id(config))

    def with_execution(self, **settings: Any) -> Run:
        """Return the run with other execution settings, which are no part of its identity: ``results``, ``force``."""
        return Run(self.config.model_copy(update=settings), self.id)

    @cached_property
    def root(self) -> Path:
        """The folder of the records: ``results=``, or ``runs/`` for a full run of a clean tree, or scratch."""
        if self.config.results is not None:
            return Path(self.config.results).expanduser()
        return RUNS if self.config.profile == "full" and code().clean else SCRATCH / "results"

    @cached_property
    def path(self) -> Path:
        """The file of the record."""
        return Store(self.root).path(self.id)

    def model_file(self, phase: str) -> Path:
        """Return the file of a phase's truncated model, beside the record."""
        return self.path.with_suffix(f".{phase}.safetensors")


def runs_of(configs: Iterable[Config]) -> list[Run]:
    """Make the runs of several configurations."""
    return [Run.of(config) for config in configs]


def checkpoints_named(name: str, root: Path) -> Path:
    """Return the folder of checkpoints of the stack ``name`` whose records go to ``root``.

    ``name`` may be a glob pattern. Stacks with records in different folders never share checkpoints.
    """
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]
    return SCRATCH / "checkpoints" / f"{name}-{digest}"
