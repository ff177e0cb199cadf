"""All methods and works by the names of the tables, and the packages that some methods need."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

from rivals import images, language, methods, published
from rivals.work import Workload
from torch import nn

METHODS: dict[str, Callable[[Workload, int, int], nn.Module]] = {
    "dense": methods.dense,
    "NGN": methods.learned,
    "NGN, sizes fixed early": methods.learned_early,
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
    "Wanda, even": published.wanda,
    "Minitron": published.minitron,
    "Sheared-LLaMA's masks": published.sheared,
    "as given": methods.given,
}
WHOLE = ("dense", "as given")
"""Methods that cut nothing."""
TRAINED: dict[str, Callable[..., Workload]] = {
    name: functools.partial(images.trained, name, network, epochs)
    for name, network, epochs in (
        ("trained20", "resnet20", 3),
        ("trained56", "resnet56", 3),
        ("longer20", "resnet20", 15),
        ("longer56", "resnet56", 15),
    )
}
"""Works on networks that have seen the validation images."""
WORKS: dict[str, Callable[..., Workload]] = {
    "transformer": language.text,
    "resnet20": images.images,
    **TRAINED,
    "scratch20": images.scratch,
    "smollm2": language.language,
}
NEEDS = {name: "torch_pruning" for name in METHODS if name.startswith("Torch-Pruning")}


def missing(method: str) -> str | None:
    """Return the package that ``method`` needs but that is not installed."""
    package = NEEDS.get(method)
    return package if package and importlib.util.find_spec(package) is None else None
