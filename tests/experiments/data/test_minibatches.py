"""Shuffled minibatches: an order by seed and epoch, addressed by index."""

from __future__ import annotations

import torch

from experiments.tasks.base import MiniBatches
from ngn.train.batches import Split


def test_minibatches_are_permutations_by_seed_and_epoch() -> None:
    split = Split(torch.arange(10), torch.arange(10))
    batches = MiniBatches(split, 3, [5, 6], lambda x: x)
    assert batches.per_epoch == 3
    seen = torch.cat([batches.at(i)[0] for i in range(3)], -1)
    assert seen.shape == (2, 9)
    assert all(len(set(row.tolist())) == 9 for row in seen)
    alone = MiniBatches(split, 3, 6, lambda x: x)
    assert torch.equal(batches.at(4)[0][1], alone.at(4)[0])
    again = MiniBatches(split, 3, 6, lambda x: x)
    assert torch.equal(again.at(4)[0], alone.at(4)[0]), "a batch is addressed by its index, not by what came before"
    assert not torch.equal(alone.at(0)[0], alone.at(3)[0])
