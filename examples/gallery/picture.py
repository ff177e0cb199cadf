"""What pages of the gallery share: images of lines; sizes and loss over training, and what is left."""

import matplotlib.pyplot as plt
import torch
from torch import Tensor

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


def draw(history: History, learner: ngn.Learner) -> None:
    """Draw t and the loss over training, the components of every size, and the parameters, before and after."""
    report = learner.report()
    rows, steps = range(len(report.groups)), history.curves["step"]
    plt.rcParams["font.size"] = 12
    layout = [["sizes", "components", "parameters"], ["loss", "components", "parameters"]]
    _, axes = plt.subplot_mosaic(layout, figsize=(10, 4), width_ratios=(3, 3, 2), layout="constrained")
    sizes, components, parameters = axes["sizes"], axes["components"], axes["parameters"]
    for g in rows:
        sizes.plot(steps, history.curves["t"][:, 0, g], color=f"C{g}", lw=2)
    sizes.set(ylabel="boundary t", ylim=(0, None), xticklabels=[])
    loss = history.curves["task"][:, 0]
    axes["loss"].semilogy(steps, loss, color="black", lw=1.5)
    axes["loss"].set(xlabel="step", title=f"loss {loss[0]:.2g} → {loss[-1]:.2g}")
    axes["loss"].tick_params(axis="y", which="minor", labelleft=False)

    most = max(group.before for group in report.groups)
    for g, group in enumerate(report.groups):
        components.barh(g, group.before, 0.5, color="#d0d0d0")
        components.barh(g, group.after, 0.5, color=f"C{g}")
        components.text(group.before + 0.03 * most, g, f"{group.before} → {group.after}", va="center", weight="bold")
    names = [group.name.removesuffix(".axis") or "model" for group in report.groups]
    components.set(yticks=[*rows], yticklabels=names, ylim=(len(rows) - 0.3, -0.7), xlim=(0, 1.45 * most))
    components.set(xticks=[], title=f"{report.groups[0].unit}: before → after")

    counts = [report.parameters, report.deployed]
    drawn = parameters.bar(["before", "after"], counts, 0.7, color=["#d0d0d0", "black"])
    parameters.bar_label(drawn, [f"{count:,}" for count in counts], padding=2, weight="bold")
    parameters.margins(y=0.12)
    parameters.set(yticks=[], title=f"parameters: {report.deployed / report.parameters - 1:.0%}".replace("-", "−"))
    for each in axes.values():
        each.spines[["top", "right"]].set_visible(False)
    components.spines["bottom"].set_visible(False)
    parameters.spines["left"].set_visible(False)
    plt.show()
