"""Ordered components against plain torch and torch-geometric modules."""

import pytest
import torch
from structures import EDGES, STRUCTURES, awake
from torch import nn

from experiments.models.conv import ConvBank
from experiments.models.depth import ChainBank, TanhBank
from experiments.models.gcn import GCNBank, GraphInput
from experiments.models.latent import RankOneBank
from experiments.models.mlp import MLPBank

ids = [s.name for s in STRUCTURES]


def reference(bank, k):
    """Build component k from the bank's parameters, as a plain module or a function of the input."""
    if isinstance(bank, ChainBank):

        def chain(x):
            u = torch.zeros_like(x)
            for j in range(k + 1):
                U, a, V, b = (getattr(bank, name).detach()[j] for name in "UaVb")
                u = torch.tanh(torch.tanh((x + u) @ U + a) @ V + b)
            return u

        return chain
    if isinstance(bank, TanhBank):
        if bank.identity and k == 0:
            return lambda x: x
        j = k - 1 if bank.identity else k
        return lambda x: torch.tanh(nn.functional.linear(x, bank.W.detach()[j].T, bank.b.detach()[j]))
    p = {name: value.detach()[k] for name, value in bank.named_parameters()}
    if isinstance(bank, RankOneBank):
        return lambda x: torch.stack([p["B"] * torch.dot(p["A"], row) for row in x])
    if isinstance(bank, MLPBank):
        n = len(bank.sizes) - 1

        def mlp(x):
            for i in range(1, n + 1):
                x = nn.functional.linear(x, p[f"W{i}"].T, p[f"b{i}"])
                x = torch.tanh(x) if i < n else x
            return x

        return mlp
    if isinstance(bank, ConvBank):

        def conv(x):
            for i in range(1, len(bank.channels) + 1):
                x = nn.functional.max_pool2d(torch.relu(nn.functional.conv2d(x, p[f"W{i}"], p[f"b{i}"], padding=1)), 2)
            return nn.functional.linear(x.flatten(1), p["V"], p["v"])

        return conv
    from torch_geometric.nn import GCNConv

    first, second = GCNConv(bank.features, bank.width).double(), GCNConv(bank.width, bank.out).double()
    first.load_state_dict({"lin.weight": p["W1"].T, "bias": p["b1"]})
    second.load_state_dict({"lin.weight": p["W2"].T, "bias": p["b2"]})
    return lambda g: second(torch.relu(first(g.features, g.edge_index)), g.edge_index)[g.targets]


@pytest.mark.parametrize("structure", STRUCTURES, ids=ids)
def test_each_component_is_the_plain_module(structure):
    bank = awake(structure.bank(3, 1).double())
    x = structure.x(torch.float64)
    stacked = bank.components(x)
    for k in range(3):
        assert torch.allclose(stacked[k], reference(bank, k)(x), atol=1e-12)
    c = torch.tensor([0.7, 0.2, -1.3], dtype=torch.float64)
    assert torch.allclose(bank(x, c), sum(c[k] * stacked[k] for k in range(3)), atol=1e-12)
    assert torch.allclose(bank(x, c[:2]), sum(c[k] * stacked[k] for k in range(2)), atol=1e-12)


def test_the_propagated_neighbourhood_is_exact():
    """Nodes that do not reach the targets can be left out without any change."""
    x = torch.randn(9, 6, dtype=torch.float64)
    bank = awake(GCNBank(6, 4, 3, 2, 0).double())
    c = torch.ones(2, dtype=torch.float64)
    everything = bank(GraphInput.of(x, EDGES, torch.arange(9)), c)
    some = GraphInput.of(x, EDGES, torch.tensor([7, 1]))
    assert some.propagated.shape[0] < 9
    assert torch.allclose(bank(some, c), everything[[7, 1]], atol=1e-12)
