"""Stacks: runs that differ only in seed and a few scalars, trained as one model.

Planning stacks needs neither torch nor a compiler: the size of a stack depends only on the configurations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.config.identity import Run, checkpoints_named, flatten, runs_of, scientific
from experiments.core import checkpoint
from experiments.core.config import Config
from experiments.core.groups import Replicas
from experiments.models.kernels import WIDEST, training_problem

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
"""Settings that may differ between the replicas of a stack, besides the ``scalars`` of the method."""

NOTE = "pack.json"
"""File in a folder of checkpoints that lists the runs of the stack."""
LARGEST = 10
"""Most replicas in one stack of the torch engine: four to ten fit a CPU's caches, more do not. Also the limit for
models of depth in the compiled kernel; such a stack takes minutes."""
LARGEST_FUSED = 500
"""Most replicas in one stack of the 1D study in the compiled kernel. The kernel trains one replica after another,
130 KB each, so a stack may be large. It shows as one progress bar and one task."""


@dataclass(frozen=True)
class Stack(Replicas[Config]):
    """Runs that are trained as one model with a replica axis. A single run has a model without that axis.

    Attributes:
        runs: one or more, equal except for seed and scalars (:data:`SCALARS`).
    """

    runs: tuple[Run, ...]

    @staticmethod
    def of(*configs: Config) -> Stack:
        """Make the stack of these configurations."""
        return Stack(tuple(runs_of(configs)))

    def __len__(self) -> int:
        return len(self.runs)

    @cached_property
    def configs(self) -> list[Config]:
        """The configurations, in the order of the replicas."""
        return [run.config for run in self.runs]

    @property
    def ids(self) -> list[str]:
        """The run ids, in the order of the replicas."""
        return [run.id for run in self.runs]

    @cached_property
    def id(self) -> str:
        """The name of the stack, a function of its runs and their order."""
        if len(self) == 1:
            return self.runs[0].id
        return f"pack{len(self)}-{hashlib.sha256(' '.join(self.ids).encode()).hexdigest()[:12]}"

    @property
    def checkpoints(self) -> Path:
        """The folder of the stack's checkpoints."""
        return checkpoints_named(self.id, self.runs[0].root)

    def note(self) -> None:
        """Write the list of the runs into the folder of checkpoints, before any other file."""
        if not (self.checkpoints / NOTE).exists():
            runs = {run.id: scientific(run.config) for run in self.runs}
            noted = {"results": str(self.runs[0].root.resolve()), "runs": runs}
            checkpoint.write_sealed(self.checkpoints / NOTE, noted, {})

    def take(self, replicas: Sequence[int]) -> Stack:
        """Return the stack of the given replicas."""
        return Stack(tuple(self.runs[r] for r in replicas))

    def parts(self, largest: int) -> list[Stack]:
        """Split the stack into stacks of at most ``largest`` runs."""
        return [Stack(self.runs[at : at + largest]) for at in range(0, len(self), largest)]


def why_no_kernel(config: Config) -> str | None:
    """Return why no compiled kernel trains this run, or None if one does. A compiler need not be present.

    This alone decides on stacks, on ``engine=fused``, and on the trainer of a phase. A kernel is never the default: the
    task, the component and the method name it.
    """
    task, gate, method, train = config.task, config.gate, config.method, config.train
    blocks = ((task, "kernel"), (gate, "kernels"), (method, "in_kernels"))
    # What the class itself says: a subclass may train another model, so it says it anew.
    kernel, kernels, in_kernels = (vars(type(block)).get(name) for block, name in blocks)
    if kernel is None:
        return f"there is no compiled kernel for task={task.name}"
    if kernel not in (kernels or ()):
        return f"there is no compiled kernel for gate={gate.component}"
    if not in_kernels:
        return f"the compiled kernels do not support method={method.name}"
    if gate.order not in method.kernel_orders:
        return "the compiled kernels change ordering weights only under a budget: use gate.order=geometric or power"
    if (reason := training_problem(train)) is not None:
        return reason
    if train.batch is not None:
        return "the compiled kernels train on full batches: use train.batch=null"
    if max(gate.widths(task)[1:-1], default=0) > WIDEST:
        return f"the compiled kernels support blocks of at most {WIDEST} units"
    return gate.why_no_kernel


def kernel_of(config: Config) -> str | None:
    """Return the compiled kernel that trains this run if a compiler is present; None if torch trains it anyway."""
    return config.task.kernel if config.engine in ("auto", "fused") and why_no_kernel(config) is None else None


def largest_stack(config: Config, in_torch: bool = False) -> int:
    """Return the most replicas for the engine that trains this run. Memory may allow fewer (``training.py``).

    In torch it is 1 if stacks are not faster, or if every seed has its own data.
    """
    kernel = None if in_torch else kernel_of(config)
    if kernel is None:
        return LARGEST if config.gate.stacks and not config.task.data_of_seed else 1
    return LARGEST_FUSED if kernel == "bank1d" else LARGEST


def stacks_of(runs: Sequence[Run], largest: int | None = None) -> list[Stack]:
    """Divide runs into stacks, in the order of their first runs. A run that cannot be stacked is a stack of one.

    Args:
        largest: most runs in one stack; None for the engine's limit.
    """
    stacks: list[list[Run]] = []
    latest: dict[str, list[Run]] = {}
    for run in runs:
        scalars = {*SCALARS, *(f"method.{name}" for name in run.config.method.scalars)}
        key = repr([each for each in sorted(flatten(scientific(run.config)).items()) if each[0] not in scalars])
        alike = latest.get(key)
        suited = largest_stack(run.config)
        if alike is None or len(alike) >= (suited if suited == 1 or largest is None else largest):
            alike = latest[key] = []
            stacks.append(alike)
        alike.append(run)
    return [Stack(tuple(alike)) for alike in stacks]
