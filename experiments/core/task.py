"""The interface of a task: its data, its model, its loss and its scores. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from experiments.core.groups import GroupedSettings
from experiments.core.training import Train

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ngn.methods.base import Capacity
    from ngn.sizes.base import Size
    from ngn.tracing.found import FoundSizes
    from ngn.train.batches import Batches

Seeds = int | Sequence[int]
CapacityOf: TypeAlias = "Callable[[int], Capacity]"
"""Group number (0, 1, ... in the order of the model) → capacity."""
Gate = TypeVar("Gate", bound=GroupedSettings)
"""The settings class of a task's components; a union if several fit."""


@dataclass(frozen=True)
class DataInfo:
    """What a record says about its data: ``sha256`` over all files read, and ``provenance``, one line of text."""

    name: str
    sha256: str
    provenance: str


class Task(ABC, Generic[Gate]):
    """What the trainer and the phases need from a task.

    Attributes:
        info: name, digest and provenance of the data, for the record.
        timed_samples: samples in the forward pass whose cost goes into the record; None for no cost.
        component_norms: whether the record of a grown phase holds the norm of every f_k over the training inputs.
        scored: forms of the learned model to score; a task may leave out forms that take minutes.
        n: score → number of examples or tokens that it averages over, for the record; empty if the data set it.
        base_info: name, digest and provenance of the pretrained model, for the record.
        evaluations: number of points of :meth:`curve` in each training.
        keeps_frozen: whether saved models include frozen parameters, since truncation may have cut them.
        prefix_score: score of every smaller prefix, for the record of a grown phase; None for no such scores.
        held_out: batches on which a learner under a limit judges whether sizes may part; None for none.
        scan: package whose kernel computes a part of the model on this device, for the record; None for torch alone.
    """

    info: DataInfo
    scored: tuple[str, ...] = ("truncated", "soft", "gates_kept")
    n: Mapping[str, int] = MappingProxyType({})
    base_info: DataInfo | None = None
    timed_samples: int | None = None
    component_norms = False
    evaluations = 0
    keeps_frozen = False
    prefix_score: str | None = None
    held_out: Batches | None = None
    scan: str | None = None

    @abstractmethod
    def model(self, gate: Gate, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        """Make the model for one seed or for a stack of seeds.

        Args:
            capacity: makes the capacity of an ordered group, whose K is the number of components.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the mean loss of each model over a batch of the training stream, [*R]."""

    @abstractmethod
    def evaluate(self, model: nn.Module) -> dict[str, Tensor]:
        """Return named scores of each model on the held data: float64 [*R]. Calls ``model`` as :meth:`loss` does."""

    @abstractmethod
    def batches(self, train: Train, seeds: Seeds) -> Batches:
        """Return the training stream."""

    @abstractmethod
    def samples(self, train: Train) -> int:
        """Return the number of training samples, which sets the length of an epoch and the weight of a prior."""

    @abstractmethod
    def timed_batch(self) -> tuple[Any, int]:
        """Return the batch for timing a forward pass, and its number of samples."""

    def weight(self, batch: Any) -> float:
        """Return the weight of a micro-batch, such as its number of tokens; only ratios within a step count."""
        return 1.0

    def curve(self, model: nn.Module) -> Tensor:
        """Return the value of the curve "held" for each model during training, [*R]; for tasks with ``evaluations``."""
        raise NotImplementedError(f"{type(self).__name__} has evaluations, so it needs a method curve")

    def sample(self, model: nn.Module) -> str | None:
        """Return a text that the model generates, for the record; None for models without text."""
        return None

    def describe(self, deployed: nn.Module) -> dict[str, Any]:
        """Return further values of the truncated model for the record of a phase, by key."""
        return {}


class ModuleTask(Task[Gate]):
    """A task that hands over a finished module, trained or not, for a method to make smaller.

    Attributes:
        uncut: names of modules whose outputs stay whole.
        outside: parameters that no size reaches. A share of the parameters is one of the others.
        by_importance: the order in which units are kept where sizes are learned; None keeps the first.
    """

    uncut: tuple[str, ...] = ()
    outside: int = 0
    by_importance: Literal["magnitude", "wanda"] | None = None

    @abstractmethod
    def module(self, seed: int, width: float = 1.0) -> nn.Module:
        """Return the module of a seed, a new copy each time; trained weights are the same for all seeds.

        Args:
            width: factor on all its widths; trained weights have only 1.
        """

    @abstractmethod
    def sizes(self, module: nn.Module, K: int | None, order: Any = None) -> Mapping[str, Size] | FoundSizes:
        """Return the sizes of ``module`` to learn, as ``ngn.learn_sizes`` takes them.

        Args:
            K: most components of a size that has a choice of them; None for one a unit.
            order: function (name, K) → components, the most important first; None for the module's order.
        """

    @abstractmethod
    def counts(self, module: nn.Module) -> list[int]:
        """Return the units of each size in a module, which may have been cut: heads, channels or hidden units."""

    def model(self, gate: Gate, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        assert isinstance(seeds, int)
        return self.module(seeds)
