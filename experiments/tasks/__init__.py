"""Tasks by name. A new task is one file, one line here, and its YAML files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from experiments.config.schema import Config
    from experiments.tasks.base import Task

_MAKERS = {
    "regression1d": ("experiments.tasks.regression1d", "RegressionTask"),
    "mnist": ("experiments.tasks.images", "mnist_task"),
    "cifar10": ("experiments.tasks.images", "cifar10_task"),
    "cora": ("experiments.tasks.cora", "CoraTask"),
    "manifold": ("experiments.tasks.manifold", "ManifoldTask"),
    "twist": ("experiments.tasks.twist", "TwistTask"),
}


def make_task(config: Config, device: torch.device) -> Task:
    """The task of a checked configuration, its data on ``device``.

    Raises:
        experiments.data.source.DataError: if the data are absent or damaged.
    """
    module, name = _MAKERS[config.task.name]
    task: Task = getattr(importlib.import_module(module), name)(config, device)
    return task
