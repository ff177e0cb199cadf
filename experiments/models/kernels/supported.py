"""Which trainings a compiled kernel can do, and the layout of their parameters and samples in its arrays.

The parameters of a replica are one row of floats, ordered by group, by component, and by part of a component. Parts
that are narrower than the compiled width are padded with zeros. Groups are padded to whole vectors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.models.depth import ChainBank, LayerStack, TanhBank
from experiments.models.kernels import WIDEST, training_problem
from experiments.models.kernels.libraries import library
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from ngn.budget.allocation import BudgetLearner
from ngn.components.base import Bank, OrderedSum
from ngn.learner import Learner
from ngn.losses import Loss, Supervised, mean_squared_error
from ngn.methods.base import Weighted
from ngn.methods.fixed import FixedCount
from ngn.methods.ngn import CountGate
from ngn.train.batches import Batches, FullBatches
from ngn.train.plan import TrainPlan

WIDTHS = (8, 16, 32, WIDEST)
"""Compiled hidden widths. Other widths are padded with units that stay exactly zero."""
VECTOR = 16
"""Floats in the widest vector registers."""
TILES = {"bank1d": 8, "planar": 4 * VECTOR}
"""Kernel → the number of samples must be a multiple of this; zeros are added."""


@dataclass(frozen=True)
class ArrayPart:
    """One parameter of a component.

    Attributes:
        at: index of its first float within the component.
        shape: its compiled shape.
    """

    name: str
    at: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ArrayGroup:
    """One group of K components.

    Attributes:
        bare: number of leading components without parameters.
        offset: index of the first float of the other components within a row.
    """

    bank: Bank
    K: int
    bare: int
    offset: int

    @property
    def learned(self) -> int:
        """Components that have parameters."""
        return self.K - self.bare


class Layout:
    """The layout of a model in the arrays of a kernel.

    Attributes:
        groups: the groups, in the order of the model.
        parts, size: the parts of a component, and its floats.
        parameters: floats in a row.

    Args:
        kernel, function: name of the C++ file, as in TILES, and of its function.
        banks: the bank of each group, with its number of components without parameters.
        parts: names and compiled shapes; ``spare`` floats follow them.
        hidden: compiled width.
        cost: approximate work of one step, relative to the 1D study.
    """

    def __init__(
        self,
        kernel: str,
        function: str,
        banks: Sequence[tuple[Bank, int]],
        parts: Sequence[tuple[str, tuple[int, ...]]],
        hidden: int,
        cost: float,
        spare: int = 0,
    ) -> None:
        self.kernel, self.function, self.hidden, self.cost = kernel, function, hidden, cost
        self.parts: list[ArrayPart] = []
        at = 0
        for name, shape in parts:
            self.parts.append(ArrayPart(name, at, shape))
            at += math.prod(shape)
        self.size = at + spare
        self.groups: list[ArrayGroup] = []
        self.parameters = 0
        for bank, bare in banks:
            group = ArrayGroup(bank, bank.K, bare, self.parameters)
            self.groups.append(group)
            self.parameters += -(-group.learned * self.size // VECTOR) * VECTOR

    def sample_arrays(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets [N, entries] as [entries, N rounded up], padded with zeros."""
        room = (0, -len(target) % TILES[self.kernel])
        padded_x, padded_target = (torch.nn.functional.pad(v.T, room).contiguous() for v in (x, target))
        return padded_x, padded_target

    def views(self) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
        """Yield every parameter [*R, ...] with a function that returns its view [R, ...] of rows [R, parameters]."""
        for group in self.groups:
            for part in self.parts:
                p = group.bank.get_parameter(part.name)
                shape = tuple(p.shape[-len(part.shape) :])
                yield p, functools.partial(self._place, group, part, shape)

    def components(self, group: ArrayGroup, rows: Tensor) -> Tensor:
        """Return a view [R, learned, size] of a group's components with parameters in rows [R, parameters]."""
        own = rows[:, group.offset : group.offset + group.learned * self.size]
        return own.unflatten(1, (group.learned, self.size))

    def _place(self, group: ArrayGroup, part: ArrayPart, own: tuple[int, ...], rows: Tensor) -> Tensor:
        at = slice(part.at, part.at + math.prod(part.shape))
        place = self.components(group, rows)[..., at].unflatten(-1, part.shape)
        for axis, length in enumerate(own):
            place = place.narrow(axis - len(own), 0, length)
        return place


def compiled_width(h: int) -> int:
    """Return the compiled width to which hidden width h is padded."""
    return next(width for width in WIDTHS if width >= h)


def layout_of(model: torch.nn.Module) -> Layout:
    """Return the layout of a model that has a kernel (see :func:`unsupported`)."""
    if isinstance(model, LayerStack):
        banks = []
        for layer in model.layers:
            bank = layer.bank
            assert isinstance(bank, TanhBank)
            banks.append((bank, int(bank.identity)))
        return Layout("planar", "ngn_layers_advance", banks, [("W", (2, 2)), ("b", (2,))], hidden=0, cost=4.0)
    assert isinstance(model, ParallelModel)
    bank = model.group.bank
    if isinstance(bank, ChainBank):
        H = compiled_width(bank.width)
        parts = [("U", (2, H)), ("a", (H,)), ("V", (H, 2)), ("b", (2,))]
        return Layout("planar", "ngn_chain_advance", [(bank, 0)], parts, H, cost=16.0)
    assert isinstance(bank, MLPBank)
    H = compiled_width(bank.sizes[1])
    parts = [("W1", (1, H)), ("b1", (H,)), ("W2", (H, H)), ("b2", (H,)), ("W3", (H, 1)), ("b3", (1,))]
    return Layout("bank1d", "ngn_bank1d_advance", [(bank, 0)], parts, H, cost=1.0, spare=15)


