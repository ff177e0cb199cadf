"""Stacks: runs that are trained as one model, since they differ in nothing but their seed and a few scalars.

Neither torch nor a compiler is needed to plan them: how wide a stack is depends on the configurations alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.config.identity import flatten, scientific
from experiments.contract.config import Config
from experiments.runs.run_files import Run, checkpoints_named, runs_of

if TYPE_CHECKING:
    import torch

SCALARS = (
    "seed.value",
    "gate.r",
    "gate.t0",
    "schedule.lambda0",
    "schedule.alpha_max",
    "schedule.kappa",
    "schedule.beta_start",
    "schedule.beta_end",
    "train.lr",
    "train.lr_boundary",
)
"""What may differ between the replicas of a stack, beside the ``scalars`` of the method."""

LARGEST = 10
"""Replicas in one stack of the torch engine: four to ten suit a CPU's caches, more spill them. Also of models of depth
in the kernel, which then take minutes."""
LARGEST_FUSED = 500
"""For the 1D study. The kernel takes replica by replica, 130 KB each, so a stack may be large; it is one progress bar
and one task."""


@dataclass(frozen=True)
class Stack:
    """Runs that are trained as one model with a replica axis; of a single run, a model without that axis.

    Attributes:
        runs: at least one, equal but for the seed and scalars (:data:`SCALARS`).
    """

    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("a stack has at least one run")

    @staticmethod
    def of(*configs: Config) -> Stack:
        """The stack of these configurations."""
        return Stack(tuple(runs_of(configs)))

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def first(self) -> Config:
        """What holds for every run, seed and scalars apart."""
        return self.runs[0].config

    @property
    def configs(self) -> list[Config]:
        """Their configurations, in the order of the replicas."""
        return [run.config for run in self.runs]

    @property
    def replicas(self) -> int | None:
        """Length of the replica axis; None for a single run, whose tensors have no such axis."""
        return None if len(self) == 1 else len(self)

    @property
    def seeds(self) -> int | list[int]:
        """The seed of a single run, or one per replica."""
        return self.first.seed.value if len(self) == 1 else [config.seed.value for config in self.configs]

    @property
    def ids(self) -> list[str]:
        """The run ids, in the order of the replicas."""
        return [run.id for run in self.runs]

    @cached_property
    def id(self) -> str:
        """A name for the stack, the same whenever the same runs form it in this order."""
        ids = self.ids
        if len(ids) == 1:
            return ids[0]
        return f"pack{len(ids)}-{hashlib.sha256(' '.join(ids).encode()).hexdigest()[:12]}"

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return checkpoints_named(self.id, self.runs[0].root)

    def values(self, key: str) -> list[float]:
        """One scalar setting of each run, by its dotted name."""
        return [float(reduce(getattr, key.split("."), config)) for config in self.configs]  # type: ignore[arg-type]

    def scalar(self, key: str) -> float | torch.Tensor:
        """A scalar setting as the library takes it: a number for a single run, float64 [R] for a stack."""
        values = self.values(key)
        if len(self) == 1:
            return values[0]
        import torch  # not earlier: sweeps are planned without it

        return torch.tensor(values, dtype=torch.float64)

    def take(self, replicas: Sequence[int]) -> Stack:
        """The stack of some of the runs."""
        return Stack(tuple(self.runs[r] for r in replicas))

    def parts(self, largest: int) -> list[Stack]:
        """The runs in stacks of at most ``largest``."""
        return [Stack(self.runs[at : at + largest]) for at in range(0, len(self), largest)]


WIDEST = 64
"""Units of the widest blocks for which kernels are compiled."""


def why_no_kernel(config: Config) -> str | None:
    """Why no compiled kernel trains this run, whether or not there is a compiler; None where one does."""
    gate, train = config.gate, config.train
    reasons = {
        f"there is no compiled kernel for task={config.task.name}": config.task.kernel is None,
        f"the compiled kernels do not know method={config.method.name}": not config.method.in_kernels,
        "the compiled kernels keep the ordering weights but under a budget: gate.order=geometric or power": gate.order
        not in config.method.kernel_orders,
        "the compiled kernels keep train.lr_boundary constant": train.lr_boundary_shape.kind != "constant",
        "the compiled kernels have train.optimizer=adam alone, without train.warmup": train.optimizer != "adam"
        or train.warmup > 0,
        "the compiled kernels train on full batches in single precision: train.batch=null, train.accumulate=1 and "
        "train.autocast=none": train.batch is not None or train.accumulate > 1 or train.autocast != "none",
        f"the compiled kernels have blocks of at most {WIDEST} units": max(gate.widths(config.task)[1:-1], default=0)
        > WIDEST,
    }
    return next((reason for reason, holds in reasons.items() if holds), gate.why_no_kernel)


def kernel_of(config: Config) -> str | None:
    """The compiled kernel that trains this run where a compiler is there; None where torch does in any case."""
    return config.task.kernel if config.engine in ("auto", "fused") and why_no_kernel(config) is None else None


def largest_in_torch(config: Config) -> int:
    """How many replicas suit the torch engine; 1 where stacks are no faster, or no two runs have the same data."""
    return LARGEST if config.gate.stacks and not config.task.data_of_seed else 1


def largest_stack(config: Config) -> int:
    """How many replicas suit the engine that trains this run; memory may allow fewer (``memory.py``)."""
    kernel = kernel_of(config)
    if kernel is None:
        return largest_in_torch(config)
    return LARGEST_FUSED if kernel == "bank1d" else LARGEST


def stack_key(config: Config) -> str:
    """Equal for runs that can be one stack."""
    scalars = {*SCALARS, *(f"method.{name}" for name in config.method.scalars)}
    return json.dumps({k: v for k, v in flatten(scientific(config)).items() if k not in scalars}, sort_keys=True)


def stacks_of(runs: Sequence[Run], largest: int | None = None) -> list[Stack]:
    """Runs in stacks of at most ``largest`` (None: what suits the engine), by the first of each in the order given.

    Runs that cannot be stacked stand alone.
    """
    stacks: list[list[Run]] = []
    latest: dict[str, list[Run]] = {}
    for run in runs:
        key = stack_key(run.config)
        alike = latest.get(key)
        suited = largest_stack(run.config)
        if alike is None or len(alike) >= (suited if suited == 1 or largest is None else largest):
            alike = latest[key] = []
            stacks.append(alike)
        alike.append(run)
    return [Stack(tuple(alike)) for alike in stacks]
