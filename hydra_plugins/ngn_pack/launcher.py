"""Hydra plugins that train jobs as stacks: jobs that differ only in seed and scalars form one stack.

``hydra/launcher=pack`` is the default of multiruns. ``hydra/launcher=basic`` trains the jobs one by one.
"""

# No "from __future__ import annotations": dataclasses would then look this module up in sys.modules, and Hydra runs it
# before it is there.
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from hydra._internal.config_loader_impl import get_overrides_dirname
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from experiments.blocks import ConfigError
from experiments.cli.overrides import parse, spliced
from experiments.cli.session import Session, write_folder
from experiments.runs.run_files import Run

if TYPE_CHECKING:
    from experiments.runs.outcome import RunOutcome

Outcomes = dict[str, Union["RunOutcome", Exception]]
"""Run id → the outcome of the run, or its error."""


class PackLauncher(BasicLauncher):  # type: ignore[misc]
    """Train a batch of jobs as stacks; then give every job, in order, its folder and its outcome."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """See :class:`hydra.plugins.launcher.Launcher`; ``task_function`` is the ``job`` of a :class:`Session`."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        session = getattr(task_function, "__self__", None)
        if not isinstance(session, Session):
            raise TypeError("hydra/launcher=pack launches the jobs of run.py; use hydra/launcher=basic for others")
        self.session = session

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """See :class:`hydra.plugins.launcher.Launcher`."""
        if self.config is None:
            raise RuntimeError("setup() must be called before launch()")
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        runs = self.session.runs[initial_job_idx : initial_job_idx + len(job_overrides)]
        try:
            self.session.ready.update(self.train(runs))
        except ConfigError as refused:  # by the cluster; Hydra would show a traceback
            print(f"refused: {refused}", file=sys.stderr)
            raise SystemExit(2) from None
        done = []
        for number, (run, overrides) in enumerate(zip(runs, job_overrides, strict=True), initial_job_idx):
            folder, subdir = self._folder(number, overrides), self.config.hydra.output_subdir
            if subdir is not None:
                write_folder(folder / str(subdir), run.config, overrides)
            self.session.report(number, run)
            returned = JobReturn(overrides=list(overrides), working_dir=str(folder))
            returned.task_name = str(self.config.hydra.job.name)
            returned.status = JobStatus.COMPLETED  # the summary and the exit status of the command report failures
            returned.return_value = None
            done.append(returned)
        return done

    def train(self, runs: list[Run]) -> Outcomes:
        """Train runs as stacks. A run without an outcome here is trained when its job reports."""
        from experiments.runs.launch import share

        return share(runs)

    def _folder(self, number: int, overrides: Sequence[str]) -> Path:
        """Return the folder of a job. Its name may contain the job's number and overrides."""
        job, sweep = self.config.hydra.job, self.config.hydra.sweep
        form = job.config.override_dirname
        with open_dict(self.config):
            job.id = job.num = number
            job.override_dirname = get_overrides_dirname(
                overrides=[parse(token) for token in overrides],
                kv_sep=form.kv_sep,
                item_sep=form.item_sep,
                exclude_keys=form.exclude_keys,
            )
        return Path(str(sweep.dir)) / str(sweep.subdir)


class CheckedSweeper(BasicSweeper):  # type: ignore[misc]
    """Hydra's sweeper with rows of settings, and without its second check: ``run.py`` checks all jobs before."""

    @staticmethod
    def split_arguments(overrides: list[Any], max_batch_size: Union[int, None]) -> list[list[list[str]]]:
        """Return batches of jobs; in each job, the settings of its row stand in place of ``rows=``."""
        batches = BasicSweeper.split_arguments(overrides, max_batch_size)
        return [[spliced(job) for job in batch] for batch in batches]

    def validate_batch_is_legal(self, batch: Any) -> None:
        """Check nothing."""


@dataclass
class PackLauncherConf:
    """``hydra/launcher=pack``"""

    _target_: str = "hydra_plugins.ngn_pack.launcher.PackLauncher"


@dataclass
class CheckedSweeperConf:
    """``hydra/sweeper=checked``"""

    _target_: str = "hydra_plugins.ngn_pack.launcher.CheckedSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = None


ConfigStore.instance().store(group="hydra/launcher", name="pack", node=PackLauncherConf, provider="ngn")
ConfigStore.instance().store(group="hydra/sweeper", name="checked", node=CheckedSweeperConf, provider="ngn")
