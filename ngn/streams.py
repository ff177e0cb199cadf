"""Random streams with addresses.

Every random number of a run comes from a generator that is seeded by an address: the seed and a path of names and
indices, such as ``(seed, "init", 0, k)``. So data order, initialisation and noise are independent, component k starts
the same for any number of candidates and replicas, and a resumed run needs no generator states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def generator(seed: int, *path: str | int) -> torch.Generator:
    """Return the generator of one address below a seed; on the CPU, so that all devices get the same numbers."""
    address = "/".join(str(part) for part in (seed, *path))
    digest = hashlib.blake2b(address.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def of_seeds(seeds: int | Sequence[int], draw: Callable[[int], Tensor]) -> Tensor:
    """Return what ``draw`` gives for a seed; for several, stacked along a leading axis of replicas."""
    return draw(seeds) if isinstance(seeds, int) else torch.stack([draw(seed) for seed in seeds])
