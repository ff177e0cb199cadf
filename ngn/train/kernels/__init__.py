"""Compiled kernels that train as a whole, where one fits; the tests compare them with the plain trainer."""

from ngn.train.kernels.supported import unsupported
from ngn.train.kernels.trainer import KernelTrainer

__all__ = ["KernelTrainer", "unsupported"]
