"""What a task and a kind of ordered component say of themselves. No torch is imported before a task is made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from experiments.blocks import Closed, Components, Count, Delta, NonNegative, Positive, Ratio, legal_name

if TYPE_CHECKING:
    import torch

    from experiments.config.schema import Config
    from experiments.tasks.base import Task


class GroupSettings(Closed):
    """What the groups of one kind have in place of the block's own; null for what the block says."""

    K: Components | None = None
    delta: Delta | None = None
    r: Ratio | None = None
    t0: Positive | None = None
    lambda0: NonNegative | None = None
    """In place of ``schedule.lambda0``."""


class Component(Closed):
    """The ``gate`` block: what one candidate component is, how many there are, and where the boundary starts.

    Attributes:
        stacks: whether models with a replica axis train faster on a CPU than one by one (docs/benchmarks.md).
        group_kinds: kinds of ordered groups that a model of such components has, in the order in which they come and
            come again (``("heads", "slices")``: heads and slices of the first layer, of the second, ...).
        sized_by: keys without which a count does not say how large a model is; they are part of the identity of runs
            of a given count, too.
    """

    stacks: ClassVar[bool] = False
    group_kinds: ClassVar[tuple[str, ...]] = ()
    sized_by: ClassVar[tuple[str, ...]] = ()

    K: Components | None
    """Candidate components; null allocates them as the boundary advances."""
    K_max: Components = 1024
    """Where growth without a preset K stops with an error."""
    delta: Delta = 0.5
    r: Ratio = 0.5
    """Ordering weights w_k = r^k."""
    order: Literal["geometric", "power", "annealed", "matryoshka", "nested_dropout"] = "geometric"
    """What makes earlier components count for more (``ngn/orders.py``)."""
    order_exponent: Positive = 1.0
    """a of the weights (k + 1)^-a, with ``order: power``."""
    order_ranks: Annotated[list[Count], Field(min_length=1)] | None = None
    """Target ranks of matryoshka (null: 1, 2, 4, ..., K) and of nested dropout (null: a cut of the law r^k)."""
    t0: Positive = 1e-4
    """Initial boundary."""
    kinds: Annotated[dict[str, GroupSettings], Field(min_length=1)] | None = None
    """kind of group → what its groups have of their own, such as ``{heads: {K: 8}, slices: {K: 16}}``."""

    component: str

    @classmethod
    def legal_name(cls) -> str:
        """``gate.component`` of such components."""
        return legal_name(cls, "component")

    @property
    def groups(self) -> int:
        """Ordered groups of components in the model, each with a boundary of its own."""
        return 1

    def setting_of(self, group: int, key: str) -> float | None:
        """``key`` of :class:`GroupSettings` as the kind of this group has it; None where it has no own."""
        if not self.kinds:
            return None
        own = self.kinds.get(self.group_kinds[group % len(self.group_kinds)])
        value: float | None = getattr(own, key, None)
        return value

    def K_of(self, group: int) -> int | None:
        """Candidate components of a group; None where they are allocated as its boundary advances."""
        own = self.setting_of(group, "K")
        return self.K if own is None else int(own)

    def high_start(self, group: int = 0) -> float:
        """The boundary that ``from_high`` starts at: t = K - 1, every candidate retained.

        Raises:
            ValueError: without a preset K.
        """
        K, t0 = self.K_of(group), self.setting_of(group, "t0")
        if K is None:
            raise ValueError("without a preset K there is no high end to start from")
        return max(float(K - 1), self.t0 if t0 is None else t0)

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

    @model_validator(mode="after")
    def _of_the_order(self) -> Component:
        if self.order_exponent != 1 and self.order != "power":
            raise ValueError(f"gate.order_exponent is for gate.order=power; gate.order={self.order} has none")
        if self.order_ranks is not None and self.order not in ("matryoshka", "nested_dropout"):
            raise ValueError("gate.order_ranks are for gate.order=matryoshka or nested_dropout")
        if self.order == "matryoshka" and self.order_ranks is None and self.K is None:
            raise ValueError("gate.order=matryoshka with gate.K=null needs its gate.order_ranks")
        return self

    @model_validator(mode="after")
    def _kinds_exist(self) -> Component:
        unknown = [kind for kind in self.kinds or () if kind not in self.group_kinds]
        if unknown:
            legal = f"they are: {', '.join(self.group_kinds)}" if self.group_kinds else "all its groups are alike"
            raise ValueError(f"gate={self.component} has no kind of groups {unknown[0]!r}; {legal}")
        return self

    @model_validator(mode="after")
    def _boundary_inside(self) -> Component:
        for number in range(max(1, len(self.group_kinds))):
            K, t0 = self.K_of(number), self.setting_of(number, "t0")
            t0 = self.t0 if t0 is None else t0
            limit, name = (self.K_max, "K_max") if K is None else (K, "K")
            if t0 > limit:
                raise ValueError(f"the initial boundary t0 = {t0:g} lies beyond the {name} = {limit} candidates")
        return self


class MLPComponent(Component):
    """tanh MLP blocks; ``features`` is the width of the blocks' output where a shared linear head follows."""

    stacks: ClassVar[bool] = True

    component: Literal["mlp"]
    width: Count
    hidden_layers: Count = 2
    features: Count | None = None

    def widths(self, task: TaskSettings) -> list[int]:
        return [prod(task.inputs), *[self.width] * self.hidden_layers, self.features or task.outputs]


class TaskSettings(Closed):
    """The ``task`` block: the data, and what is evaluated on.

    Attributes:
        numerics: version of what the task computes. Bump it whenever a change alters its numbers, however slightly.
        components: the ordered components that fit, the usual first. Each pair has a file in ``conf/setting``.
        kernel: the compiled kernel that trains its models (:mod:`experiments.models.kernels`).
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
    def data_sets(self) -> tuple[str, ...]:
        """Names of the data sets that it reads; what is made, such as ``regression1d``, is none."""
        return (self.name,)

    @property
    def data_of_seed(self) -> bool:
        """Whether every seed has data of its own; such runs cannot be trained as one stack."""
        return False

    def check(self, config: Config) -> None:
        """Refuse settings of other blocks that do not fit the task.

        Raises:
            ValueError: saying what was wrong and what was meant.
        """

    @abstractmethod
    def make(self, config: Config, device: torch.device) -> Task:
        """The task of a checked configuration, its data on ``device``.

        Raises:
            experiments.data.source.DataError: if the data are absent or damaged.
        """


class Benchmark(TaskSettings):
    """A data set with a standard split."""

    split: Literal["test", "validation"] = "test"
    """What is evaluated on; ``validation`` is held out of the training data and is for choosing settings."""
