"""The compiled kernels: their limits, their libraries, the data that they work on."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ngn.train.batches import Batches
from ngn.train.kernels.build import load

FOLDER = Path(__file__).parent
ENTRIES = {
    "bank1d": ("ngn_bank1d_advance", "ngn_bank1d_gradients"),
    "planar": ("ngn_layers_advance", "ngn_chain_advance"),
    "autoencoder": ("ngn_autoencoder_step",),
    "branches": ("ngn_branches_step",),
}
"""The libraries, each a file of code, with their functions of one pointer that return a code."""
WIDTHS = (8, 16, 32, 64)
"""Hidden widths that are compiled; others are padded with units that stay exactly zero."""
TILE = 8
"""``bank1d.cpp`` takes samples in multiples of this."""
NAMES = ("W1", "b1", "W2", "b2", "W3", "b3")
"""A bank's parameters, in the order of ``bank1d.cpp``."""


def compiled(name: str = "bank1d") -> ctypes.CDLL | None:
    """A compiled library, or None where it cannot be built."""
    found = load(FOLDER / f"{name}.cpp")
    if found is not None:
        for entry in ENTRIES[name]:
            function = getattr(found, entry)
            function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_void_p]
    return found


def library(name: str = "bank1d") -> ctypes.CDLL:
    """A compiled library.

    Raises:
        RuntimeError: where it cannot be built.
    """
    found = compiled(name)
    if found is None:
        raise RuntimeError(f"the kernel {name} cannot be built here")
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
    """A full batch as a kernel takes it: x and target float32 [entries, padded], the first ``count`` of them real."""

    x: Tensor
    target: Tensor
    count: int

    @classmethod
    def of(cls, batches: Batches, tile: int = TILE) -> Samples:
        """The one batch of a full-batch training, [N, entries] each."""
        x, target = (v.T.contiguous() for v in batches.at(0))
        count = x.shape[-1]
        room = (0, -count % tile)
        return cls(torch.nn.functional.pad(x, room), torch.nn.functional.pad(target, room), count)


def fast_tanh(x: Tensor) -> Tensor:
    """The kernels' tanh of a float32 vector."""
    padded = torch.zeros(-(-len(x) // 16) * 16)
    padded[: len(x)] = x
    out = torch.empty_like(padded)
    function = library().ngn_bank1d_tanh
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    function(padded.data_ptr(), out.data_ptr(), len(padded))
    return out[: len(x)]
