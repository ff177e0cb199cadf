"""Windows of a text as batches, each addressed by its index."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ngn.streams import generator


class TokenBatches:
    """Inputs and next tokens from one long text, [size, context] each, as int64.

    Each epoch cuts the text into windows of ``context`` tokens and shuffles them. The first window begins at a random
    offset below ``context``. The random stream (s, "data", e) gives offset and order for seed s in epoch e. The last
    batch of an epoch is dropped if it is incomplete.

    Args:
        tokens: [T] integers, such as a memory map; only the windows of a batch are read.
        context: tokens in one input.
        size: windows in a batch; at most all windows of the text.
        seed: the seed of the run.
        device: the device of the batches.

    Raises:
        ValueError: if the text has fewer than 2 ``context`` tokens.

    >>> import numpy as np
    >>> x, y = TokenBatches(np.arange(40), context=4, size=2, seed=0).at(7)
    >>> x.shape, bool((y == x + 1).all())
    (torch.Size([2, 4]), True)
    """

    def __init__(
        self, tokens: np.ndarray, context: int, size: int, seed: int, device: torch.device | None = None
    ) -> None:
        self.windows = (len(tokens) - context) // context
        if self.windows < 1:
            raise ValueError(
                f"the text has {len(tokens)} tokens, which is too short for context={context}: "
                f"it needs at least {2 * context}"
            )
        self.tokens, self.context, self.seed, self.device = tokens, context, seed, device
        self.size = min(size, self.windows)
        self.per_epoch = self.windows // self.size
        self._epoch, self._starts = -1, np.empty(0, dtype=np.int64)

    def at(self, index: int) -> tuple[Tensor, Tensor]:
        epoch, batch = divmod(index, self.per_epoch)
        if epoch != self._epoch:
            source = generator(self.seed, "data", epoch)
            offset = torch.randint(self.context, (), generator=source)
            order = torch.randperm(self.windows, generator=source)
            self._epoch, self._starts = epoch, (offset + self.context * order).numpy()
        starts = self._starts[batch * self.size : (batch + 1) * self.size]
        window = self.tokens[starts[:, None] + np.arange(self.context + 1)].astype(np.int64)
        x = torch.from_numpy(window).to(self.device)
        return x[:, :-1], x[:, 1:]
