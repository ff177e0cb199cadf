"""What training asks of the machine, and what it takes of it; neither setting moves a loss by a bit.

**Denormals.** A component near the end of the active window has a gate of 1e-15, a weight of 2^-k and a last map that
has hardly left zero. So its coefficient times that map, and with it every gradient of the component, is below 1.2e-38,
where a processor takes some hundred cycles an operation. Set to zero instead, such numbers are as far below everything
that they are added to as before. The setting is the thread's, and so the caller's: it ends with the training.

**Memory.** glibc gives large blocks back to the system as soon as they are free. A training step frees and asks for the
same activations again, and every page of them is then mapped and zeroed anew: 3,568 page faults per step for ten
stacked replicas of the 1D study in the torch engine, none with this setting (docs/benchmarks.md), which lasts until the
process ends.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Parameters of ``mallopt``, as in glibc's malloc.h."""


def peak_mib() -> float:
    """Peak resident memory of this process in MiB.

    On Linux ``VmHWM``, that of the program which runs now. ``getrusage`` remembers what the process was before it
    executed this program, too, so that the child of a large process begins with its parent's peak.
    """
    if sys.platform == "linux":
        with open("/proc/self/status") as facts:
            for line in facts:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@contextmanager
def prepared() -> Iterator[None]:
    """Both settings, as far as the machine has them."""
    keep_freed_memory()
    with denormals_flushed():
        yield


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Inside, this thread and every thread that it starts compute with zero for what is below 1.2e-38.

    torch's own threads are started by the first operation that needs them and keep what they were started with.
    """
    before = sys.float_info.min / 2 == 0  # torch has no function that tells
    torch.set_flush_denormal(True)  # False where the processor cannot: then nothing changes
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def keep_freed_memory() -> bool:
    """From now on this process keeps what it frees until it ends; whether the C library can do that.

    For processes that do nothing but train: what they hold is their peak.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries than glibc have none
    if mallopt is None:
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26))
    accepted = [mallopt(name, value) for name, value in settings]  # each one, whatever became of the others
    return all(accepted)
