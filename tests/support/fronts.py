"""Models of many structures, and fronts of them."""

import functools

import pytest
import torch
from sizable import called
from torch import nn
from traceable import MobileNet, ResNet, Swin, example_of, network

import ngn

X = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(3))


class Block(nn.Module):
    """Attention of torch, then a feed-forward layer."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))

    def forward(self, x):
        h = self.norms[0](x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


class Tied(nn.Module):
    """The embedding of words is the last map, too, and one layer is called twice."""

    def __init__(self):
        super().__init__()
        self.embed, self.up, self.down = nn.Embedding(11, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, words):
        x = self.embed(words)
        for _ in range(2):
            x = x + self.down(self.up(x).relu())
        return x @ self.embed.weight.T


def grouped():
    """A block of ResNeXt, with group norm behind it."""
    groups = [nn.Conv2d(3, 16, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, groups=4), nn.GroupNorm(8, 32)]
    return nn.Sequential(*groups, nn.Conv2d(32, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))


def llama():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6, "num_key_value_heads": 3}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32, num_hidden_layers=2, **sizes))


IDS = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(0))
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 9), nn.Tanh(), nn.Linear(9, 3)), X),
    "attention": (Block, X),
    "tied": (Tied, IDS),
    "groups": (grouped, example_of(ResNet)),
    "gqa": (llama, {"input_ids": IDS}),
    **{kind.__name__: (functools.partial(network, kind), example_of(kind)) for kind in (ResNet, MobileNet, Swin)},
}


def learner_of(name, **front):
    torch.manual_seed(0)
    make, x = MODELS[name]
    share = {"parameters": {"gqa": "55%", "tied": "45%", "Swin": "45%"}.get(name, "35%")}
    return ngn.learn_sizes(make(), example=x, budget=ngn.Front(**{"members": 4, **share, **front})), x


def trained(name, steps=6, **front):
    """A learner after some steps in a loop of one's own."""
    learner, x = learner_of(name, **front)
    learner.train()
    optimizer = torch.optim.SGD(learner.parameters(), 0.05)
    for step in range(steps):
        sum(part.float().square().mean() for part in called(learner, x)).backward()
        optimizer.step()
        learner.step((step + 1) / steps, optimizer)
        optimizer.zero_grad()
    return learner.eval(), x
