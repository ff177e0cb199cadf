"""Learned depth: a stack of layers that may shrink to the identity, and a chain of which a prefix is retained."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ngn.components.base import Bank, OrderedSum, Seeds, uniform
from ngn.cuts import Cut


class TanhBank(Bank):
    """K maps f_k(h) = tanh(h W_k + b_k) of ``width`` entries, computed as one product; with ``identity``, f_0(h) = h.

    Unlike in other banks, no map starts at zero: all maps of a layer would then change in the same way.

    >>> import torch, ngn
    >>> bank = TanhBank(2, K=3, seeds=0, identity=True)
    >>> bank(torch.ones(7, 2), torch.tensor([1.0, 0.0, 0.0])).tolist()[0]
    [1.0, 1.0]
    """

    def __init__(self, width: int, K: int, seeds: Seeds, name: str | int = 0, identity: bool = False) -> None:
        self.out, self.identity = width, identity
        super().__init__(K, seeds, name)

    W: Tensor
    b: Tensor

    def _drawn(self, first: int, last: int) -> dict[str, Tensor]:
        first = max(first, int(self.identity))  # an identity has no parameters
        return super()._drawn(first, max(first, last))

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        return {"W": uniform((self.out, self.out), self.out, source), "b": uniform((self.out,), self.out, source)}

    def _maps(self, x: Tensor, k: int) -> Tensor:
        """Return the ``k`` leading learned maps side by side, [*R, N, k * width]."""
        wide = torch.movedim(self.W.narrow(-3, 0, k), -3, -2).flatten(-2)
        return torch.tanh(x @ wide + self.b.narrow(-2, 0, k).flatten(-2).unsqueeze(-2))

    @property
    def is_identity(self) -> bool:
        """Whether only f_0(h) = h is left."""
        return self.identity and self.K == 1

    def forward(self, x: Tensor, coefficients: Tensor | None) -> Tensor:
        if coefficients is None:
            if self.is_identity:
                return x
            coefficients = self.W.new_ones(self.K)
        c = coefficients.to(self.W.dtype)
        skip = c.shape[-1] > 0 and self.identity
        learned = c[..., 1:] if skip else c
        k = learned.shape[-1]
        # sum_k c_k f_k is one product with the block column (c_0 I, c_1 I, ...), so the wide tensor is read once.
        eye = torch.eye(self.out, dtype=c.dtype, device=c.device)
        y = self._maps(x, k) @ (learned[..., None, None] * eye).flatten(-3, -2)
        return y + c[..., 0, None, None] * x if skip else y

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        k = self.K if count is None else count
        skip = k > 0 and self.identity
        maps = torch.movedim(self._maps(x, k - skip).unflatten(-1, (k - skip, self.out)), -2, -3)
        return torch.cat([x.expand(*maps.shape[:-3], *x.shape[-2:]).unsqueeze(-3), maps], -3) if skip else maps

    def cuts(self) -> list[Cut]:
        return [Cut(self, name, 0, start=-int(self.identity)) for name in ("W", "b")]

    def truncated(self, kept: Tensor) -> None:
        super().truncated(kept)
        self.identity = self.identity and bool(kept[0])


class LayerStack(nn.Module):
    """h_{l+1} = sum_k w_lk g_k(t_l) f_lk(h_l), one ordered group per layer (the paper's layerwise depth)."""

    def __init__(self, layers: list[OrderedSum]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the last layer, [*R, N, d]."""
        for layer in self.layers:
            x = layer(x)
        return x

    @property
    def depth(self) -> int:
        """Number of layers, without those that are only the identity in a deployed stack."""
        return sum(not (layer.capacity is None and layer.bank.is_identity and layer.scale is None) for layer in self)

    def __iter__(self) -> Iterator[OrderedSum]:
        return iter(self.layers)  # type: ignore[arg-type]


class ChainBank(Bank):
    """A chain of components f_k = u_k with u_0 = F_0(x) and u_k = F_k(x + u_{k-1}).

    The updates are F_k(v) = tanh(tanh(v U_k + a_k) V_k + b_k). Inputs and outputs have ``out`` entries, hidden layers
    ``width``. V_k and b_k start at zero.

    >>> import torch, ngn
    >>> ChainBank(2, width=5, K=3, seeds=0).components(torch.ones(7, 2)).shape
    torch.Size([3, 7, 2])
    """

    def __init__(self, out: int, width: int, K: int, seeds: Seeds, name: str | int = 0) -> None:
        self.out, self.width = out, width
        super().__init__(K, seeds, name)

    U: Tensor
    a: Tensor
    V: Tensor
    b: Tensor

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        return {
            "U": uniform((self.out, self.width), self.out, source),
            "a": uniform((self.width,), self.out, source),
            "V": torch.zeros(self.width, self.out),
            "b": torch.zeros(self.out),
        }

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        k = self.K if count is None else count
        U, V = self.U.narrow(-3, 0, k).unbind(-3), self.V.narrow(-3, 0, k).unbind(-3)
        a, b = self.a.narrow(-2, 0, k).unsqueeze(-2).unbind(-3), self.b.narrow(-2, 0, k).unsqueeze(-2).unbind(-3)
        us: list[Tensor] = []
        for Uk, ak, Vk, bk in zip(U, a, V, b, strict=True):
            v = x + us[-1] if us else x
            us.append(torch.tanh(torch.tanh(v @ Uk + ak) @ Vk + bk))
        return torch.stack(us, -3) if us else x.new_zeros(*self.U.shape[:-3], 0, *x.shape[-2:])

    def forward(self, x: Tensor, coefficients: Tensor | None) -> Tensor:
        if coefficients is None:
            return self.components(x).sum(-3)
        k = coefficients.shape[-1]
        c = coefficients.to(self.U.dtype)
        return (self.components(x, k) * c[..., None, None]).sum(-3)

    def needed(self, kept: Tensor) -> Tensor:
        """Return which components deployment needs: all that a kept u_k is computed from, kept or not."""
        return kept.flip(-1).cumsum(-1).flip(-1) > 0
