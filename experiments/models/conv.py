"""Convolution branches with a vector as output, such as logits: [3x3 conv, 2x2 max-pooling, ReLU] x depth, linear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ngn.components.base import Bank, Seeds, uniform


class ConvBank(Bank):
    """K convolution branches.

    The bank loops over its branches, in channels-last layout, and computes only the branches in use. On a CPU, one
    grouped convolution for all branches is no faster and needs more memory (docs/benchmarks.md).

    Args:
        image: channels, height and width of the input; height and width divisible by 2 at every level.
        channels: output channels of each convolution.
        out: length of the output vector.

    Input: [N, C, H, W], or [R, N, C, H, W] if every replica has its own samples.

    Raises:
        ValueError: if the image is too small to be halved once per convolution.

    >>> import torch, ngn
    >>> bank = ConvBank((3, 8, 8), (4, 4), 10, K=2, seeds=0)
    >>> bank(torch.ones(7, 3, 8, 8), None).shape
    torch.Size([7, 10])
    """

    def __init__(
        self, image: Sequence[int], channels: Sequence[int], out: int, K: int, seeds: Seeds, name: str | int = 0
    ) -> None:
        self.image, self.channels, self.out = tuple(image), tuple(channels), out
        side = [size >> len(self.channels) for size in self.image[1:]]
        if min(side) < 1:
            height, width = self.image[1:]
            raise ValueError(f"an image of {height}x{width} cannot be halved {len(channels)} times: use fewer channels")
        self.flat = self.channels[-1] * side[0] * side[1]
        super().__init__(K, seeds, name)

    last = ("V", "v")
    V: Tensor
    v: Tensor

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        drawn: dict[str, Tensor] = {}
        before = self.image[0]
        for i, after in enumerate(self.channels, 1):
            drawn[f"W{i}"] = uniform((after, before, 3, 3), before * 9, source)
            drawn[f"b{i}"] = uniform((after,), before * 9, source)
            before = after
        drawn["V"], drawn["v"] = torch.zeros(self.out, self.flat), torch.zeros(self.out)
        return drawn

    def _parts(self, x: Tensor, k: int, replica: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the flat hidden values, V and v of each of the k leading branches."""
        names = [f"{kind}{i}" for i in range(1, len(self.channels) + 1) for kind in "Wb"] + ["V", "v"]
        stacks: list[Tensor] = [getattr(self, name) for name in names]
        stacks = stacks if replica is None else [value[replica] for value in stacks]
        # The fastest layout of a CPU. ``contiguous`` would leave images of one channel in the slow one.
        x = x.clone(memory_format=torch.channels_last)
        # With ``unbind``, the gradients of all branches come back as one stack.
        for *maps, V, v in zip(*(value[:k].unbind(0) for value in stacks), strict=True):
            h = x
            for W, b in zip(maps[::2], maps[1::2], strict=True):
                # Pooling before the ReLU gives the same result, and the ReLU has a quarter of the work.
                h = F.relu(F.max_pool2d(F.conv2d(h, W, b, padding=1), 2))
            yield h.flatten(1), V, v

    def _sum(self, x: Tensor, coefficients: Tensor | None, replica: int | None) -> Tensor:
        y = x.new_zeros(x.shape[0], self.out)
        each = [None] * self.K if coefficients is None else coefficients.unbind(0)
        for c, (h, V, v) in zip(each, self._parts(x, len(each), replica), strict=True):
            y = y + (F.linear(h, V, v) if c is None else F.linear(h, V * c, v * c))
        return y

    def forward(self, x: Tensor, coefficients: Tensor | None) -> Tensor:
        c = None if coefficients is None else coefficients.to(self.V.dtype)
        if self.replicas is None:
            return self._sum(x, c, None)
        stacked = x.dim() == 5
        each = range(self.replicas)
        return torch.stack([self._sum(x[s] if stacked else x, None if c is None else c[s], s) for s in each])

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        k = self.K if count is None else count

        def of(x: Tensor, replica: int | None) -> Tensor:
            return torch.stack([F.linear(*part) for part in self._parts(x, k, replica)])

        if self.replicas is None:
            return of(x, None)
        return torch.stack([of(x[s] if x.dim() == 5 else x, s) for s in range(self.replicas)])
