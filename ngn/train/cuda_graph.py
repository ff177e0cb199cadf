"""Whole training steps on CUDA as one recorded graph each: a step costs one launch instead of hundreds.

A graph repeats operations on the same memory. So all that changes from step to step (the batch, what the schedules and
the noise give, the learning rates) is copied into the tensors that the recording has read, and Adam counts its steps on
the device. The arithmetic is the plain trainer's.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ngn.components.base import OrderedSum
from ngn.learner import CapacityLearner
from ngn.methods.base import Capacity, Weighted
from ngn.train.batches import Batches
from ngn.train.plan import Course, TrainPlan
from ngn.train.trainer import Trainer

Outputs = tuple[Tensor, Tensor, Tensor | None]
"""Objective and task loss [R], sizes [R, G]."""
Run = Callable[[], Outputs]
Recorder = Callable[[Run], tuple[Callable[[], None], Outputs]]
"""What is to be recorded → what repeats it, and where the results then are. It may run it, too."""
WARM_UPS = 3
"""Steps before a recording, in which libraries set themselves up on a stream of their own."""


def cuda_graph(run: Run) -> tuple[Callable[[], None], Outputs]:
    """The :data:`Recorder` of the current CUDA device."""
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            run()
    current.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    return graph.replay, outputs


def unsupported_by_cuda_graphs(learner: CapacityLearner, plan: TrainPlan) -> str | None:
    """Why a step of this training cannot be recorded, or None if it can."""
    if type(learner) is not CapacityLearner or any(type(group) is not OrderedSum for group in learner.axes):
        return "something is drawn in the forward pass"
    if any(group.capacity.growing for group in learner.axes):
        return "components are allocated as the boundary advances"
    if any(group.capacity.commit is not None for group in learner.axes):
        return "boundaries are rounded within the training"
    if any(isinstance(c := group.capacity, Weighted) and not c.order.constant for group in learner.axes):
        return "the ordering weights change in training"
    if plan.accumulate != 1:
        return "a step has several micro-batches"
    for rate in (plan.lr, plan.lr_boundary):
        each = torch.as_tensor(rate).flatten()
        if bool((each != each[0]).any()):
            return "replicas have learning rates of their own"
    return None if all(p.is_cuda for p in learner.parameters()) else "the model is not on a CUDA device"


class _Held(Batches):
    """Every batch of a stream in the memory of the first."""

    def __init__(self, source: Batches) -> None:
        self.source = source
        self.batch: tuple[Any, Tensor] | None = None

    def load(self, index: int) -> None:
        """Hold batch ``index``. What all batches share, such as a graph, is not copied."""
        new = self.source.at(index)
        if self.batch is None:
            self.batch = new
        for held, value in zip(self.batch, new, strict=True):
            if held is not value:
                held.copy_(value)

    def at(self, index: int) -> tuple[Any, Tensor]:
        """The batch that is held, whatever its index."""
        if self.batch is None:
            raise RuntimeError("no batch has been loaded")
        return self.batch


@dataclass
class CudaGraphTrainer(Trainer):
    """:class:`Trainer` with the arithmetic of a step recorded once and repeated.

    Where recording fails, a warning says why, and operations are launched one by one.

    Args:
        recorder: how to record.
    """

    engine = "cuda_graph"

    learner: CapacityLearner
    recorder: Recorder = cuda_graph
    _repeat: Callable[[], None] | None = None
    _outputs: Outputs | None = None
    _failed: bool = False
    _rates: list[Tensor] = field(default_factory=list)
    _moving: dict[tuple[Capacity, str], Tensor] = field(default_factory=dict)

    def fit(self) -> Course:
        """Train to the end, from the newest checkpoint if there is one."""
        self._repeat, self._outputs, self._failed = None, None, False  # a recording is of one optimiser
        self._rates, self._moving = [], {}
        return super().fit()

    def _step(self, step: int, optimizer: torch.optim.Optimizer, kept: bool) -> Outputs:
        plainly = functools.partial(super()._step, step, optimizer)

        def recorded() -> Outputs:
            outputs = plainly(True)
            optimizer.zero_grad(set_to_none=True)
            return outputs

        if self._failed:
            return plainly(kept)
        if self._repeat is None:
            self._held = _Held(self.batches)
        self._held.load(step)
        self._feed(optimizer)
        if self._repeat is None:
            self._record(recorded, optimizer)
            if self._failed:
                return plainly(kept)
        assert self._repeat is not None
        assert self._outputs is not None
        self._repeat()
        objective, task, t = self._outputs
        if not kept or t is None:
            return objective, task, None
        return objective.clone(), task.clone(), t.clone()  # the next repetition writes where these are

    def _feed(self, optimizer: torch.optim.Optimizer) -> None:
        """Put what the schedules and the noise of this step have given into the tensors that the recording reads."""
        for capacity, name, value in list(self._replaced()):
            held = self._moving.setdefault((capacity, name), value)
            if held is not value:
                held.copy_(value)
                setattr(capacity, name, held)
        if not self._rates:
            device = optimizer.param_groups[0]["params"][0].device
            # float32, as Adam reads them
            self._rates = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"], group["capturable"] = rate.fill_(group["lr"]), True

    def _replaced(self) -> Iterator[tuple[Capacity, str, Tensor]]:
        """The tensors that capacities replace as training advances: no parameters, but some are buffers."""
        for group in self.learner.axes:
            for name, value in (*vars(group.capacity).items(), *group.capacity._buffers.items()):
                if isinstance(value, Tensor):
                    yield group.capacity, name, value

    def _record(self, run: Run, optimizer: torch.optim.Optimizer) -> None:
        """Record a step, and undo what the recorder's own runs have done to parameters and moments."""
        source, own = self.batches, [*self.learner.parameters(), *self.learner.buffers()]
        before = [value.detach().clone() for value in own]
        moments = {p: {name: value.clone() for name, value in s.items()} for p, s in optimizer.state.items()}
        self.batches = self._held
        try:
            self._repeat, self._outputs = self.recorder(run)
        except torch.OutOfMemoryError:
            raise  # the caller trains fewer at once
        except RuntimeError as error:
            self._failed = True
            warnings.warn(f"a training step could not be recorded and is launched in parts: {error}", stacklevel=2)
        finally:
            self.batches = source
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for value, was in zip(own, before, strict=True):
                value.copy_(was)
            for p, state in optimizer.state.items():
                for name, value in state.items():
                    if p in moments:
                        value.copy_(moments[p][name])
                    else:
                        value.zero_()
