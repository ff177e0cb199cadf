"""Two process settings that speed up training, the precision of float32 products, and peak memory.

The first two settings do not change a bit of any loss.

**Denormals.** Near the end of the active window, a component has a gate of 1e-15, a weight of 2^-k and a last map close
to zero. The product of its coefficient and that map, and every gradient of the component, is then below 1.2e-38.
A processor needs about a hundred cycles for one operation on such a number. Training flushes these numbers to zero:
they are far below everything that they are added to. The setting belongs to the thread and ends with the training.

**Memory.** glibc returns large free blocks to the system at once. Each training step frees its activations and
allocates them again, so the system maps and zeroes every page anew. Ten stacked replicas of the 1D study in the torch
engine cause 3,568 page faults per step; with this setting they cause none (docs/benchmarks.md). The setting lasts until
the process ends.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Parameters of ``mallopt``, as in glibc's malloc.h."""


def peak_mib(device: torch.device | None = None) -> float:
    """Return the peak memory in MiB: on CUDA of the device since the phase began, else of this process.

    On Linux the latter is ``VmHWM``, which counts the current program only. ``getrusage`` also counts the process
    before it executed this program, so the child of a large process would start with its parent's peak.
    """
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    if sys.platform == "linux":
        with open("/proc/self/status") as facts:
            for line in facts:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@contextmanager
def tuned_for_training(products: Literal["highest", "high", "medium"] = "highest") -> Iterator[None]:
    """Apply the settings, where the machine supports them.

    Denormals are flushed in this thread and in every thread that it starts. The first operation that needs torch's own
    threads starts them. They keep the setting they were started with.

    Args:
        products: precision of float32 products on CUDA. torch would compute convolutions in TF32 and matrix products in
            float32. Here ``highest`` is float32 for both.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None  # only glibc has it
    if mallopt is not None:
        for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26)):
            mallopt(name, value)
    flushed = sys.float_info.min / 2 == 0  # torch has no function that reads the setting
    precision, tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_flush_denormal(True)  # returns False, and changes nothing, where the processor cannot do it
    torch.set_float32_matmul_precision(products)
    torch.backends.cudnn.allow_tf32 = products != "highest"
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = tf32
