"""The compiled kernel of ``bank1d.cpp``: its limits, its library, the data that it works on."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ngn.engine.batches import Batches
from ngn.engine.fused.build import load

SOURCE = Path(__file__).with_name("bank1d.cpp")
WIDTHS = (8, 16, 32, 64)
"""Hidden widths that are compiled; others are padded with units that stay exactly zero."""
TILE = 8
"""The kernel takes samples in multiples of this."""
NAMES = ("W1", "b1", "W2", "b2", "W3", "b3")
"""A bank's parameters, in the kernel's order."""


def compiled() -> ctypes.CDLL | None:
    """The compiled kernel, or None where it cannot be built."""
    found = load(SOURCE)
    if found is not None:
        for entry in (found.ngn_bank1d_advance, found.ngn_bank1d_gradients):
            entry.restype, entry.argtypes = ctypes.c_int64, [ctypes.c_void_p]
        found.ngn_bank1d_tanh.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        found.ngn_bank1d_tanh.restype = None
    return found


def library() -> ctypes.CDLL:
    """The compiled kernel.

    Raises:
        RuntimeError: where it cannot be built.
    """
    found = compiled()
    if found is None:
        raise RuntimeError("the kernel cannot be built here")
    return found


def check(code: int) -> None:
    """Raise what a call's return code stands for.

    Raises:
        MemoryError, RuntimeError: for any code but 0.
    """
    if code:
        raise MemoryError("no memory for the kernel") if code == 2 else RuntimeError(f"the kernel returned {code}")


def compiled_width(h: int) -> int:
    """H, the compiled width that a hidden width h is padded to."""
    return next(width for width in WIDTHS if width >= h)


@dataclass(frozen=True)
class Samples:
    """A full batch as the kernel takes it: x and target float32 [padded], the first ``count`` of them real."""

    x: Tensor
    target: Tensor
    count: int

    @classmethod
    def of(cls, batches: Batches) -> Samples:
        """The one batch of a full-batch training."""
        x, target = (v.flatten() for v in batches.at(0))
        room = (0, -len(x) % TILE)
        return cls(torch.nn.functional.pad(x, room), torch.nn.functional.pad(target, room), len(x))


def fast_tanh(x: Tensor) -> Tensor:
    """The kernel's tanh of a float32 vector."""
    padded = torch.zeros(-(-len(x) // 16) * 16)
    padded[: len(x)] = x
    out = torch.empty_like(padded)
    library().ngn_bank1d_tanh(padded.data_ptr(), out.data_ptr(), len(padded))
    return out[: len(x)]
