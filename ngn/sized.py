"""A model with learned sizes, as it is read: its counts, its parameters, its reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ngn.checks import evaluating
from ngn.methods.base import MODES, Mode
from ngn.report import Report, SizeReport, latencies_of
from ngn.truncation import deploy


class Sized(nn.Module, ABC):
    """A model with learned sizes; how they are learned is :class:`~ngn.contract.Learner`'s.

    In shapes, ``*R`` is nothing or one replica axis, and G the number of learned sizes.
    """

    replicas: int | None = None
    has_boundary = False
    """Whether every ``size`` is a boundary t, so that its distance from an integer matters."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model: soft, as it is trained, unless a :meth:`mode` is set."""
        return self.model(*args, **kwargs)

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        """Run forward passes in ``mode`` within the context.

        "soft": as trained; "kept": the retained components with their gates; "hard": as deployed.
        """
        yield

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Declare that no size moves within the context, so that each gate may be computed once."""
        yield

    @abstractmethod
    def count(self) -> Tensor:
        """Numbers of retained components: int64 [*R, G]."""

    def size(self) -> Tensor:
        """Continuous sizes (t for a boundary): float64 [*R, G]."""
        return self.count().double()

    def standing(self) -> str:
        """Summarise the sizes for a progress line: their mean."""
        if self.has_boundary:
            return f"t {float(self.size().mean()):.2f}"
        return f"count {float(self.count().double().mean()):.1f}"

    def controller_parameters(self) -> list[nn.Parameter]:
        """The parameters that decide the sizes; they have their own learning rate and no weight decay."""
        return []

    def body_parameters(self) -> list[nn.Parameter]:
        """All other trained parameters; those of a size with nothing left have no entries and do not count."""
        controllers = {id(p) for p in self.controller_parameters()}
        return [p for p in self.parameters() if p.requires_grad and p.numel() and id(p) not in controllers]

    def _distance(self) -> Tensor | None:
        """|t - round(t)|, [*R, G]; None if sizes are not boundaries."""
        return (self.size() - self.size().round()).abs() if self.has_boundary else None

    def _groups(self) -> list[SizeReport]:
        """The learned sizes by name; empty for a stack."""
        return []

    def _whole(self) -> nn.Module:
        """The model whose latency is compared with the deployed model's; of a stack, one of its models."""
        return self.model

    def _parameters_before(self) -> int:
        """Number of parameters before anything was cut (of a stack, of all), without those that decide sizes."""
        sizes = sum(p.numel() for p in self.controller_parameters())
        return sum(p.numel() for p in self.model.parameters()) - sizes

    def _budget_used(self) -> str | None:
        """A sentence about how much of the budget the sizes use; None without a budget."""
        return None

    def report(
        self,
        latency: Any = None,
        deployed: nn.Module | None = None,
        score: Callable[[nn.Module], Any] | None = None,
    ) -> Report:
        """Report the sizes and what deployment would leave.

        Args:
            latency: an input on which to time the model with all components, and the deployed model. It is a tuple for
                several arguments, a dictionary for named ones.
            deployed: the result of :meth:`deploy`, if you have it already (a single model only).
            score: a function of the model, such as its accuracy on held-out data. It is called in eval mode for each
                mode: as trained (soft), retained components with their gates (kept), as deployed (hard).

        >>> import torch, ngn
        >>> learner = ngn.CapacityLearner(ngn.LowRankLinear(torch.nn.Linear(3, 3), ngn.CountGate(4, t0=1.25), 0, "map"))
        >>> learner.report()
        Report(size=[1.25], count=[2], distance=[0.25], parameters=36, deployed=24, milliseconds=None, scores={})
        >>> print(learner.report())
        size  before -> after    change  parameters     t
        axis  4 -> 2 components    -50%         -12  1.25
        parameters: 36 -> 24 (-33%)
        t: the boundary between kept and cut components
        """
        each = [None] if self.replicas is None else range(self.replicas)
        models = [deployed or self.cut(r, share_frozen=True) for r in each]
        left = [sum(p.numel() for p in model.parameters()) for model in models]
        distance = self._distance()
        return Report(
            self.size().tolist(),
            self.count().tolist(),
            None if distance is None else distance.tolist(),
            self._parameters_before() // len(left),
            left[0] if self.replicas is None else left,
            self._groups(),
            None if latency is None else latencies_of(self._whole(), models[0], latency),
            {} if score is None else self._scores(score),
            self._budget_used(),
        )

    @torch.no_grad()
    def _scores(self, score: Callable[[nn.Module], Any]) -> dict[str, Any]:
        """``score`` of the model in eval mode, for each mode of its gates."""
        scores: dict[str, Any] = {}
        with evaluating(self.model):
            for mode in MODES:
                with self.mode(mode):
                    scores[mode] = score(self.model)
        return scores

    def cut(self, replica: int | None = None, share_frozen: bool = False) -> nn.Module:
        """Return a copy of the model in eval mode with only the retained components and no gates; check nothing.

        Args:
            replica: which model of a stack.
            share_frozen: share frozen parameters that are not cut with the model; do not copy them.
        """
        return deploy(self.model, replica, share_frozen)
