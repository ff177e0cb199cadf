"""All methods by the names of the tables, and the packages that some need."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from rivals import methods, published
from rivals.work import Workload
from torch import nn

METHODS: dict[str, Callable[[Workload, int, int], nn.Module]] = {
    "dense": methods.dense,
    "NGN": methods.learned,
    "NGN's sizes from scratch": methods.scratch,
    "shrunk to even sizes": methods.shrunk,
    "uniform width": methods.uniform,
    "even sizes": methods.even,
    "even sizes, cut half-way": methods.cut,
    "magnitude": methods.magnitude,
    "Torch-Pruning": published.torch_pruning,
    "Torch-Pruning, local": published.torch_pruning_local,
    "Torch-Pruning, sparsity": published.torch_pruning_sparse,
    "MorphNet": published.morphnet,
    "BAR": published.bar,
}
NEEDS = {name: "torch_pruning" for name in METHODS if name.startswith("Torch-Pruning")}


def missing(method: str) -> str | None:
    """Return the package that ``method`` needs but that is not installed."""
    package = NEEDS.get(method)
    return package if package and importlib.util.find_spec(package) is None else None
