"""What the runs need of a task that is made: its data, its model, its loss, its scores. No torch is imported here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from experiments.contract.groups import GroupedSettings
from experiments.contract.training import Train
from experiments.data.source import DataInfo

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ngn.methods.base import Capacity
    from ngn.train.batches import Batches

Seeds = int | Sequence[int]
CapacityOf: TypeAlias = "Callable[[int], Capacity]"
"""The capacity of group 0, 1, ... in the order of the model."""
Gate = TypeVar("Gate", bound=GroupedSettings)
"""The settings class of the components that a task's models are made of; a union where several fit."""


class Task(ABC, Generic[Gate]):
    """What the trainer and the phases need to know of a task.

    Attributes:
        info: name, digest and provenance of the data, for the record.
        timed_samples: samples of the forward pass whose cost a record holds; None where that says nothing.
        component_norms: whether a grown phase's record holds the norm of every f_k over the training inputs.
        scored: the forms of a learned model that are scored; a task may leave out what takes minutes.
        n: name of a score → what it is a mean over (examples, tokens), for the record; empty where the data say it.
        base_info: name, digest and provenance of the pretrained model, for the record.
        evaluations: points of the curve of :meth:`curve` in each training.
        keeps_frozen: models that are kept hold frozen parameters, too, since truncation may have cut them.
        prefix_score: a grown phase's record holds this score of every smaller prefix of a boundary; None for none.
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

    @abstractmethod
    def model(self, gate: Gate, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        """The model for one seed, or for a stack of seeds; ``capacity`` makes that of an ordered group, and its K says
        how many components the group has."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Mean loss of each model over a batch of the training stream, [*R]."""

    @abstractmethod
    def evaluate(self, model: nn.Module) -> dict[str, Tensor]:
        """Named scores of each model on the held data: float64 [*R]. ``model`` is called as ``loss`` calls it."""

    @abstractmethod
    def batches(self, train: Train, seeds: Seeds) -> Batches:
        """The training stream."""

    @abstractmethod
    def samples(self, train: Train) -> int:
        """Training samples, by which an epoch is counted and a prior is spread."""

    @abstractmethod
    def timed_batch(self) -> tuple[Any, int]:
        """The batch whose forward pass is timed, and how many samples it has."""

    def weight(self, batch: Any) -> float:
        """What ``loss`` has averaged over in a micro-batch, such as its tokens; only ratios within a step count."""
        return 1.0

    def curve(self, model: nn.Module) -> Tensor:
        """What the curve "held" shows of each model while it trains, [*R]; for tasks with ``evaluations``."""
        raise NotImplementedError

    def sample(self, model: nn.Module) -> str | None:
        """Text that the model writes, for the record; None where it writes none."""
        return None

    def describe(self, deployed: nn.Module) -> dict[str, Any]:
        """What else the record of a phase says of the truncated model, by the names of the record's schema."""
        return {}
