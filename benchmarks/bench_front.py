"""Time a batch of each size of one training, beside a batch of the whole model, for the page with the slider.

    python benchmarks/bench_front.py

Sizes are those of the records. Weights do not change the time, so the models are untrained. All sizes take turns on one
thread. ``milliseconds`` are the least processor time of a batch, and ``times`` that over the whole model's. They are
measured in three processes, into ``benchmarks/results/front.json``.
"""

from __future__ import annotations

import json
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

FILE = ROOT / "benchmarks" / "results" / "front.json"
ROUNDS, REPEATS = 300, 3
IMAGES = torch.randn(16, 3, 32, 32).contiguous(memory_format=torch.channels_last)
BLOCKS = [f"layer{stage}.{block}.conv1" for stage in (1, 2, 3) for block in range(3)]
LAYERS = [f"layers.{layer}.{part}" for layer in (0, 1) for part in ("mlp.0", "attn")]
WORKS = {
    "front20": (CifarResNet(3), IMAGES, BLOCKS),
    "front_stories": (Transformer(80, 128), torch.randint(80, (16, 128)), LAYERS),
}
"""Work → its model, a batch, and the names of its sizes in the order of a record's counts."""


@torch.no_grad()
def times(name: str) -> dict[tuple[int, ...], float]:
    """Return the milliseconds of each size. Call it in a process of its own."""
    torch.set_num_threads(1)
    model, x, sizes = WORKS[name]
    seeds = [members for work, _, of in rivals.fronts(Store(rivals.FOLDER)) if work == name for members in of]
    counts = sorted({tuple(one["count"]) for members in seeds for one in members.values()})
    whole = ngn.find_sizes(model.eval(), x[:2])
    models = [whole.cut(dict(zip(sizes, count, strict=True))).eval() for count in counts]
    best = [min(turns) for turns in in_turns([partial(seconds, partial(model, x)) for model in models], ROUNDS)]
    return {count: round(1000 * one, 3) for count, one in zip(counts, best, strict=True)}


def main() -> None:
    """Write the file, and print what it says."""
    found: dict[str, Any] = {"machine": machine(), "packages": packages(), "commit": code().commit, "rounds": ROUNDS}
    for name, (_, x, _) in WORKS.items():
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            each = [*pool.map(times, [name] * REPEATS)]
        whole = [max(one) for one in each]  # the largest counts
        members = [
            {
                "count": count,
                "milliseconds": [one[count] for one in each],
                "times": [round(one[count] / one[most], 4) for one, most in zip(each, whole, strict=True)],
            }
            for count in each[0]
        ]
        found[name] = {"batch": len(x), "members": members}
        print(name, *members, sep="\n")
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
