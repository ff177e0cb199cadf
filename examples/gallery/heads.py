"""
Attention heads
===============

A sequence of random letters contains two marks. The model predicts the letter at each mark. An attention layer
with eight heads learns how many it needs.
"""

import torch
from picture import draw
from torch import nn

import ngn

torch.manual_seed(0)
n, length, letters = 256, 12, 6
tokens = torch.randint(letters, (n, length))
place = torch.stack([torch.randint(0, 5, (n,)), torch.randint(6, 11, (n,))], 1)
marks = torch.zeros(n, length, 2)
marks[torch.arange(n)[:, None], place + 1, torch.arange(2)] = 1
x = torch.cat([nn.functional.one_hot(tokens, letters), marks], -1).float()
y = tokens.gather(1, place + 1)


class Reader(nn.Module):
    """Attention from one learned query; predicts a letter for each mark."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(letters + 2, 32)
        self.attention = nn.MultiheadAttention(32, 8, batch_first=True)
        self.out = nn.Linear(32, 2 * letters)
        self.query = nn.Parameter(torch.randn(1, 1, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        seen, _ = self.attention(self.query.expand(len(x), 1, 32), h, h, need_weights=False)
        return self.out(seen).view(-1, letters, 2)


# %%
learner = ngn.learn_sizes(Reader(), {"attention": ngn.Heads()}, example=x[:2], lambda0=0.1, alpha_max=0.1)
history = ngn.fit(
    learner, x, y, nn.functional.cross_entropy, ngn.TrainPlan(steps=300, lr=3e-3, lr_boundary=0.1), progress="never"
)

# %%
# The deployed layer is still an attention layer, with fewer heads. Each head keeps its four entries.

small = learner.deploy(example=x, verbose=True)
print(small.attention.num_heads, "heads;", small.attention.out_proj)
with torch.no_grad():
    print(f"accuracy {(small(x).argmax(1) == y).float().mean():.3f}")
draw(history, learner)
