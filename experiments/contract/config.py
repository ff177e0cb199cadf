"""The configuration of a run, and what its task, its component and its method say of themselves.

They are in one file, since each of the four is checked against the others. ``experiments.config.schema`` adds which
tasks, components and methods there are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, StrictBool

from experiments.blocks import Closed, Count, Positive, legal_name
from experiments.contract.groups import GroupedSettings
from experiments.contract.source import Source
from experiments.contract.training import Schedule, Seed, Train
from experiments.language.settings import BaseModel

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from experiments.contract.task import Seeds, Task
    from ngn.contract import Learner
    from ngn.methods.base import Capacity, Scalar
    from ngn.orders import Order


class Component(GroupedSettings):
    """The ``gate`` block: what one candidate component is, how many there are, and where the boundary starts.

    Attributes:
        stacks: whether models with a replica axis train faster on a CPU than one by one (docs/benchmarks.md).
        sized_by: keys without which a count does not say how large a model is; they are part of the identity of runs
            of a given count, too.
    """

    stacks: ClassVar[bool] = False
    sized_by: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def legal_name(cls) -> str:
        """``gate.component`` of such components."""
        return legal_name(cls, "component")

    @property
    def why_no_kernel(self) -> str | None:
        """Why no compiled kernel trains such components, whatever their task; None where nothing speaks against it."""
        return None

    def sizes(self, counts: Sequence[int]) -> dict[str, int]:
        """What a record says of the counts of all groups together, such as their total; nothing of a single one."""
        return {}

    def widths(self, task: TaskSettings) -> list[int]:
        """Units of the layers of one component, its inputs first; empty where that is not known."""
        return []

    def numbers(self, task: TaskSettings, samples: int) -> int:
        """At least as many numbers as this are held in training for each component whose gate is open: the outputs
        of its hidden layers, and its parameters with their gradients and two moments."""
        widths = self.widths(task)
        return samples * sum(widths[1:-1]) + 4 * sum(out * (inputs + 1) for inputs, out in pairwise(widths))

    def check(self, config: Config) -> None:
        """Refuse settings of other blocks that do not fit such components.

        Raises:
            ValueError: saying what was wrong and what was meant.
        """


class TaskSettings(Closed):
    """The ``task`` block: the data, and what is evaluated on.

    Attributes:
        numerics: version of what the task computes. Bump it whenever a change alters its numbers, however slightly.
        components: the ordered components that fit, the usual first. Each pair has a file in ``conf/setting``.
        kernel: the compiled kernel that trains its models (``experiments/models/kernels``).
        usual_samples: training samples of a full-size run, by which its time is estimated before data are read.
        inputs, outputs: shape of one input, and entries of one output.
        usual_model: the choice of ``model=`` where none is named; "none" where nothing pretrained is needed.
        packages: modules that have to be installed beside those that every task needs.
    """

    numerics: ClassVar[int] = 1
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
        """Whether every seed has data of its own; such runs cannot be trained as one stack."""
        return False

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Names of the data sets that it reads; what is made, such as ``regression1d``, is none."""
        return (self.name,)

    def check(self, config: Config) -> None:
        """Refuse settings of other blocks that do not fit the task.

        Raises:
            ValueError: saying what was wrong and what was meant.
        """

    @abstractmethod
    def make(self, config: Config, device: torch.device) -> Task[Any]:
        """The task of a checked configuration, its data on ``device``; the configuration's ``task`` is this one.

        Raises:
            experiments.data.source.DataError: if the data are absent or damaged.
        """


class OrderedGroup(Protocol):
    """One ordered group of the model that is trained, as a method is given it.

    Attributes:
        number: which group of the model this is, from 0.
        samples: training samples.
        stack: the runs that are trained together.
    """

    @property
    def number(self) -> int: ...

    @property
    def samples(self) -> int: ...

    @property
    def stack(self) -> Replicas: ...

    @property
    def K(self) -> int | None:
        """Candidate components; None allocates them as the boundary advances."""

    @property
    def preset_K(self) -> int:
        """K; a ValueError if there is none."""

    @property
    def r(self) -> Scalar:
        """Ratio of the ordering weights."""

    @property
    def order(self) -> Order:
        """What its weights are besides their ratio."""

    @property
    def lambda0(self) -> Scalar:
        """Price."""

    def count_gate(self) -> dict[str, Any]:
        """The arguments of :class:`ngn.methods.ngn.CountGate` but K."""


