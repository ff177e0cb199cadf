"""``hydra/launcher=pack_slurm``: a multirun on Slurm, one array task a stack. It waits for the jobs.

    python run.py task=mnist seed=0..9 hydra/launcher=pack_slurm hydra.launcher.partition=gpu hydra.launcher.gpus=1

``python scripts/sweep.py run STUDY --cluster slurm`` submits a whole study and does not wait.
"""

# No annotations from __future__: see launcher.py.
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from hydra.core.config_store import ConfigStore

from experiments.config.schema import Config
from hydra_plugins.ngn_pack.launcher import Outcomes, PackLauncher

POLL = 2.0
"""Seconds between two looks at Slurm's queue."""


class PackSlurmLauncher(PackLauncher):
    """Trains a batch as array tasks; folders and reports are those of :class:`PackLauncher`.

    Args: as in ``experiments/clusters/slurm.yaml``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings

    def train(self, configs: list[Config]) -> Outcomes:
        """Train runs as array tasks, and wait for them; those that have their records are left out."""
        from experiments.config.identity import run_id
        from experiments.runs.outcome import Outcome, reference, summary
        from experiments.runs.places import results_root
        from experiments.store.records import RecordError, Store
        from experiments.sweeps import plan as plans
        from experiments.sweeps import slurm
        from experiments.sweeps.settings import Cluster
        from experiments.sweeps.worker import failure_path

        if self.config is None:
            raise RuntimeError("setup() must be called before launch()")
        cluster = Cluster.model_validate({"kind": "slurm", **self.settings})
        configs = [config for config in configs if reference(config) is None]
        if not configs:
            return {}
        results = results_root(next((config for config in configs if config.profile != "full"), configs[0]))
        store = Store(results)
        outcomes: Outcomes = {}
        wanted: list[Config] = []
        for config in configs:
            try:
                wanted += [config] if config.force or store.get(run_id(config)) is None else []
            except RecordError as damaged:
                outcomes[run_id(config)] = damaged
        if not wanted:
            return outcomes
        folder = Path(str(self.config.hydra.sweep.dir)).absolute()
        plan = plans.read(plans.freeze(folder, "multirun", results, wanted, cluster.runs_per_task))
        jobs = slurm.submit(plan, range(len(plan.tasks)), cluster)
        while slurm.in_queue(jobs):
            time.sleep(POLL)
        for config in wanted:
            name = run_id(config)
            record, failure = store.get(name), failure_path(plan.path, name)
            if failure.exists():
                note = json.loads(failure.read_text())
                outcomes[name] = RecordError(f"{note['error']} ({note['where']})")
            elif record is None:
                outcomes[name] = RecordError(
                    f"{name}: its Slurm task ended without a record; logs are in {folder / 'slurm'}"
                )
            else:
                path = store.path(name)
                outcomes[name] = Outcome(name, str(record["status"]), path, f"{summary(record)} -> {path}")
        return outcomes


@dataclass
class PackSlurmLauncherConf:
    """``hydra/launcher=pack_slurm``; see :class:`experiments.sweeps.settings.Cluster`."""

    _target_: str = "hydra_plugins.ngn_pack.slurm.PackSlurmLauncher"
    workers: Optional[int] = 100  # noqa: UP045 (OmegaConf reads the annotations)
    runs_per_task: int = 50
    task_minutes: Optional[float] = 240.0  # noqa: UP045
    grace_seconds: float = 90.0
    partition: Optional[str] = None  # noqa: UP045
    account: Optional[str] = None  # noqa: UP045
    qos: Optional[str] = None  # noqa: UP045
    gpus: int = 0
    cpus: int = 1
    memory_gb: Optional[float] = None  # noqa: UP045
    max_array_size: int = 1000


ConfigStore.instance().store(group="hydra/launcher", name="pack_slurm", node=PackSlurmLauncherConf, provider="ngn")
