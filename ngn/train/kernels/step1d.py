"""The kernel inside the plain trainer, for every learner of capacity whose training it does not know as a whole.

The task loss and its gradients for given coefficients come from ``bank1d.cpp``, as does dL/dc_k = <dL/dy, f_k>, from
which autograd goes on to what the coefficients were made of. All else is the plain
:class:`~ngn.train.trainer.Trainer`. ``*R`` is nothing or one replica axis, k the number of coefficients.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from ngn.components.mlp import MLPBank
from ngn.train.batches import Batches
from ngn.train.kernels.fits import unsupported_step
from ngn.train.kernels.gradients import GradientsTrainer
from ngn.train.kernels.kernel import NAMES, Samples, check, compiled_width, library

_Arrays = ctypes.c_void_p * len(NAMES)


class Step(ctypes.Structure):
    """The kernel's argument, field by field as in ``bank1d.cpp``."""

    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in (
                "replicas",
                "candidates",
                "used",
                "width",
                "hidden",
                "samples",
                "padded",
                "threads",
                "flat",
            )
        ),
        ("eps", ctypes.c_double),
        ("x", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("own", _Arrays),
        ("c", ctypes.c_void_p),
        ("gradients", _Arrays),
        ("along", ctypes.c_void_p),
        ("task", ctypes.c_void_p),
    ]


class Gradients:
    """Mean squared error of sum_k c_k f_k over one full batch, with its gradients.

    The numbers of a replica are the same bits for its parameters and coefficients alone, in any stack and with any
    number of threads.

    Args:
        bank, batches: the components f_k, and what their one batch is.
        eps: if given, every f_k is divided by sqrt(mean f_k^2 + eps) over the batch.
        flat: leave out components whose coefficient is exactly zero, and say zero for its gradient.
    """

    def __init__(self, bank: MLPBank, batches: Batches, eps: float | None = None, flat: bool = False) -> None:
        self.bank, self.kernel, self.samples = bank, library(), Samples.of(batches)
        self.eps, self.flat = -1.0 if eps is None else eps, flat

    def __call__(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """Set the gradients of the bank's parameters.

        Args:
            c: coefficients of the leading components, [*R, k].

        Returns:
            The loss, float32 [*R], and its gradient in c, [*R, k] in c's type.
        """
        bank, samples, h = self.bank, self.samples, self.bank.sizes[1]
        parameters = [bank.get_parameter(name) for name in NAMES]
        own = [p.detach().contiguous() for p in parameters]
        gradients = [torch.empty(p.shape, dtype=torch.float32) for p in parameters]
        coefficients = c.detach().double().contiguous()
        along, task = torch.empty_like(coefficients), torch.empty(c.shape[:-1], dtype=torch.float32)
        step = Step(
            replicas=task.numel(), candidates=bank.K, used=c.shape[-1], width=h, hidden=compiled_width(h),
            samples=samples.count, padded=samples.x.shape[-1], threads=torch.get_num_threads(),
            flat=int(self.flat), eps=self.eps, x=samples.x.data_ptr(), target=samples.target.data_ptr(),
            own=_Arrays(*(p.data_ptr() for p in own)),
            c=coefficients.data_ptr(), gradients=_Arrays(*(g.data_ptr() for g in gradients)),
            along=along.data_ptr(), task=task.data_ptr(),
        )  # fmt: skip
        check(self.kernel.ngn_bank1d_gradients(ctypes.byref(step)))
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient
        return task, along.to(c.dtype)


@dataclass
class StepTrainer(GradientsTrainer):
    """:class:`~ngn.train.trainer.Trainer` with the gradients of this kernel."""

    engine = "fused-step"
    unsupported = staticmethod(unsupported_step)

    def prepare(self) -> None:
        """Find the library and what the kernel works on."""
        group = self.learner.axes[0]
        assert isinstance(group.bank, MLPBank)
        self._gradients = Gradients(group.bank, self.batches, group.capacity.rms_eps, group.capacity.flat_when_closed)

    def _backward(self, step: int) -> Tensor:
        c = self.learner.axes[0].capacity.coefficients("soft")
        task, slope = self._gradients(c)
        if c.requires_grad:
            c.backward(slope)
        return task
