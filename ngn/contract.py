"""A model whose size is learned, as the trainer sees it."""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ngn.checks import check_equal
from ngn.methods.base import Mode
from ngn.truncation import deploy

SETTLED = 0.1
"""Distance of a boundary from an integer up to which truncation is expected to leave the model nearly as it was."""


@dataclass(frozen=True)
class Report:
    """What :meth:`Learner.report` says; G learned sizes, for a stack of models a list per model.

    Attributes:
        size, count: continuous sizes (t for a boundary) and what truncation keeps of each, [G].
        distance: from t to the nearest integer, [G]; None where sizes are no boundaries.
        parameters, deployed: how many one model has now, and how many deployment leaves.
    """

    size: list[Any]
    count: list[Any]
    distance: list[Any] | None
    parameters: int
    deployed: int | list[int]


class Learner(nn.Module, ABC):
    """The contract that the trainer keeps to. ``*R`` is nothing or one replica axis, G the number of learned sizes.

    The hooks, in the order in which a training calls them: :meth:`prepare` once; in every step :meth:`set_progress`,
    :meth:`before_step`, :meth:`make_room`, the forward and backward passes with :meth:`penalty` and
    :meth:`activity_penalty`, :meth:`after_backward`, the optimiser's step, :meth:`after_step`; :meth:`finish` once.
    What a learner does not need it leaves as it is. Parameters and persistent buffers of its own, beside those of
    ``model``, are its state and go into checkpoints.

    >>> import torch, ngn
    >>> class Rank(ngn.Learner):  # the largest singular values of a matrix
    ...     def count(self): return (torch.linalg.svdvals(self.model.weight) > 1e-3).sum(-1, keepdim=True)
    >>> Rank(torch.nn.Linear(3, 3)).count()
    tensor([3])
    """

    replicas: int | None = None
    has_boundary = False
    """Whether every ``size`` is a boundary t, of which one may ask how near to an integer it is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._frozen: tuple[list[tuple[int, int]], Tensor] | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model as it is trained: soft, unless a :meth:`mode` is set."""
        return self.model(*args, **kwargs)

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        """Forward passes in ``mode`` while the context lasts, and soft ones after it."""
        yield

    def hard_forward(self, *args: Any, **kwargs: Any) -> Any:
        """The retained components as they are deployed: truncation."""
        with self.mode("hard"):
            return self(*args, **kwargs)

    def prepare(self, batches: Any) -> None:
        """Called once before step 0, and not when a training is resumed: here a learner may look at data."""

    def set_progress(self, progress: float) -> None:
        """Move every schedule to ``progress`` in [0, 1]."""

    def before_step(self, step: int | None) -> None:
        """Called before the forward passes of a step; with None before the trained model is evaluated."""

    def make_room(self) -> bool:
        """Allocate the components that have come to be needed; whether parameters have grown."""
        return False

    def penalty(self) -> Tensor:
        """What is added to the task loss: [*R]."""
        return torch.zeros(() if self.replicas is None else self.replicas, dtype=torch.float64)

    def activity_penalty(self) -> Tensor | None:
        """What the last forward pass adds to the task loss by what it computed, [*R]; None for nothing."""
        return None

    def after_backward(self, step: int) -> None:
        """Called when the gradients of a step are complete, before they are clipped and the optimiser moves."""

    def after_step(self, step: int) -> None:
        """Called when the optimiser has moved the parameters; the gradients are still there."""

    def finish(self, batches: Any) -> None:
        """Called once after the last step."""

    @abstractmethod
    def count(self) -> Tensor:
        """Retained components: int64 [*R, G]."""

    def size(self) -> Tensor:
        """Continuous sizes (t for a boundary): float64 [*R, G]."""
        return self.count().double()

    def learned_decay(self) -> Tensor | None:
        """The ratios r of the ordering weights where all of them are learned: float64 [*R, G]; else None."""
        return None

    def controller_parameters(self) -> list[nn.Parameter]:
        """What decides the size; trained at a rate of its own and never decayed."""
        return []

    def body_parameters(self) -> list[nn.Parameter]:
        """Everything else that is trained."""
        controllers = {id(p) for p in self.controller_parameters()}
        return [p for p in self.parameters() if p.requires_grad and id(p) not in controllers]

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What moves in training, and frozen parameters. A tied tensor is there once."""
        moving: dict[str, Tensor] = {}
        frozen: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, value in self.state_dict(keep_vars=True).items():
            if isinstance(value, Tensor) and id(value) not in seen:
                seen.add(id(value))
                still = isinstance(value, nn.Parameter) and not value.requires_grad
                (frozen if still else moving)[name] = value
        return moving, frozen

    def _digest(self, frozen: Mapping[str, Tensor]) -> Tensor:
        """SHA-256 of the frozen parameters, uint8 [32]; computed again only when one of them has changed."""
        versions = [(id(p), p._version) for p in frozen.values()]
        if self._frozen is None or self._frozen[0] != versions:
            digest = hashlib.sha256()
            for name, p in frozen.items():
                digest.update(f"{name} {tuple(p.shape)} {p.dtype}".encode())
                digest.update(p.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            self._frozen = versions, torch.tensor(list(digest.digest()), dtype=torch.uint8)
        return self._frozen[1]

    def state(self) -> dict[str, Tensor]:
        """All that training moves, for checkpoints: parameters and persistent buffers of the model and of the learner.

        Frozen parameters are left out; the key "frozen" holds their digest.
        """
        moving, frozen = self._tensors()
        return moving | ({"frozen": self._digest(frozen)} if frozen else {})

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what :meth:`state` of a learner of the same structure has given.

        Raises:
            ValueError: if the frozen parameters are not those of the training that is to be resumed.
        """
        moving, frozen = self._tensors()
        if frozen and not torch.equal(self._digest(frozen), tensors["frozen"].cpu()):
            raise ValueError("the frozen parameters differ from those that this state was trained with")
        self.load_state_dict({name: tensors[name] for name in moving}, strict=False)

    def _distance(self) -> Tensor | None:
        """|t - round(t)|, [*R, G]; None where sizes are no boundaries."""
        return (self.size() - self.size().round()).abs() if self.has_boundary else None

    def report(self) -> Report:
        """Where the sizes stand, and what deployment would leave.

        >>> import ngn
        >>> bank, gate = ngn.MLPBank([1, 3, 1], K=4, seeds=0), ngn.CountGate(4, t0=1.25)
        >>> ngn.CapacityLearner(ngn.OrderedSum(bank, gate)).report()
        Report(size=[1.25], count=[2], distance=[0.25], parameters=41, deployed=19)
        """
        each = [None] if self.replicas is None else range(self.replicas)
        left = [sum(p.numel() for p in self.deploy(r, unsettled="allow").parameters()) for r in each]
        now = sum(p.numel() for p in self.model.parameters())
        distance = self._distance()
        return Report(
            self.size().tolist(),
            self.count().tolist(),
            None if distance is None else distance.tolist(),
            now // len(left),
            left[0] if self.replicas is None else left,
        )

    def deploy(
        self,
        replica: int | None = None,
        example: Any = None,
        share_frozen: bool = False,
        unsettled: Literal["warn", "allow"] = "warn",
    ) -> nn.Module:
        """The truncated model in eval mode: no gates, only what is retained.

        Args:
            replica: which model of a stack.
            example: an input, on which the result has to give what :meth:`hard_forward` gives; a tuple for several
                arguments, a dictionary for named ones.
            share_frozen: frozen parameters that are not cut are shared with the model, not copied.
            unsettled: "warn" of boundaries that are more than 0.1 from an integer: truncation rounds them, so that what
                is deployed may compute something else than what was trained.

        Raises:
            ValueError: if the model cannot be copied faithfully, or the result differs on the example.
        """
        distance = self._distance() if unsettled == "warn" else None
        if distance is not None:
            far = distance > SETTLED if self.replicas is None else (distance > SETTLED)[replica]
            t = self.size() if self.replicas is None else self.size()[replica]
            if bool(far.any()):
                warnings.warn(
                    f"a boundary that has not settled is rounded: t = {', '.join(f'{v:.2f}' for v in t[far])}. Compare "
                    "hard_forward with forward on your data; train longer, raise alpha_max or lower lambda0 (silent: "
                    "unsettled='allow')",
                    stacklevel=2,
                )
        deployed = deploy(self.model, replica, share_frozen)
        if example is not None:
            with self.mode("hard"):
                check_equal(self.model, deployed, example, replica)
        return deployed
