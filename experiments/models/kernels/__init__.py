"""Compiled kernels that do whole trainings. The tests compare them with the plain trainer."""

from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer

__all__ = ["KernelTrainer", "unsupported"]
