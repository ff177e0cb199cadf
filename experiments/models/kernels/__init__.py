"""Compiled kernels that train as a whole, where one fits; the tests compare them with the plain trainer."""

from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer

__all__ = ["KernelTrainer", "unsupported"]
