"""Several processes that train one run together, as ``torchrun`` starts them.

The first process (rank 0) decides what to train, and reads and writes all files. The others follow it.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
PATIENCE = datetime.timedelta(days=2)
"""How long a process waits for the first, which scores alone. If a process dies, torchrun ends the others."""


def count() -> int:
    """Return the number of processes that torchrun has started for this command; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ["RANK"]) if count() > 1 else 0


def card() -> int:
    """Return the number of this process's GPU on its machine."""
    return int(os.environ["LOCAL_RANK"]) if count() > 1 else 0


def join(device: torch.device) -> None:
    """Join the other processes, once: over gloo, and between GPUs over NCCL."""
    import torch
    from torch import distributed

    if distributed.is_initialized():
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)


def from_first(make: Callable[[], T]) -> T:
    """Return, in every process, what ``make`` returns in the first one, or raise what it raises there."""
    if count() == 1:
        return make()
    from torch import distributed

    told: list[tuple[T | None, Exception | None]] = [(None, None)]
    if rank() == 0:
        try:
            told = [(make(), None)]
        except Exception as error:
            told = [(None, error)]
    distributed.broadcast_object_list(told, src=0)
    value, fault = told[0]
    if fault is not None:
        raise fault
    return value  # type: ignore[return-value]
