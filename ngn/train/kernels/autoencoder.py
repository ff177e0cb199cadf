"""The plain trainer with the gradients of the manifold study's autoencoder from ``autoencoder.cpp``.

The kernel computes the loss for given gates, posterior deviations and ordering weights, and its gradients in the first
two, from which autograd goes on to the boundary and the log variances. All else is the plain
:class:`~ngn.train.trainer.Trainer`. N is the samples of a batch, K the number of terms.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ngn.components.latent import GatedBottleneck, RankOneBank
from ngn.components.parallel import StackedLinear
from ngn.learner import CapacityLearner
from ngn.train.batches import Batches
from ngn.train.kernels.gradients import GradientsTrainer
from ngn.train.kernels.kernel import check, compiled, library
from ngn.train.losses import Loss, Supervised
from ngn.train.trainer import TrainPlan

LANES = 16
"""Sizes of layers are multiples of this, and there are at most as many terms."""
_POINTERS = ("x", "noise", "gate", "deviation", "w", "own", "gradients", "along_gate", "along_deviation", "loss")


class Step(ctypes.Structure):
    """The kernel's argument, field by field as in ``autoencoder.cpp``."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("samples", "inputs", "width", "layers", "terms")),
        ("kl", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    ]


def unsupported_autoencoder(learner: CapacityLearner, batches: Batches, loss: Loss, plan: TrainPlan) -> str | None:
    """Why the kernel cannot give this training's gradients, or None if it can. A compiler is looked for last."""
    from experiments.tasks.manifold.task import Autoencoder, FreshBatches, squared_distance  # tasks import the engine

    model = learner.model
    if type(learner) is not CapacityLearner or type(model) is not Autoencoder:
        return "the model is not the manifold study's autoencoder"
    if learner.replicas is not None:
        return "the kernel trains one autoencoder, not a stack"
    bottleneck = model.bottleneck
    if type(bottleneck) is not GatedBottleneck or not 1 <= bottleneck.bank.K <= LANES:
        return f"there are not one to {LANES} terms with a gated posterior"
    maps = affine_maps(model)
    if any(size % LANES for layer in maps for size in layer.weight.shape) or len(maps) % 2 == 0:
        return f"a layer's size is no multiple of {LANES}"
    if type(batches) is not FreshBatches or loss != Supervised(squared_distance):
        return "it is not the squared error on fresh points"
    body = learner.body_parameters()
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in body):
        return "the body is not float32 on the CPU"
    if any(not p.requires_grad for p in model.parameters()) or plan.accumulate != 1 or plan.autocast != "none":
        return "the kernel has no frozen parameters, no micro-batches and no autocast"
    return None if compiled("autoencoder") is not None else "the kernel cannot be built here"


def affine_maps(model: nn.Module) -> list[StackedLinear]:
    """The layers of an autoencoder in order."""
    return [module for module in model.modules() if isinstance(module, StackedLinear)]


class Gradients:
    """The loss of one batch and its gradients.

    Args:
        model: an :class:`~experiments.tasks.manifold.Autoencoder` that ``unsupported_autoencoder`` accepts.
    """

    def __init__(self, model: nn.Module) -> None:
        bottleneck = model.bottleneck
        assert isinstance(bottleneck, GatedBottleneck)
        self.bottleneck, self.kernel = bottleneck, library("autoencoder")
        maps = affine_maps(model)
        pairs = [(layer.weight, layer.bias) for layer in maps]
        bank: RankOneBank = bottleneck.bank
        half = len(maps) // 2
        inner = [(bank.A, bank.B)]
        self.parameters = [p for pair in (*pairs[:half], *inner, *pairs[half:]) for p in pair]
        self.layers, (self.inputs, self.width) = half, maps[0].weight.shape

    def __call__(self, x: Tensor) -> Tensor:
        """Set the gradients of all parameters from points [N, inputs]; returns the loss, float32 without axes."""
        bottleneck = self.bottleneck
        gates, excess = bottleneck.variance()
        deviation = (1.0 + excess).sqrt()
        constants = [v.detach().float().contiguous() for v in (gates, deviation, bottleneck.capacity.weights())]
        noise = bottleneck.noise(x, x.shape[0])
        gradients = [torch.empty_like(p, memory_format=torch.contiguous_format) for p in self.parameters]
        own = [p.detach().contiguous() for p in self.parameters]
        along = torch.empty(2, len(gates), dtype=torch.float64)
        loss = torch.empty(2, dtype=torch.float64)
        tables = [(ctypes.c_void_p * len(v))(*(p.data_ptr() for p in v)) for v in (own, gradients)]
        x = x.contiguous()
        step = Step(
            len(x), self.inputs, self.width, self.layers, len(gates), bottleneck.kl,
            x.data_ptr(), noise.data_ptr(), *(v.data_ptr() for v in constants),
            *(ctypes.addressof(table) for table in tables),
            along[0].data_ptr(), along[1].data_ptr(), loss.data_ptr(),
        )  # fmt: skip
        check(self.kernel.ngn_autoencoder_step(ctypes.byref(step)))
        for p, gradient in zip(self.parameters, gradients, strict=True):
            p.grad = gradient
        spread = 0.5 * bottleneck.kl * (excess - torch.log1p(excess)).sum()
        ((gates * along[0]).sum() + (deviation * along[1]).sum() + spread).backward()
        return (loss.sum() + spread.detach()).float()


@dataclass
class AutoencoderTrainer(GradientsTrainer):
    """:class:`~ngn.train.trainer.Trainer` with the gradients of this kernel."""

    engine = "fused-autoencoder"
    unsupported = staticmethod(unsupported_autoencoder)

    def prepare(self) -> None:
        """Find the library and what the kernel works on."""
        self._gradients = Gradients(self.learner.model)

    def _backward(self, step: int) -> Tensor:
        return self._gradients(self.batches.at(step)[0])
