"""
Graph convolution branches
==========================

Two communities of a random graph; a node's class is its community, and its features say little about it.
Branches of two hops each, f_k = A relu(A X W + b) W' + b', are summed in order.
"""

import torch
from picture import draw
from torch import nn

import ngn
from experiments.models.gcn import GCNBank, GraphInput

torch.manual_seed(0)
n = 120
community = torch.arange(n) % 2
chance = torch.where(community[:, None] == community, 0.15, 0.02)
edges = torch.triu(torch.rand(n, n) < chance, 1)
edge_index = (edges | edges.T).nonzero().T
features = torch.randn(n, 8) + 0.4 * community[:, None]
graph = GraphInput.of(features, edge_index, targets=torch.arange(n))

gate = ngn.CountGate(12, t0=6.0, lambda0=3e-2, alpha_max=3e-2)
learner = ngn.CapacityLearner(ngn.OrderedSum(GCNBank(8, 8, 2, K=12, seeds=0), gate))
course = ngn.fit(
    learner, graph, community, nn.functional.cross_entropy, ngn.TrainPlan(steps=200, lr=2e-2), progress="never"
)

# %%
small = learner.deploy(example=graph)
with torch.no_grad():
    print(f"accuracy {(small(graph).argmax(-1) == community).float().mean():.3f}")
draw(course, learner, small)