def unsupported(learner: Learner, batches: Batches, loss: Loss, plan: TrainPlan) -> str | None:
    """Return why no kernel can do this training, or None if one can.

    The last check builds the kernel, so that other reasons do not need a compiler.
    """
    if type(learner) not in (Learner, BudgetLearner):
        return f"the kernels do not support {type(learner).__name__}"
    depth = _of_depth(learner.model)
    reason = (_planar_problem(learner) if depth else _block_problem(learner)) or _capacity_problem(learner)
    if reason is not None:
        return reason
    body = [p for axis in learner.axes if isinstance(axis, OrderedSum) for p in axis.bank.parameters()]
    if any(not p.requires_grad for p in body) or any(p.device.type != "cpu" for p in learner.model.parameters()):
        return "the kernel needs trainable parameters on the CPU"
    if any(p.dtype != torch.float32 for p in body):
        return "the kernel needs a body in float32"
    if type(batches) is not FullBatches or loss != Supervised(mean_squared_error):
        return "the kernel needs full batches and the mean squared error"
    x, target = batches.at(0)
    width = 2 if depth else 1
    if not all(isinstance(v, Tensor) and v.shape == (len(target), width) and v.dtype == torch.float32
               for v in (x, target)):  # fmt: skip
        return f"the kernel needs float32 inputs and targets of shape [N, {width}]"
    if (reason := training_problem(plan)) is not None:
        return reason
    if not len(target) or plan.steps < 1:
        return "the kernel needs samples and steps"
    return None if library("planar" if depth else "bank1d") is not None else "the kernel cannot be built here"


def _of_depth(model: torch.nn.Module) -> bool:
    return isinstance(model, LayerStack) or (
        isinstance(model, ParallelModel) and isinstance(getattr(model.group, "bank", None), ChainBank)
    )


def _block_problem(learner: Learner) -> str | None:
    """Return why the kernel of the 1D study does not support a model."""
    model = learner.model
    if type(model) is not ParallelModel or model.head is not None:
        return "the kernel needs a model with one ordered sum and no head"
    if type(model.group) is not OrderedSum:
        return f"the kernel does not support {type(model.group).__name__}"
    bank = model.group.bank
    if type(bank) is not MLPBank or len(bank.sizes) != 4 or bank.sizes[::3] != (1, 1) or bank.sizes[1] != bank.sizes[2]:
        return "the kernel needs MLP blocks of the sizes (1, h, h, 1)"
    if bank.sizes[1] > WIDEST:
        return f"blocks of width {bank.sizes[1]} exceed the largest compiled width, {WIDEST}"
    return "there are no blocks" if bank.K < 1 else None


def _planar_problem(learner: Learner) -> str | None:
    """Return why the kernel for depth on the plane does not support a model."""
    if any(type(group) is not OrderedSum for group in learner.axes):
        return "the kernel supports only ordered sums"
    banks = [axis.bank for axis in learner.axes if isinstance(axis, OrderedSum)]
    if any(bank.K < 1 for bank in banks):
        return "there is a layer without components"
    if isinstance(learner.model, LayerStack):
        fits = all(type(bank) is TanhBank and bank.out == 2 for bank in banks)
        return None if fits else "the kernel needs layers of tanh maps of the plane"
    bank = banks[0]
    if type(learner.model) is not ParallelModel or learner.model.head is not None or len(banks) != 1:
        return "the kernel needs a model with one chain and no head"
    if type(bank) is not ChainBank or bank.out != 2 or bank.width > WIDEST:
        return f"the kernel needs a chain of maps of the plane with at most {WIDEST} units"
    return None


def _capacity_problem(learner: Learner) -> str | None:
    """Return why the kernels cannot learn the sizes."""
    capacities = [group.capacity for group in learner.axes]
    first = capacities[0]
    for capacity in capacities:
        if type(capacity) is not type(first) or type(capacity) not in (CountGate, FixedCount):
            return f"the kernel does not support {type(capacity).__name__}"
        if capacity.rms_eps is not None:
            return "the kernel does not support normalised components"
        changing = isinstance(capacity, Weighted) and not capacity.order.constant
        if changing and not isinstance(learner, BudgetLearner):
            return "the kernel supports ordering weights that change in training only under a budget"
        learned = list(capacity.parameters())
        if len(learned) != isinstance(capacity, CountGate):
            return "the kernel supports no learned size parameter other than the boundary"
        if any(not p.requires_grad or p.dtype != torch.float64 for p in learned):
            return "the kernel needs a trainable boundary in float64"
    gates = [capacity for capacity in capacities if isinstance(capacity, CountGate)]
    if any(gate.stride != 1 for gate in gates):
        return "the kernel supports no stride: its boundaries are softplus(tau)"
    if len({(gate.delta, gate.shapes, gate.commit) for gate in gates}) > 1:
        return "the kernel needs the same schedules for all groups"
    return None
