"""``hydra/launcher=pack_slurm``: a multirun on Slurm with one array task per stack. The command waits for the jobs.

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

from experiments.runs.run_files import Run
from experiments.store.records import MAX_FILE_BYTES
from hydra_plugins.ngn_pack.launcher import Outcomes, PackLauncher
from ngn.files import read_regular

POLL = 2.0
"""Seconds between two checks of Slurm's queue."""


class PackSlurmLauncher(PackLauncher):
    """Train a batch as array tasks. Folders and reports are those of :class:`PackLauncher`.

    Args:
        settings: changes to ``experiments/clusters/slurm.yaml``; None keeps its value. Shell lines (``setup``) and
            further options (``more``) need a file: ``scripts/sweep.py run --cluster FILE``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = {name: value for name, value in settings.items() if value is not None}

    def train(self, runs: list[Run]) -> Outcomes:
        """Train the runs without a record as array tasks, and wait for them."""
        from experiments.runs.outcome import RunOutcome, summary
        from experiments.store.records import RecordError, Store
        from experiments.sweeps import plan as plans
        from experiments.sweeps import slurm
        from experiments.sweeps.settings import load_cluster
        from experiments.sweeps.worker import failure_path

        if self.config is None:
            raise RuntimeError("setup() must be called before launch()")
        cluster = load_cluster("slurm", **self.settings)
        results = next((run for run in runs if run.config.profile != "full"), runs[0]).root
        store = Store(results)
        outcomes: Outcomes = {}
        wanted: list[Run] = []
        for run in runs:
            try:
                wanted += [run] if run.config.force or store.get(run.id) is None else []
            except RecordError as damaged:
                outcomes[run.id] = damaged
        if not wanted:
            return outcomes
        folder = Path(str(self.config.hydra.sweep.dir)).absolute()
        plan = plans.read_plan(plans.freeze(folder, "multirun", results, wanted, cluster.runs_per_task))
        jobs = slurm.submit(plan, range(len(plan.tasks)), cluster)
        while slurm.in_queue(jobs):
            time.sleep(POLL)
        for name in (run.id for run in wanted):
            record, failure = store.get(name), failure_path(plan.path, name)
            if failure.exists():
                note = json.loads(read_regular(failure, MAX_FILE_BYTES))
                outcomes[name] = RecordError(f"{note['error']} ({note['where']})")
            elif record is None:
                outcomes[name] = RecordError(
                    f"{name}: its Slurm task ended without a record; see the logs in {folder / 'slurm'}"
                )
            else:
                path = store.path(name)
                outcomes[name] = RunOutcome(name, str(record["status"]), path, f"{summary(record)} -> {path}")
        return outcomes


@dataclass
class PackSlurmLauncherConf:
    """``hydra/launcher=pack_slurm``: keys of ``experiments/clusters/slurm.yaml``; None keeps the value of the file."""

    _target_: str = "hydra_plugins.ngn_pack.slurm.PackSlurmLauncher"
    workers: Optional[int] = None  # noqa: UP045 (OmegaConf reads the annotations)
    runs_per_task: Optional[int] = None  # noqa: UP045
    task_minutes: Optional[float] = None  # noqa: UP045
    grace_seconds: Optional[float] = None  # noqa: UP045
    partition: Optional[str] = None  # noqa: UP045
    account: Optional[str] = None  # noqa: UP045
    qos: Optional[str] = None  # noqa: UP045
    gpus: Optional[int] = None  # noqa: UP045
    cpus: Optional[int] = None  # noqa: UP045
    memory_gb: Optional[float] = None  # noqa: UP045
    max_array_size: Optional[int] = None  # noqa: UP045


ConfigStore.instance().store(group="hydra/launcher", name="pack_slurm", node=PackSlurmLauncherConf, provider="ngn")
