"""Minibatches and windows of a text: an order by seed and epoch, addressed by index."""

import numpy as np
import pytest
import torch

from experiments.tasks.base import MiniBatches, TokenBatches
from ngn.train.batches import Split


def test_minibatches_are_permutations_by_seed_and_epoch():
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


def test_windows_of_a_text_are_addressed_by_seed_and_epoch():
    tokens = np.arange(1003, dtype=np.uint16)
    batches = TokenBatches(tokens, context=10, size=4, seed=3)
    assert (batches.windows, batches.per_epoch) == (99, 24)
    epoch = [batches.at(index)[0] for index in range(24)]
    starts = torch.cat(epoch)[:, 0]
    assert len(set(starts.tolist())) == 96, "no window twice"
    assert len({int(start) % 10 for start in starts}) == 1, "one offset"
    x, y = batches.at(30)
    assert torch.equal(y, x + 1)
    assert x.dtype == torch.int64
    again = TokenBatches(tokens, context=10, size=4, seed=3)
    assert torch.equal(again.at(30)[0], x), "whatever was asked for before"
    assert not torch.equal(again.at(6)[0], x), "another epoch, another order"
    assert not torch.equal(TokenBatches(tokens, 10, 4, seed=4).at(30)[0], x)
    assert TokenBatches(tokens[:25], 10, 4, seed=0).at(0)[0].shape == (1, 10)
    with pytest.raises(ValueError, match="too short"):
        TokenBatches(tokens[:19], 10, 4, seed=0)
