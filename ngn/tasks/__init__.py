"""Tasks by name. A new task is one file, one line here, and its YAML files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ngn.schema import Config
    from ngn.tasks.base import Task

_MAKERS = {
    "regression1d": ("ngn.tasks.regression1d", "RegressionTask"),
    "mnist": ("ngn.tasks.images", "mnist_task"),
    "cifar10": ("ngn.tasks.images", "cifar10_task"),
    "cora": ("ngn.tasks.cora", "CoraTask"),
    "manifold": ("ngn.tasks.manifold", "ManifoldTask"),
    "twist": ("ngn.tasks.twist", "TwistTask"),
}


def make_task(config: Config, device: torch.device) -> Task:
    """The task of a checked configuration, its data on ``device``.

    Raises:
        ngn.data.source.DataError: if the data are absent or damaged.
    """
    module, name = _MAKERS[config.task.name]
    task: Task = getattr(importlib.import_module(module), name)(config, device)
    return task
