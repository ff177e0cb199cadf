"""Which runs can be trained as one stack: those that differ in nothing but their seed and a few scalars."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.config.identity import flatten, run_id, scientific
from experiments.config.schema import Config

if TYPE_CHECKING:
    import torch

SCALARS = (
    "seed.value",
    "gate.r",
    "gate.t0",
    "schedule.lambda0",
    "schedule.alpha_max",
    "schedule.beta_start",
    "schedule.beta_end",
    "train.lr",
    "train.lr_boundary",
    "method.price",
    "method.temperature",
    "method.open_probability",
    "method.quantile",
    "method.width",
    "method.prior_sd",
)
"""What may differ between the replicas of a stack."""

STACKED = {"regression1d": ("mlp",), "mnist": ("mlp",), "cora": ("gcn",)}
"""Where stacking seeds is faster on a CPU; convolutions gain nothing from it (docs/benchmarks.md)."""


WHOLE = ("ngn", "fixed")
"""Methods with which the kernels do a training as a whole."""
LARGEST_PACK = 10
"""Replicas in one stack of the torch engine: four to ten suit a CPU's caches, more spill them. Also of models of depth
in the kernel, which then take minutes."""
LARGEST_FUSED_PACK = 500
"""For the 1D study. The kernel takes replica by replica, 130 KB each, so a stack may be large; it is one progress bar
and one task."""
LARGEST_STEP_PACK = 50
"""Where torch does what the kernel leaves of a step, it passes over the whole stack a dozen times: 200 KB a replica."""


def kernel_takes(config: Config) -> bool:
    """Whether a compiled kernel trains this run, or gives the gradients for its training."""
    if config.engine == "torch" or config.gate.K is None or config.train.lr_boundary_shape.kind != "constant":
        return False
    if config.task.name == "twist" and config.method.name in WHOLE:
        kernel = "planar"
    elif config.task.name == "regression1d":
        kernel = "bank1d"
    else:
        return False
    from ngn.train.kernels.kernel import compiled

    return compiled(kernel) is not None


def largest_pack(config: Config) -> int:
    """How many replicas suit the engine that trains this run; memory may allow fewer (``memory.py``)."""
    if config.task.name != "regression1d" or not kernel_takes(config):
        return LARGEST_PACK
    return LARGEST_FUSED_PACK if config.method.name in WHOLE else LARGEST_STEP_PACK


def stackable(config: Config) -> bool:
    """Whether runs of this task and component are trained as stacks."""
    return config.gate.component in STACKED.get(config.task.name, ()) or kernel_takes(config)


def pack_key(config: Config) -> str:
    """Equal for runs that can be one stack."""
    return json.dumps({k: v for k, v in flatten(scientific(config)).items() if k not in SCALARS}, sort_keys=True)


def pack_id(configs: Sequence[Config]) -> str:
    """A name for a stack, the same whenever the same runs form it."""
    ids = [run_id(config) for config in configs]
    if len(ids) == 1:
        return ids[0]
    return f"pack{len(ids)}-{hashlib.sha256(' '.join(ids).encode()).hexdigest()[:12]}"


def make_packs(configs: Sequence[Config], largest: int | None = None) -> list[list[Config]]:
    """Runs in stacks of at most ``largest`` (None: what suits the engine), in the order given.

    Runs that cannot be stacked stand alone.
    """
    packs: list[list[Config]] = []
    open_packs: dict[str, list[Config]] = {}
    for config in configs:
        key = pack_key(config)
        pack = open_packs.get(key)
        if pack is None or len(pack) >= (largest or largest_pack(config)) or not stackable(config):
            pack = []
            packs.append(pack)
            open_packs[key] = pack
        pack.append(config)
    return packs


def values(configs: Sequence[Config], key: str) -> list[float]:
    """One scalar setting of each run of a pack, by its dotted name."""
    found: list[float] = []
    for config in configs:
        value: Any = config
        for part in key.split("."):
            value = getattr(value, part)
        found.append(float(value))
    return found


def scalar(configs: Sequence[Config], key: str) -> float | torch.Tensor:
    """A scalar setting as the engine takes it: a number for a single run, float64 [R] for a stack."""
    import torch  # not earlier: sweeps are planned without it

    found = values(configs, key)
    return found[0] if len(found) == 1 else torch.tensor(found, dtype=torch.float64)
