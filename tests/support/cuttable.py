"""Learners whose sizes are cut in place, with the steps and the optimisers of their trainings."""

import copy

import torch
from axes import X
from sizable import Fused, Gated, Layers
from torch import nn

import ngn
from experiments.models.trainer import ReplicaAdam

OPTIMIZERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-2, momentum=0.9, weight_decay=0.01),
    "adam": lambda groups: torch.optim.Adam(groups, lr=1e-2, amsgrad=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=1e-2),
    "ours": lambda groups: ReplicaAdam([group | {"rates": torch.tensor([1e-2, 1e-3])} for group in groups]),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=1e-3, momentum=0.9, centered=True),
}


def optimizer_of(learner, kind="adam"):
    groups = [{"params": learner.body_parameters()}, {"params": learner.controller_parameters(), "weight_decay": 0.0}]
    return OPTIMIZERS[kind]([group for group in groups if group["params"]])


def steps(learner, optimizer, x, count=3):
    learner.train()
    for _ in range(count):
        y = learner(x)
        loss = (y - y.detach().sin()).square().mean() + learner.penalty().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    learner.eval()


def twins(learner, x, kind="adam"):
    """The committed learner after a few steps, and a copy of it, each with its optimiser."""
    optimizer = optimizer_of(learner, kind)
    steps(learner, optimizer, x)
    learner.set_progress(0.6)
    learner.before_step(None)
    twin = copy.deepcopy(learner)
    other = optimizer_of(twin, kind)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return learner, optimizer, twin, other


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp = nn.MultiheadAttention(8, 4, batch_first=True), Gated()

    def forward(self, x):
        x = x + self.attn(x, x, x, need_weights=False)[0]
        return x + self.mlp(x)


class Stack(Layers):
    def __init__(self):
        super().__init__(*(Layer() for _ in range(4)))
        self.last, self.fused = nn.Linear(8, 8), Fused()

    def forward(self, x):
        return self.last(self.fused(super().forward(x)))


def stack(seed=1, by_magnitude=False, **settings):
    torch.manual_seed(seed)
    heads, widths = (None, None) if by_magnitude else ([2, 0, 3, 1], [5, 0, 4, 2, 1, 3])
    sizes = {
        "layers": ngn.Depth(t0=1.0),
        "layers.*.attn": ngn.Heads(t0=1.0, by_importance=heads),
        "layers.*.mlp": ngn.Width(6, t0=2.0, by_importance=widths),
        "fused": ngn.Heads(t0=2.0),
        "last": ngn.Rank(4, t0=2.0),
    }
    return ngn.learn_sizes(Stack().double(), sizes, example=X, **({"commit": 0.5} | settings))


def two_maps(seed=0, **settings):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)).double()
    return ngn.learn_sizes(model, example=X, budget=ngn.Budget(parameters="50%"), **settings)