class Method(Closed):
    """The ``method`` block: the settings of one capacity learner.

    Attributes:
        numerics: version of what the method computes. Bump it whenever a change alters the numbers that it gives.
        unused: keys and blocks of the configuration that it does not use; they are no part of a run's identity.
        scalars: its own settings that may differ between the replicas of a stack; the others are the same in all.
        in_kernels: whether the compiled kernels know it; ``kernel_orders``: the values of ``gate.order`` they know.
        ordered: whether its components can have another order than r^k (``gate.order``).
        grows: whether components may be allocated as the boundary advances (``gate.K=null``).
        scored: the forms of a learned model that it is scored in; one that is the same as another is left out.
        components: the components that it knows, by their names; empty for all.
        packages: modules that have to be installed beside those that every method needs.
        source: its line in the report; None leaves it out.
    """

    numerics: ClassVar[int] = 1
    unused: ClassVar[tuple[str, ...]] = ()
    scalars: ClassVar[tuple[str, ...]] = ()
    in_kernels: ClassVar[bool] = False
    kernel_orders: ClassVar[tuple[str, ...]] = ("geometric", "power")
    ordered: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    scored: ClassVar[tuple[str, ...]] = ("truncated", "soft", "gates_kept")
    components: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[Source | None] = None

    name: str

    @property
    def suffix(self) -> str:
        """What follows the method's name in the name of a run."""
        return ""

    @property
    def has_boundary(self) -> bool:
        """Whether a boundary t is learned: it pays the price lambda0, and may start low or high."""
        return True

    def check(self, config: Config) -> None:
        """Refuse settings of other blocks that do not fit the method.

        Raises:
            ValueError: saying what was wrong and what was meant.
        """

    def sizes(self, gate: Component) -> int | list[int] | None:
        """The count of a plain model, a list for several groups; None where a size is learned."""
        return None

    @abstractmethod
    def make(self, group: OrderedGroup) -> Capacity:
        """The capacity of one ordered group of a model."""

    def learner(self, stack: Replicas, task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        """The learner of a stack; a method whose sizes are not learned axis by axis makes its own.

        Args:
            model: makes the model of the task, with the capacity of :meth:`make` in each of its groups.
        """
        from ngn.learner import CapacityLearner

        return CapacityLearner(model())

    def learned_decay(self, capacity: Capacity) -> Tensor | None:
        """The ratio r of the ordering weights that ``capacity`` learned: float64 [*R]; None where r is a setting."""
        return None


class Config(Closed):
    """One run: what it computes (scientific keys) and how it is carried out (the rest; see ``config/identity.py``)."""

    task: TaskSettings
    model: BaseModel | None = None
    """The pretrained model that is adapted; null for tasks that start from nothing, and in smoke runs."""
    gate: Component
    method: Method
    schedule: Schedule
    train: Train
    phases: Annotated[list[Literal["grown", "fixed", "from_high"]], Field(min_length=1)]
    continue_with: list[Positive] = Field(default_factory=list)
    """Factors of lambda0: for each, the grown model is trained once more from where it ended."""
    seed: Seed
    budget: Literal["paper", "cpu"] = "paper"
    """How much a pretrained model is trained: as the paper says, or what a CPU does in minutes."""
    profile: Literal["full", "smoke"] = "full"

    device: Literal["auto", "cpu", "cuda"] = "auto"
    engine: Literal["auto", "torch", "fused"] = "auto"
    """``fused`` is a compiled kernel; ``auto`` takes it where one fits."""
    threads: Count | None = None
    """Threads of one process; null leaves the choice to torch."""
    results: str | None = None
    """Where records go; null for ``runs/`` (clean full-size runs) or ``scratch/results/`` (all others)."""
    save: Literal["none", "deployed"] = "none"
    """Whether the truncated model of every phase is kept beside the record, as safetensors."""
    logger: Literal["none", "csv", "tensorboard", "wandb"] = "none"
    """Where the curves are written while they are drawn, beside those of the record."""
    tag: Annotated[str, Field(pattern=r"^[\w.+-]{1,40}$")] | None = None
    """A word of one's own that the record keeps, to find runs again."""
    data_root: str | None = None
    """Folder with the data sets; null for $NGN_DATA or the suite's own cache."""
    force: StrictBool = False
    """Run again although a record is present, and replace it."""
    progress: Literal["auto", "always", "never"] = "auto"
    checkpoint_seconds: Positive = 60.0
    allow_many_jobs: StrictBool = False


class Replicas(Protocol):
    """Runs that are trained as one model, as methods are given them: ``experiments.runs.stack.Stack``."""

    @property
    def first(self) -> Config:
        """The configuration that holds for every run, seed and scalars apart."""

    @property
    def configs(self) -> list[Config]:
        """The configurations, in the order of the replicas."""

    @property
    def replicas(self) -> int | None:
        """Length of the replica axis; None for a single run, whose tensors have no such axis."""

    @property
    def seeds(self) -> Seeds:
        """The seed of a single run, or one per replica."""

    def scalar(self, key: str) -> Scalar:
        """A scalar setting by its dotted name: a number for a single run, float64 [R] for a stack."""
