"""Compiled kernels that do whole trainings. The tests compare them with the plain trainer.

What planning has to know of them stands here; this module imports no torch.
"""

from __future__ import annotations

from typing import Any

WIDEST = 64
"""Largest width, in units, of the blocks for which kernels are compiled."""


def training_problem(train: Any) -> str | None:
    """Return why no kernel can follow this training, given as settings (``train``) or as a ``TrainPlan``."""
    if train.lr_boundary_shape.kind != "constant":
        return "the compiled kernels need a constant learning rate of the boundary: remove train.lr_boundary_shape"
    if train.optimizer != "adam" or train.warmup > 0:
        return "the compiled kernels support only train.optimizer=adam, without train.warmup"
    if train.accumulate > 1 or train.autocast != "none":
        return (
            "the compiled kernels take whole batches in single precision, neither micro-batches nor autocast: use "
            "train.accumulate=1 and train.autocast=none"
        )
    return None
