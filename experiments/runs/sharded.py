"""Train one run in several processes: FSDP2 divides the weights, and every process takes its share of each step.

A step has ``train.accumulate`` micro-batches in any case. Process r of W takes those of number r, r + W, ... of them,
and each weighs by its tokens, as in one process. So the number of processes changes nothing but rounding. Boundaries
are not divided: they have the same gradients and values everywhere.

Checkpoints hold whole tensors under the names of one process. Any number of processes resumes them.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn

from experiments import processes
from experiments.runs.errors import CheckpointError
from ngn.contract import Learner
from ngn.learner import CapacityLearner
from ngn.train import checkpoint, interrupt
from ngn.train.optim import moments
from ngn.train.trainer import Newest, Trainer


def divide(learner: Learner, device: torch.device) -> Learner:
    """Divide the weights of a learner, which are on the host, among the devices of all processes, layer by layer.

    The model of a pretrained base keeps its own tensors on the host.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    assert isinstance(learner, CapacityLearner), "the configuration has been checked"
    kept = {p for axis in learner.axes for p in axis.capacity.parameters()}
    kept |= {p for p in learner.parameters() if not p.numel()}  # those of a rank of zero cannot be divided
    own: dict[int, Tensor] = {}
    for module in learner.modules():
        for name, p in module._parameters.items():
            if p is not None and p not in kept:
                module._parameters[name] = own.setdefault(id(p), nn.Parameter(p.detach(), p.requires_grad))  # type: ignore[assignment]
        for name, value in module._buffers.items():
            module._buffers[name] = None if value is None else own.setdefault(id(value), value.detach())
    for p in kept:
        p.data = p.data.to(device)
    mesh = init_device_mesh(device.type, (processes.count(),))
    layers = max((m for m in learner.model.modules() if isinstance(m, nn.ModuleList)), key=len)
    for part in (*layers, learner.model):
        fully_shard(part, mesh=mesh, ignored_params=kept)
    return learner


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return whole tensors on the host of the first process, one by one; nothing in the others. All must call it."""
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        if processes.rank() == 0:
            found[name] = whole.detach().cpu()
    return found


def _divided_as(whole: Tensor, like: Any) -> Tensor:
    """Return this process's part of ``whole`` as a tensor that is divided as ``like``; ``whole`` if that is not."""
    if not hasattr(like, "device_mesh"):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


class ShardedTrainer(Trainer):
    """Trains a learner that :func:`divide` has divided. Every process has one, with the same arguments."""

    def _backward(self, step: int) -> Tensor:
        several, first = processes.count(), step * self.plan.accumulate
        batches = [self.batches.at(first + part) for part in range(self.plan.accumulate)]
        weights = [1.0 if self.weight is None else float(self.weight(batch)) for batch in batches]
        here, whole = slice(processes.rank(), None, several), sum(weights)
        total = torch.zeros((), dtype=torch.float64, device=self.learner.size().device)
        for batch, weight in zip(batches[here], weights[here], strict=True):
            with self._autocast():
                loss = self.loss(self._called(), batch)
            (loss * (several * weight / whole)).backward()  # FSDP takes the mean over the processes
            total += loss.detach() * (weight / whole)
        slopes = [p.grad for p in self.learner.controller_parameters() if p.grad is not None]
        if slopes:
            mean = torch.cat([slope.flatten() for slope in slopes]) / several
            distributed.all_reduce(mean)
            for slope, value in zip(slopes, mean.split([slope.numel() for slope in slopes]), strict=True):
                slope.copy_(value.view_as(slope))
        distributed.all_reduce(total)
        return total

    def _pauses(self, seconds: float, last: bool) -> tuple[bool, bool]:
        """All processes pause after the same step: when one of them would."""
        saving, stopping = super()._pauses(seconds, last)
        flags = torch.tensor([saving, stopping], dtype=torch.uint8)
        distributed.all_reduce(flags, op=distributed.ReduceOp.MAX)
        saving, stopping = map(bool, flags.tolist())
        if stopping and not interrupt.requested():
            signal.raise_signal(signal.SIGTERM)  # only noted, since a training runs
        return saving, stopping

    def _save(self, step: int, optimizer: torch.optim.Optimizer, bad: Tensor, seconds: float, resumed: int) -> None:
        tensors = gathered(self.learner.state() | moments(optimizer))

        def write() -> None:
            assert self.folder is not None, "phases have a folder"
            curves = {f"curve.{name}": torch.from_numpy(value) for name, value in self._curves().items()}
            own = curves | checkpoint.random_state(bad.device) | {"diverged_at": bad}
            meta = {"seconds": seconds, "resumed": resumed, "steps": self.plan.steps}
            checkpoint.save(self.folder, step, tensors | own, meta, self._identity())

        processes.from_first(write)

    def _restored(self) -> Newest:
        assert self.folder is not None, "phases have a folder"
        folder, identity = self.folder, self._identity()
        newest = checkpoint.latest(folder, identity)
        step = processes.from_first(lambda: None if newest is None else newest[0])
        if step != (None if newest is None else newest[0]):
            raise CheckpointError(f"{folder}: processes read different checkpoints; give the command again")
        processes.from_first(lambda: checkpoint.remove_newer(folder, step))
        if newest is not None:
            now = self.learner.state()
            self.learner.restore({name: _divided_as(newest[1][name], now[name]) for name in now})
        return newest

    def _resume(self, newest: Newest, optimizer: torch.optim.Optimizer, bad: Tensor) -> tuple[int, float, int]:
        if newest is not None:
            for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
                for name in (f"adam.{i}.exp_avg", f"adam.{i}.exp_avg_sq"):
                    if name in newest[1]:
                        newest[1][name] = _divided_as(newest[1][name], p)
        return super()._resume(newest, optimizer, bad)
