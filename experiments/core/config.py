"""The configuration of a run, and the base classes of the settings of tasks, components and methods.

The four classes share a file because each is checked against the others. ``experiments.config.schema`` adds the list of
tasks, components and methods.
"""

from __future__ import annotations

import pkgutil
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool

from experiments.core.blocks import Closed, Count, Positive
from experiments.core.groups import GroupedSettings, OrderedGroup, Replicas
from experiments.core.pretrained import BaseModel
from experiments.core.source import Source
from experiments.core.training import Schedule, Seed, Train

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from experiments.core.task import Task
    from ngn.learner import Learner
    from ngn.losses import Loss
    from ngn.methods.base import Capacity


class Component(GroupedSettings):
    """The ``gate`` block: the type of the components, their number, and the start of the boundary.

    Attributes:
        stacks: whether a stack trains faster on a CPU than one run after the other (docs/benchmarks.md).
        kernels: the compiled kernels that train such components. A subclass does not inherit them.
        sized_by: keys that set the size of a model in addition to its count; part of the identity of fixed models, too.
        given: whether the sizes lie in a finished module that the task hands over, and a ``limit`` decides on them.
        unused: keys and blocks of the configuration that such components ignore, as those of a method.
    """

    stacks: ClassVar[bool] = False
    kernels: ClassVar[tuple[str, ...]] = ()
    sized_by: ClassVar[tuple[str, ...]] = ()
    given: ClassVar[bool] = False
    unused: ClassVar[tuple[str, ...]] = ()

    @property
    def why_no_kernel(self) -> str | None:
        """Why none of :attr:`kernels` can train components with these settings; None if they can."""
        return None

    def sizes(self, counts: Sequence[int]) -> dict[str, int]:
        """Return sums of counts for the record, such as the total over all groups; empty for one group."""
        return {}

    def widths(self, task: TaskSettings) -> list[int]:
        """Return the units of the layers of one component, inputs first; empty if unknown."""
        return []

    def numbers(self, task: TaskSettings, samples: int) -> int:
        """Return a lower bound of the numbers that training holds per component with an open gate: outputs of hidden
        layers, and parameters with gradients and two moments."""
        widths = self.widths(task)
        return samples * sum(widths[1:-1]) + 4 * sum(out * (inputs + 1) for inputs, out in pairwise(widths))

    def check(self, config: Config) -> None:
        """Refuse settings of other blocks that do not fit such components.

        Raises:
            ValueError: says what is wrong and what to set.
        """


class TaskSettings(Closed):
    """The ``task`` block: the data of training and evaluation.

    Attributes:
        numerics: version of the task's numbers. Raise it with every change that alters them, however slightly.
        components: the ordered components that fit, the default first. Each pair has a file in ``conf/setting``.
        kernel: the compiled kernel that trains its models (``experiments/models/kernels``); not inherited.
        usual_samples: training samples of a full-size run, for estimating its time before reading data.
        inputs, outputs: shape of one input, and number of entries of one output.
        usual_model: default of ``model=``; "none" if the task needs no pretrained model.
        packages: modules that this task needs in addition to those of every task.
        made_by: the task's class, below the module of the settings, for :meth:`make`. It imports torch.
    """

    numerics: ClassVar[int] = 1
    made_by: ClassVar[str]
    usual_model: ClassVar[str] = "none"
    packages: ClassVar[tuple[str, ...]] = ()
    components: ClassVar[tuple[type[Component], ...]]
    kernel: ClassVar[str | None] = None
    usual_samples: ClassVar[int] = 512
    inputs: ClassVar[tuple[int, ...]] = (1,)
    outputs: ClassVar[int] = 1

    if TYPE_CHECKING:
        name: str

    @property
    def data_of_seed(self) -> bool:
        """Whether every seed has its own data; such runs cannot form a stack."""
        return False

    @property
    def data_sets(self) -> Mapping[str, str]:
        """Part → name of the data set that the task reads for it. Generated data, as of ``regression1d``, have none."""
        return {"data": self.name}

    def check(self, config: Config) -> None:
        """Refuse settings of other blocks that do not fit the task.

        Raises:
            ValueError: says what is wrong and what to set.
        """

    def seconds(self, config: Config) -> float | None:
        """Return the seconds of a run of which no record tells, from measured steps; None if nobody measured them."""
        return None

    def maker(self, config: Config) -> str:
        """Return the class that makes the task of a configuration, as :attr:`made_by` names it."""
        return self.made_by

    def make(self, config: Config, device: torch.device) -> Task[Any]:
        """Make the task of a checked configuration, whose ``task`` is this object, with its data on ``device``.

        Raises:
            experiments.data.source.DataError: if the data are missing or damaged.
        """
        made: Task[Any] = pkgutil.resolve_name(f"{type(self).__module__}.{self.maker(config)}")(self, config, device)
        return made


