"""Where a sweep runs: here, on Slurm, or as your own file says, with ``key=value`` from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from experiments.config.compose import nearest
from experiments.config.messages import explain, parse_value, read_yaml
from experiments.core.blocks import Closed, ConfigError

CLUSTERS: dict[str, dict[str, Any]] = {
    "local": {"kind": "local"},
    "slurm": {"kind": "slurm", "workers": 100, "grace_seconds": 90},
}
"""The settings that come with the project: what differs from the defaults of :class:`Cluster`."""
PositiveInt = Annotated[int, Field(ge=1)]


class Cluster(Closed):
    """How the tasks of a plan are run.

    Attributes:
        workers: number of workers; None for one per GPU, or one without a GPU.
        runs_per_task: most runs in one task.
        task_minutes: time limit of a task, which is then stopped and reported; None for no limit.

    The attributes below ``grace_seconds`` are for Slurm only.
    """

    kind: Literal["local", "slurm"]
    workers: PositiveInt | None = None
    runs_per_task: PositiveInt = 50
    task_minutes: Annotated[float, Field(gt=0)] | None = None
    grace_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Time between asking a worker to stop and killing it. Slurm asks a task this long before its time limit."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs of a task, as ``memory_gb`` and ``task_minutes``: None for what the study needs."""
    cpus: PositiveInt = 1
    memory_gb: Annotated[float, Field(gt=0)] | None = None
    max_array_size: PositiveInt = 1000
    """The cluster's MaxArraySize. A larger sweep becomes several arrays."""
    setup: Annotated[list[str], Field(default_factory=list)]
    """Shell lines to run first, such as ``module load cuda`` or ``source .venv/bin/activate``."""
    more: Annotated[dict[str, str | int], Field(default_factory=dict)]
    """Further #SBATCH options, such as ``constraint: h100``."""


def load_cluster(name: str, changes: Sequence[str] = ()) -> Cluster:
    """Load the settings of a name or a file, with ``key=value`` changes; a ConfigError with the nearest legal name."""
    if name not in CLUSTERS and not Path(name).is_file():
        known = list(CLUSTERS)
        raise ConfigError(f"no cluster '{name}'.{nearest(name, known)} Use {', '.join(known)}, or a YAML file")
    content = {**(CLUSTERS[name] if name in CLUSTERS else read_yaml(Path(name)))}
    for change in changes:
        key, sign, value = change.partition("=")
        if not sign:
            raise ConfigError(f"{change}: not understood; write settings of the cluster as key=value")
        try:
            content[key] = parse_value(value)
        except ValueError:
            raise ConfigError(f"{change}: not understood; quote values with special characters") from None
    try:
        return Cluster.model_validate(content)
    except ValidationError as error:
        legal = list(Cluster.model_fields)
        sentence = explain(error, content, lambda key: f"unknown key '{key}'.{nearest(key, legal)}")
        raise ConfigError(f"{name}: {sentence}") from None
