"""Compiled kernels that replace the plain training loop where one fits; ``tests/test_fused.py`` compares them."""

from ngn.engine.fused.bank1d import FusedTrainer, trainer_for, unsupported

__all__ = ["FusedTrainer", "trainer_for", "unsupported"]
