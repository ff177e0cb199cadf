"""The tasks: what each says of itself, and in ``task`` beside it the data, the model and the scores.

A new task is one file here (or in ``tasks/`` of a folder that $NGN_PLUGINS names) and its YAMLs, in ``conf/task`` and
``conf/setting``. No torch is imported before a task is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.core.blocks import ConfigError, legal_name
from experiments.core.config import TaskSettings
from experiments.core.plugins import discover_classes

if TYPE_CHECKING:
    import torch

    from experiments.core.config import Config
    from experiments.core.task import Task

TASKS = discover_classes(__name__, __path__, TaskSettings)
"""Name → settings class."""
COMPONENTS = {legal_name(part, "component"): part for task in TASKS.values() for part in task.components}
"""Name → settings class of every ordered component that fits a task."""
GATES_OF_TASK = {name: tuple(legal_name(part, "component") for part in task.components) for name, task in TASKS.items()}
"""The ordered components that fit each task, its usual first."""


def make_task(config: Config, device: torch.device) -> Task[Any]:
    """The task of a checked configuration, its data on ``device``.

    Raises:
        experiments.data.source.DataError: if the data are absent or damaged.
        ConfigError: if its data have another name than the task, for no table would count the records.
    """
    task, name = config.task.make(config, device), config.task.name
    if task.info.name != name and config.profile == "full":  # smoke data have names of their own
        raise ConfigError(
            f"task={name}: the name of its data is {task.info.name!r}, but must be that of the task. "
            f"In make(), give the task info=DataInfo({name!r}, ...)"
        )
    return task