class Method(Closed):
    """The ``method`` block: the settings of one method.

    Attributes:
        numerics: version of the method's numbers. Raise it with every change that alters them, however slightly.
        unused: keys and blocks of the configuration that it ignores; they do not belong to a run's identity.
        scalars: its settings that may differ between the replicas of a stack; all others must be equal.
        in_kernels: whether the compiled kernels support it; not inherited.
        kernel_orders: the values of ``gate.order`` that the kernels support.
        ordered: whether it supports other ordering weights than r^k (``gate.order``).
        grows: whether it can allocate components as the boundary advances (``gate.K=null``).
        scored: forms of the learned model to score; equal forms appear once.
        of_modules: whether it also makes a finished module smaller ("also"), does only that ("only"), or cannot ("no").
        cuts: whether it makes a finished module smaller, and so needs a ``limit``.
        components: names of the components that it supports; empty for all.
        packages: modules that this method needs in addition to those of every method.
        source: its line in the report; None for no line.
        has_boundary: whether it learns a boundary t, which pays the price lambda0 and may start low or high.
    """

    numerics: ClassVar[int] = 1
    unused: ClassVar[tuple[str, ...]] = ()
    scalars: ClassVar[tuple[str, ...]] = ()
    in_kernels: ClassVar[bool] = False
    kernel_orders: ClassVar[tuple[str, ...]] = ("geometric", "power")
    ordered: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    scored: ClassVar[tuple[str, ...]] = ("truncated", "soft", "gates_kept")
    of_modules: ClassVar[Literal["no", "also", "only"]] = "no"
    cuts: ClassVar[bool] = True
    components: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[Source | None] = None
    has_boundary: ClassVar[bool] = True

    name: str

    @property
    def suffix(self) -> str:
        """Text after the method's name in a run id."""
        return ""

    def check(self, config: Config) -> None:
        """Refuse settings of other blocks that do not fit the method.

        Raises:
            ValueError: says what is wrong and what to set.
        """

    def sizes(self, gate: Component) -> int | list[int] | None:
        """Return the fixed count, a list for several groups; None if the method learns the size."""
        return None

    @abstractmethod
    def make(self, group: OrderedGroup) -> Capacity:
        """Make the capacity of one ordered group."""

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        """Make the learner of a stack. Override it if the method does not learn each axis by itself.

        Args:
            model: makes the model of the task, with the capacity of :meth:`make` in each of its groups.
        """
        from ngn.learner import Learner

        return Learner(model())

    def loss(self, config: Config, task: Task[Any]) -> Loss:
        """Return the loss that training minimises, without penalties."""
        return task.loss

    def learned_decay(self, capacity: Capacity) -> Tensor | None:
        """Return the ratio r that ``capacity`` learned: float64 [*R]; None if r is a setting."""
        return None


Quantity = Count | Annotated[str, Field(pattern=r"^\d+(\.\d+)?%$")]
"""A number, or a share of the whole such as ``50%``."""
PLAIN = (
    "schedule", "gate.K", "gate.K_max", "gate.delta", "gate.t0", "train.lr_boundary", "train.lr_boundary_shape",
    "train.clip_scope", "phases", "continue_with", "limit",
)  # fmt: skip
"""Settings that a plain model does not use: it has no boundary and only one phase."""


class ModuleLimit(Closed):
    """The ``limit`` block: what the finished model may cost, where a task hands over a module to make smaller."""

    parameters: Quantity | None = None
    """Parameters of the sizes, and of what no size reaches if it is a number."""
    macs: Quantity | None = None
    """Multiply-adds of one sample."""

    @property
    def kind(self) -> Literal["parameters", "macs"] | None:
        """The limited quantity; None without a limit."""
        return "parameters" if self.parameters is not None else "macs" if self.macs is not None else None

    @property
    def value(self) -> int | str | None:
        """The limit as it was given; None without one."""
        return self.macs if self.parameters is None else self.parameters


class Config(Closed):
    """One run: scientific keys, which decide its numbers, and keys of execution (see ``config/identity.py``)."""

    task: TaskSettings
    model: BaseModel | None = None
    """The pretrained model to adapt; null for tasks without one and for smoke runs."""
    gate: Component
    method: Method
    limit: ModuleLimit = ModuleLimit()
    schedule: Schedule
    train: Train
    phases: Annotated[list[Literal["grown", "fixed", "from_high"]], Field(min_length=1)]
    continue_with: list[Positive] = Field(default_factory=list)
    """Factors of lambda0. For each factor, the grown model trains once more from its end."""
    seed: Seed
    budget: Literal["paper", "cpu"] = "paper"
    """Length of a pretrained model's training: as in the paper, or minutes on a CPU."""
    profile: Literal["full", "smoke"] = "full"

    device: Literal["auto", "cpu", "cuda"] = "auto"
    engine: Literal["auto", "torch", "fused"] = "auto"
    """``fused`` is a compiled kernel; ``auto`` uses it if one fits."""
    threads: Count | None = None
    """Threads of one process; null for torch's default."""
    results: str | None = None
    """Folder of the records; null for ``runs/`` (clean full-size runs) or ``scratch/results/`` (all others)."""
    save: Literal["none", "deployed"] = "none"
    """``deployed`` saves the truncated model of every phase beside the record, as safetensors."""
    logger: Literal["none", "csv", "tensorboard", "wandb", "mlflow"] = "none"
    """Logger for the curves during training, in addition to the curves of the record."""
    tag: Annotated[str, Field(pattern=r"^[\w.+-]{1,40}$")] | None = None
    """A word of your own in the record, to find runs again."""
    data_root: str | None = None
    """Folder with the data sets; null for $NGN_DATA or the suite's own cache."""
    force: StrictBool = False
    """Train again and replace the record if there is one."""
    show: StrictBool = False
    """Print the committed records of the runs; train and write nothing."""
    progress: Literal["auto", "always", "never"] = "auto"
    checkpoint_seconds: Positive = 60.0
    allow_many_jobs: StrictBool = False

    @property
    def trained(self) -> bool:
        """Whether the run begins with trained weights."""
        return self.model is not None and (self.model.package is None or self.model.path is not None)

    @property
    def trainings(self) -> int:
        """The number of phases; a model of given size has one."""
        return len(self.phases) + len(self.continue_with) if self.method.sizes(self.gate) is None else 1
