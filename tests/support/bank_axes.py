"""Small models with one bank each, in the form of ``axes.py``."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.state_space import StateBank
from experiments.models.transformer import HeadBank, SliceBank
from ngn.components.base import Bank, OrderedSum
from ngn.methods.base import Capacity


def _awake(bank: Bank) -> Bank:
    """Give the last map values, which is zero at the start."""
    with torch.no_grad():
        bank.get_parameter(bank.last[0]).normal_()
    return bank


class HeadSum(nn.Module):
    """A bank of attention heads of three entries."""

    def __init__(self, capacity: Capacity | None, K: int = 4) -> None:
        super().__init__()
        self.sum = OrderedSum(_awake(HeadBank(8, 3, K, 0, "heads")), capacity)

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(x)

    def plain(self, x: Tensor, c: Tensor) -> Tensor:
        later, y = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1), torch.zeros_like(x)
        for n in range(len(c)):
            q, k, v = (x @ part.T for part in self.sum.bank.qkv[n].split(3))
            y = y + c[n] * ((q @ k.mT / 3**0.5).masked_fill(later, -torch.inf).softmax(-1) @ v @ self.sum.bank.O[n])
        return y


class SliceSum(nn.Module):
    """A bank of slices of three units."""

    def __init__(self, capacity: Capacity | None, K: int = 4) -> None:
        super().__init__()
        self.sum = OrderedSum(_awake(SliceBank(8, 3, K, 0, "slices")), capacity)

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(x)

    def plain(self, x: Tensor, c: Tensor) -> Tensor:
        bank, y = self.sum.bank, torch.zeros_like(x)
        for n in range(len(c)):
            y = y + c[n] * (F.gelu(x @ bank.up[n].T + bank.bias[n]) @ bank.down[n])
        return y


class StateSum(nn.Module):
    """A bank of state coordinates."""

    def __init__(self, capacity: Capacity | None, K: int = 4) -> None:
        super().__init__()
        self.sum = OrderedSum(_awake(StateBank(8, K, 0, "states")), capacity)

    def forward(self, x: Tensor) -> Tensor:
        return self.sum((x, F.softplus(x)))

    def plain(self, x: Tensor, c: Tensor) -> Tensor:
        bank, delta, y = self.sum.bank, F.softplus(x), torch.zeros_like(x)
        for n in range(len(c)):
            h, ys = torch.zeros_like(x[:, 0]), []
            for t in range(x.shape[1]):
                h = torch.exp(-delta[:, t] * torch.exp(bank.A_log[n])) * h
                h = h + delta[:, t] * (x[:, t] @ bank.B[n])[:, None] * x[:, t]
                ys.append((x[:, t] @ bank.C[n])[:, None] * h)
            y = y + c[n] * torch.stack(ys, 1)
        return y
