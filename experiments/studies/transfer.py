"""Studies of other structures and tasks: images, graphs, stories, manifolds, depth."""

from __future__ import annotations

from experiments.analysis.selection import Selection
from experiments.studies.model import Study, selections_of
from experiments.tables.depth import DEPTH as LAYERS
from experiments.tables.stories import STORIES
from experiments.tables.vae import FIFTEEN


def _vision() -> list[Selection]:
    tasks = (("mnist", "mlp"), ("mnist", "conv"), ("cifar10", "conv"), ("cora", "gcn"))
    return [Selection.of({"task": task, "gate": gate}) for task, gate in tasks]


def _vision_frontier() -> list[Selection]:
    # beyond 16 features the weights 0.5^k are negligible
    tasks = (("mnist", "mlp", 16), ("mnist", "conv", 8), ("cifar10", "conv", 16), ("cora", "gcn", 8))
    return [
        Selection.of({"task": task, "gate": gate, "method": "fixed"}, {"method.count": count}, range(3))
        for task, gate, most in tasks
        for count in range(1, most + 1)
    ]


def _stories() -> list[Selection]:
    # seed 0 of every row first
    return [runs.with_seeds([0]) for runs in selections_of(STORIES)] + selections_of(STORIES)


def _stories_frontier() -> list[Selection]:
    return [
        Selection.of({"task": "tinystories", "gate": gate, "method": "fixed"}, {"method.count": (count, count)}, [0])
        for gate, most in (("heads", 8), ("slices", 16))
        for count in range(1, most + 1)
    ]


def _depth_seeds() -> list[Selection]:
    return [runs.with_seeds(range(39)) for runs in LAYERS.runs.values()]


VISION = Study("vision", "table 8: MNIST, CIFAR-10 and Cora, ten seeds", _vision, rank=201)
VISION_FRONTIER = Study(
    "vision_frontier", "accuracy against count: fixed models of every count, three seeds", _vision_frontier, rank=202
)
TINYSTORIES = Study("tinystories", "heads, slices, both, and Mamba states on TinyStories", _stories, rank=203, curves=1)
TINYSTORIES_FRONTIER = Study(
    "tinystories_frontier", "fixed models of 1 to 8 heads and 1 to 16 slices, seed 0", _stories_frontier, rank=204
)
MANIFOLD = Study(
    "manifold",
    "table 15: intrinsic dimensions 1, 2, 4, 6 and 8, ten seeds",
    lambda: selections_of(FIFTEEN),
    rank=205,
    curves=10,
)
DEPTH = Study(
    "depth",
    "tables 9 and 10: depth by layers (four settings) and by a chain, ten seeds",
    lambda: selections_of(LAYERS),
    rank=206,
)
DEPTH_SEEDS = Study(
    "depth_seeds", "tables 9 and 10 with 39 seeds: enough for ranks to decide a single run", _depth_seeds, rank=207
)
