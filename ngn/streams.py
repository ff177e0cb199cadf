"""Random streams that are addressed, not advanced.

Every draw of a run comes from a generator seeded by the run's seed and a path of names and indices, such as
``(seed, "init", 0, k)`` or ``(seed, "data", epoch)``. So data order, initialisation and noise do not disturb one
another, component k starts the same however many candidates there are and however many replicas train beside it, and a
resumed run needs no generator states.
"""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *path: str | int) -> torch.Generator:
    """A CPU generator for one address below a seed; draws are made on the CPU so that devices agree."""
    address = "/".join(str(part) for part in (seed, *path))
    digest = hashlib.blake2b(address.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
