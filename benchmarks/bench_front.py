"""Time a batch of each size of one training, beside a batch of the whole model, for the page with the slider.

    python benchmarks/bench_front.py

Sizes are those of the records; weights do not change the time, so the models are untrained. All sizes take turns on one
thread. ``milliseconds`` are the least processor time of a batch, ``times`` that over the whole model's, each in three
processes, in ``benchmarks/results/front.json``.
"""

from __future__ import annotations

import copy
import json
import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
from timing import in_turns, seconds

import ngn
from experiments.core.paths import ROOT
from experiments.models.cifar_resnet import CifarResNet
from experiments.store.provenance import code, machine, packages
from experiments.store.records import Store
from experiments.studies import rivals
from experiments.tasks.tinystories.task import Transformer
from ngn.front.path import place_of

FILE = ROOT / "benchmarks" / "results" / "front.json"
ROUNDS, REPEATS = 300, 3
IMAGES = torch.randn(16, 3, 32, 32).contiguous(memory_format=torch.channels_last)
BLOCKS = {f"layer{stage}.{block}.conv1": ngn.Channels() for stage in (1, 2, 3) for block in range(3)}
LAYERS = {"layers.*.mlp": ngn.Width(), "layers.*.attn": ngn.Heads()}
WORKS: dict[str, tuple[torch.nn.Module, torch.Tensor, dict[str, Any]]] = {
    "front20": (CifarResNet(3), IMAGES, BLOCKS),
    "front_stories": (Transformer(69, 128), torch.randint(69, (16, 128)), LAYERS),
}
"""Work → its model, a batch, and the sizes that are learned."""


@torch.no_grad()
def times(name: str, made: str) -> list[dict[str, Any]]:
    """Return the share, cost, sizes and milliseconds of each member. Call it in a process of its own."""
    torch.set_num_threads(1)
    work, (model, x, sizes) = rivals.WORKS[name], WORKS[name]
    seeds = next(of for *both, of in rivals.fronts(Store(rivals.FOLDER)) if both == [name, made])
    costs = {int(share): member["cost"] for share, member in seeds[0].items()}
    limit: Any = {work.limited: min(costs.values()), "residual": "residual" in made, "significance": math.inf}
    front, whole = ngn.Front(**limit, example=x[:1], members=7), copy.deepcopy(model).eval()
    learner: Any = ngn.learn_sizes(model, sizes, example=x[:2], budget=front)
    counts, known = learner.points()
    at = [place_of(cost, known, work.limited) for cost in costs.values()]
    assert [known[place] for place in at] == [*costs.values()], "these are not the sizes of the records"
    models = [learner.deploy(cost, unsettled="allow") for cost in costs.values()]
    models[-1] = whole  # without the hooks of a cut
    best = [min(turns) for turns in in_turns([partial(seconds, partial(each, x)) for each in models], ROUNDS)]
    return [
        {"share": share, "cost": costs[share], "sizes": dict(zip(learner.names, counts[place], strict=True)),
         "milliseconds": round(1000 * one, 3)}
        for share, place, one in zip(costs, at, best, strict=True)
    ]  # fmt: skip


def main() -> None:
    """Write the file, and print what it says."""
    found: dict[str, Any] = {"machine": machine(), "packages": packages(), "commit": code().commit, "rounds": ROUNDS}
    for name, made, _ in rivals.fronts(Store(rivals.FOLDER)):
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            each = [*pool.map(times, [name] * REPEATS, [made] * REPEATS)]
        members = []
        for turns in zip(*each, strict=True):
            taken = [one["milliseconds"] for one in turns]
            ratios = [round(one / of[-1]["milliseconds"], 4) for one, of in zip(taken, each, strict=True)]
            members.append(turns[0] | {"milliseconds": taken, "times": ratios})
        found.setdefault(name, {"batch": len(WORKS[name][1])})[made] = members
        print(name, made, *members, sep="\n")
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
