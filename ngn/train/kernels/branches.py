"""The plain trainer with the gradients of convolution branches from ``branches.cpp``, for every learner of capacity.

The cross-entropy and its gradients for given coefficients come from the kernel, as does dL/dc_k = <dL/dy, f_k>, from
which autograd goes on to what the coefficients were made of. All else is the plain
:class:`~ngn.train.trainer.Trainer`. N is the samples of a batch, k the number of coefficients.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from ngn.components.base import OrderedSum
from ngn.components.conv import ConvBank
from ngn.components.parallel import ParallelModel
from ngn.learner import CapacityLearner
from ngn.train.batches import Batches, MiniBatches
from ngn.train.kernels.gradients import GradientsTrainer
from ngn.train.kernels.kernel import check, compiled, library
from ngn.train.losses import Loss, Supervised, cross_entropy
from ngn.train.trainer import TrainPlan

NAMES = ("W1", "b1", "W2", "b2", "V", "v")
"""A bank's parameters, in the order of ``branches.cpp``."""
MOST = 16
"""Channels after a convolution, and classes, at most."""
_Arrays = ctypes.c_void_p * len(NAMES)


class Step(ctypes.Structure):
    """The kernel's argument, field by field as in ``branches.cpp``."""

    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in ("samples", "channels", "height", "width", "first", "second", "outputs", "used")
        ),
        ("x", ctypes.c_void_p),
        ("labels", ctypes.c_void_p),
        ("own", _Arrays),
        ("c", ctypes.c_void_p),
        ("gradients", _Arrays),
        ("along", ctypes.c_void_p),
        ("loss", ctypes.c_void_p),
    ]


def unsupported_branches(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> str | None:
    """Why the kernel cannot give this training's gradients, or None if it can. A compiler is looked for last."""
    model = learner.model
    if type(learner) is not CapacityLearner or type(model) is not ParallelModel or model.head is not None:
        return "the model is more than one sum of branches"
    if type(model.group) is not OrderedSum or type(model.group.bank) is not ConvBank:
        return "the components are not convolution branches"
    bank = model.group.bank
    if learner.replicas is not None or model.group.capacity.rms_eps is not None:
        return "the kernel trains one model, not a stack, and without normalised components"
    channels, *side = bank.image
    if channels not in (1, 3) or any(size % 4 for size in side):
        return "the images do not have one or three channels and sides that are multiples of four"
    if len(bank.channels) != 2 or max(*bank.channels, bank.out) > MOST:
        return f"the branches do not have two convolutions, or more than {MOST} channels or classes"
    if any(not p.requires_grad or p.device.type != "cpu" or p.dtype != torch.float32 for p in bank.parameters()):
        return "the body is frozen, not float32 or not on the CPU"
    if type(batches) is not MiniBatches or loss != Supervised(cross_entropy):
        return "it is not the cross-entropy of minibatches"
    if plan.accumulate != 1 or plan.autocast != "none":
        return "the kernel has no micro-batches and no autocast"
    return None if compiled("branches") is not None else "the kernel cannot be built here"


class Gradients:
    """Mean cross-entropy of sum_k c_k f_k over a batch, with its gradients.

    Args:
        bank: the components f_k.
    """

    def __init__(self, bank: ConvBank) -> None:
        self.bank, self.kernel = bank, library("branches")

    def __call__(self, x: Tensor, labels: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Set the gradients of the bank's parameters; those of components without a coefficient are zero.

        Args:
            x, labels: images [N, C, H, W] and classes [N].
            c: coefficients of the leading components, [k].

        Returns:
            The loss, float32 without axes, and its gradient in c, [k] in c's type.

        Raises:
            ValueError: if the images are not the bank's, or a class is none.
        """
        bank = self.bank
        if tuple(x.shape[1:]) != bank.image or len(labels) != len(x):
            raise ValueError(f"images of {tuple(x.shape)} and {len(labels)} classes for branches over {bank.image}")
        if not 0 <= int(labels.amin()) <= int(labels.amax()) < bank.out:
            raise ValueError(f"a class is not in 0 ... {bank.out - 1}")
        parameters = [bank.get_parameter(name) for name in NAMES]
        own = [p.detach().contiguous() for p in parameters]
        gradients = [torch.zeros(p.shape) for p in parameters]
        x, labels = x.float().contiguous(), labels.long().contiguous()
        coefficients = c.detach().float().contiguous()
        along, loss = torch.empty(len(c), dtype=torch.float64), torch.empty(1, dtype=torch.float64)
        step = Step(
            len(x), *bank.image, *bank.channels, bank.out, len(c), x.data_ptr(), labels.data_ptr(),
            _Arrays(*(p.data_ptr() for p in own)), coefficients.data_ptr(),
            _Arrays(*(g.data_ptr() for g in gradients)), along.data_ptr(), loss.data_ptr(),
        )  # fmt: skip
        check(self.kernel.ngn_branches_step(ctypes.byref(step)))
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient
        return loss[0].float(), along.to(c.dtype)


@dataclass
class BranchesTrainer(GradientsTrainer):
    """:class:`~ngn.train.trainer.Trainer` with the gradients of this kernel."""

    engine = "fused-branches"
    unsupported = staticmethod(unsupported_branches)

    def prepare(self) -> None:
        """Find the library and what the kernel works on."""
        bank = self.learner.axes[0].bank
        assert isinstance(bank, ConvBank)
        self._gradients = Gradients(bank)

    def _backward(self, step: int) -> Tensor:
        c = self.learner.axes[0].capacity.coefficients("soft")
        x, labels = self.batches.at(step)
        loss, slope = self._gradients(x, labels, c)
        if c.requires_grad:
            c.backward(slope)
        return loss
