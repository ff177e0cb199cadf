"""What the compiled kernel can do: the gradients of a step, or a training as a whole."""

from __future__ import annotations

import torch
from torch import Tensor

from ngn.components.base import OrderedSum
from ngn.components.mlp import MLPBank
from ngn.components.parallel import ParallelModel
from ngn.engine.batches import Batches, FullBatches
from ngn.engine.fused.kernel import WIDTHS, compiled
from ngn.engine.trainer import Loss, TrainPlan
from ngn.methods.fixed import FixedCount
from ngn.methods.learner import CapacityLearner
from ngn.methods.ngn import CountGate


def unsupported(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> str | None:
    """Why the kernel cannot give this training's gradients, or None if it can.

    A compiler is looked for last, and built with. How the size is learned does not matter, as long as the model is the
    sum of its components times ``Capacity.coefficients``, normalised or not.
    """
    from ngn.tasks.regression1d import RegressionTask  # tasks import the engine

    model = learner.model
    if type(learner) is not CapacityLearner or type(model) is not ParallelModel or model.head is not None:
        return "the model is more than one ordered sum"
    if type(model.group) is not OrderedSum:
        return f"the kernel does not know {type(model.group).__name__}"
    bank = model.group.bank
    if type(bank) is not MLPBank or len(bank.sizes) != 4 or bank.sizes[::3] != (1, 1) or bank.sizes[1] != bank.sizes[2]:
        return "the blocks are not MLPs of the sizes (1, h, h, 1)"
    if bank.sizes[1] > WIDTHS[-1]:
        return f"blocks of width {bank.sizes[1]} are more than the {WIDTHS[-1]} that are compiled"
    if bank.K < 1:
        return "there are no blocks"
    if any(not p.requires_grad for p in bank.parameters()) or any(p.device.type != "cpu" for p in model.parameters()):
        return "a parameter is frozen or not on the CPU"
    if any(p.dtype != torch.float32 for p in bank.parameters()):
        return "the body is not float32"
    if type(batches) is not FullBatches or getattr(loss, "__func__", None) is not RegressionTask.loss:
        return "it is not full-batch training on the mean squared error"
    x, target = batches.at(0)
    if not all(isinstance(v, Tensor) and v.shape == (len(target), 1) and v.dtype == torch.float32 for v in (x, target)):
        return "inputs and targets are not float32 [N, 1]"
    if plan.lr_boundary_shape.kind != "constant":
        return "the kernel keeps the boundary's rate constant"
    if not len(target) or plan.accumulate != 1 or plan.autocast != "none" or plan.steps < 1:
        return "the kernel has no micro-batches, no autocast and nothing to do without samples or steps"
    return None if compiled() is not None else "the kernel cannot be built here"


def unsupported_whole(learner: CapacityLearner) -> str | None:
    """Why the kernel cannot do all of a training whose gradients it can give, or None if it can."""
    capacity = learner.groups[0].capacity
    if type(capacity) not in (CountGate, FixedCount):
        return f"the kernel does not know {type(capacity).__name__}"
    if capacity.rms_eps is not None:
        return "the components are normalised"
    learned = list(capacity.parameters())
    if len(learned) != isinstance(capacity, CountGate):
        return "more than a boundary is learned beside the components"
    if any(not p.requires_grad or p.dtype != torch.float64 for p in learned):
        return "the boundary is frozen or not float64"
    return None
