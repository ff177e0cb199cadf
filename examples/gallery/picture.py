"""What pages of the gallery share: images of lines; cut tensors, t over training and retained components."""

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import ngn
from ngn.train.plan import History


def noisy_lines(n: int) -> tuple[Tensor, Tensor]:
    """Images of 8 x 8 pixels, [n, 1, 8, 8], with one line of four directions each, and the directions, [n]."""
    label = torch.arange(n) % 4
    lines = torch.stack([torch.eye(8), torch.eye(8).flip(0), torch.zeros(8, 8), torch.zeros(8, 8)])
    lines[2, 4], lines[3, :, 4] = 1, 1
    places = torch.randint(8, (n,))
    images = torch.stack([lines[c].roll(int(s), 1 if c != 2 else 0) for c, s in zip(label, places, strict=True)])
    return images.unsqueeze(1) + 0.3 * torch.randn(n, 1, 8, 8), label


def draw(history: History, learner: ngn.CapacityLearner, small: nn.Module) -> None:
    """Print the parameters that deployment cut, and draw t and the components of every learned size."""
    kept = {name: tuple(p.shape) for name, p in small.named_parameters()}
    for name, p in learner.model.named_parameters():
        if name in kept and kept[name] != tuple(p.shape):
            print(f"{name}: {tuple(p.shape)} → {kept[name]}")
    counts = [sum(p.numel() for p in model.parameters()) for model in (learner.model, small)]
    print(f"{counts[0]:,} → {counts[1]:,} parameters")

    _, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), width_ratios=(3, 2), layout="constrained")
    rows = range(len(learner.axes))
    for g in rows:
        left.plot(history.curves["step"], history.curves["t"][:, 0, g], color=f"C{g}", lw=2)
        K, count = learner.axes[g].capacity.K, int(learner.count()[g])
        right.barh(g, K, 0.5, color=f"C{g}", alpha=0.2)
        right.barh(g, count, 0.5, color=f"C{g}")
        right.annotate(
            f"{K} → {count} ", (K, g), ha="right", va="center", color="white" if count > 0.8 * K else "black"
        )
    left.set(xlabel="step", ylabel="boundary t", ylim=(0, None))
    names = [name.removesuffix(".axis") for name in learner.names]
    right.set(yticks=[*rows], yticklabels=names, ylim=(len(rows) - 0.4, -0.6), xlabel="components: all, kept")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    left.grid(axis="y", alpha=0.3)
    plt.show()
