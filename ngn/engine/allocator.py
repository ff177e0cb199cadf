"""Freed memory is kept for the next step, where the C library lets a program say so.

glibc gives large blocks back to the system as soon as they are free. A training step frees and asks for the same
activations again, and every page of them is then mapped and zeroed anew: 3,568 page faults a step for ten stacked
replicas of the 1D study in the torch engine, none with this setting (docs/benchmarks.md).
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Parameters of ``mallopt``, as in glibc's malloc.h."""


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
